// The two matrix products of attention on one block: scores = keys * queries, sums += probabilities * values.
#pragma once

#include "custom_ops/_runtime/multiply.h"
#include "custom_ops/attention/scores.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

// Keys and values of one block, as floats; rows from here to the next are `stride` apart. Rows of values are read in
// whole vectors.
struct Block {
  const float* keys;
  const float* values;
  int64_t key_stride, value_stride;
};

template <int kRows, int kVecs>
ONNXFUSE_INLINE void Clear(Vec (&sum)[kRows][kVecs]) {
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) sum[r][v] = Zero();
  }
}

// Scores of kRows keys and kVecs vectors of queries; `largest` takes in their maxima.
template <int kRows, int kVecs>
ONNXFUSE_INLINE void ScoreRows(const float* keys, int64_t stride, const float* queries, int64_t head_size,
                               float* scores, Vec (&largest)[kVecs]) {
  Vec sum[kRows][kVecs];
  Clear(sum);
  MultiplyAdd<kRows, kVecs, Order::kRows>(keys, stride, queries, kChunk, head_size, sum);
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      largest[v] = Max(largest[v], sum[r][v]);
      Store(scores + r * kChunk + v * kLanes, sum[r][v]);
    }
  }
}

// scores[j][query], for `count` keys and kVecs vectors of queries, and most[query], their maxima.
// queries: [head_size][kChunk]. Before keys [j, next) it calls meanwhile(j, next).
template <int kVecs, typename Meanwhile>
ONNXFUSE_INLINE void ScoreBlock(const Block& block, int count, const float* queries, int64_t head_size, float* scores,
                                float* most, Meanwhile&& meanwhile) {
  constexpr int kRows = TileRows(kVecs);
  Vec largest[kVecs];
  for (int v = 0; v < kVecs; ++v) largest[v] = Set(-kInfinity);
  auto rows = [&]<int kCount>(int j) {
    ScoreRows<kCount>(block.keys + j * block.key_stride, block.key_stride, queries, head_size, scores + j * kChunk,
                      largest);
  };
  int j = 0;
  for (; j + kRows <= count; j += kRows) {
    meanwhile(j, j + kRows);
    rows.template operator()<kRows>(j);
  }
  if (j < count) meanwhile(j, count);
  // What is left over is done by going back, over rows that are done again to the same effect.
  if (j < count && count >= kRows) rows.template operator()<kRows>(count - kRows);
  if (count < kRows) {
    for (; j < count; ++j) rows.template operator()<1>(j);
  }
  for (int v = 0; v < kVecs; ++v) Store(most + v * kLanes, largest[v]);
}

// sums[query][...] = sums * keep + probabilities * values, for kRows queries and kVecs vectors of `count` values.
template <int kRows, int kVecs>
ONNXFUSE_INLINE void AddRows(const float* values, int64_t stride, int count, const float* probabilities,
                             const float* keep, bool is_started, float* sums, int64_t sums_stride) {
  Vec sum[kRows][kVecs];
  if (is_started) {
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) sum[r][v] = Load(sums + r * sums_stride + v * kLanes) * Set(keep[r]);
    }
  } else {
    Clear(sum);
  }
  MultiplyAdd<kRows, kVecs, Order::kColumns>(probabilities, kChunk, values, stride, count, sum);
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) Store(sums + r * sums_stride + v * kLanes, sum[r][v]);
  }
}

// The same for all queries of a chunk, and vectors vec to vec + kVecs of the values.
template <int kVecs>
ONNXFUSE_INLINE void AddBlock(const Block& block, int vec, int count, const float* probabilities, int queries,
                              const Running& running, float* sums, int64_t sums_stride) {
  constexpr int kRows = TileRows(kVecs);
  auto rows = [&]<int kCount>(int i) {
    AddRows<kCount, kVecs>(block.values + vec * kLanes, block.value_stride, count, probabilities + i, running.keep + i,
                           running.is_started, sums + i * sums_stride + vec * kLanes, sums_stride);
  };
  int i = 0;
  for (; i + kRows / 2 < queries; i += kRows) rows.template operator()<kRows>(i);
  if (i < queries) rows.template operator()<kRows / 2>(i);  // sums has room for rows past the last query
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
