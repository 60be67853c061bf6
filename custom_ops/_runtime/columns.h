// Reductions over an axis that is not the last: [channels, places], a sum over the channels for each place. For
// kernel_cpu.cc files.
//
// Places that are neighbours in memory are lanes of a Vec, several Vecs side by side, so that every cache line of a
// channel is read whole. What is read again for a second sum comes out of the cache.
#pragma once

#include "custom_ops/_runtime/parallel.h"
#include "custom_ops/_runtime/simd.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

inline constexpr int kColumnVecs = 4;  // Vecs side by side

// kSums sums over the channels at once: add(channel, sums) adds one channel to sums[kSums][kWide]. In blocks, so that
// rounding errors grow with the block and the number of blocks, not with the channels.
template <int kSums, int kWide, typename Add>
ONNXFUSE_INLINE void SumOverChannels(int64_t channels, Vec (&total)[kSums][kWide], Add&& add) {
  constexpr int64_t kBlock = 64;
  for (auto& sums : total) {
    for (Vec& sum : sums) sum = Zero();
  }
  for (int64_t first = 0; first < channels; first += kBlock) {
    Vec part[kSums][kWide];
    for (auto& sums : part) {
      for (Vec& sum : sums) sum = Zero();
    }
    const int64_t end = channels - first < kBlock ? channels : first + kBlock;
    for (int64_t channel = first; channel < end; ++channel) add(channel, part);
    for (int k = 0; k < kSums; ++k) {
      for (int w = 0; w < kWide; ++w) total[k][w] = total[k][w] + part[k][w];
    }
  }
}

// LoadN and StoreN that also ask for what the next kWide Vecs of this channel will read, or write (as LoadAhead and StoreAhead
// do in a row).
template <int kWide, typename T>
ONNXFUSE_INLINE Vec LoadColumn(const T* p, int lanes) {
  Prefetch<Fetch::kFar>(p + kWide * kLanes);
  return LoadN(p, lanes);
}

template <int kWide, typename T>
ONNXFUSE_INLINE void StoreColumn(T* p, Vec x, int lanes) {
  Prefetch<Fetch::kFar>(p + kWide * kLanes);
  StoreN(p, x, lanes);
}

// A tag that tells a body how many Vecs it works on.
template <int kWide>
struct Vecs {};

// Calls body(Vecs<n>, matrix, place, lanes) so that the Vecs from `place` on cover all places of [matrices, places];
// lanes is kLanes but for a last single Vec. cost: nanoseconds for one place.
template <typename Body>
ONNXFUSE_INLINE void ForEachColumn(int64_t matrices, int64_t places, double cost, const ParallelFor& parallel,
                                   Body&& body) {
  constexpr int64_t kTile = kColumnVecs * kLanes;
  const int64_t tiles = (places + kTile - 1) / kTile;
  parallel(matrices * tiles, cost * static_cast<double>(kTile), [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t matrix = tile / tiles, place = tile % tiles * kTile;
      if (places - place >= kTile) {
        body(Vecs<kColumnVecs>(), matrix, place, kLanes);
        continue;
      }
      ForEachVec(places - place, [&](int64_t i, int lanes) { body(Vecs<1>(), matrix, place + i, lanes); });
    }
  });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
