// What happens to a block of scores between the two products: softcap, mask, diagonal and window, running softmax.
//
// A block holds the scores of one chunk, up to kChunk queries, against some keys, transposed: key j's scores lie at
// block[j * kChunk ...], one lane for each query. So maxima and sums run down the lanes, without a reduction across
// them, and the probabilities lie as the second product reads its left side.
#pragma once

#include <cmath>
#include <limits>

#include "custom_ops/attention/tile.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

inline constexpr int kChunk = 48;  // a multiple of kLanes and of TileRows(n), for every n and instruction set
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The queries of a chunk, one lane each. Lanes past the last query repeat it, so that they need no care.
struct Chunk {
  int count;                // queries, at least 1
  int vecs;                 // vectors that hold them
  Visible by_any;           // keys that some query may see
  Visible by_all;           // keys that every query may see; may be empty
  Visible by[kChunk];       // keys that each query may see
  int64_t mask_at[kChunk];  // where each query's mask starts
  bool has_one_mask;        // all start at the same place
};

// Running softmax of a chunk.
struct Running {
  alignas(64) float most[kChunk];   // the largest score so far, -inf before the first
  alignas(64) float total[kChunk];  // the sum of exp(score - most)
  alignas(64) float keep[kChunk];   // what output sums of earlier blocks must be multiplied with
  bool is_started;
};

ONNXFUSE_INLINE Vec LoadMaskValues(const uint8_t* p, int lanes) {
  return Select(lanes == kLanes ? LoadMask(p) : LoadMaskPartial(p, lanes), Set(1.0f), Zero());
}
template <typename M>
ONNXFUSE_INLINE Vec LoadMaskValues(const M* p, int lanes) {
  return LoadN(p, lanes);
}
ONNXFUSE_INLINE float MaskValue(uint8_t x) { return x != 0 ? 1.0f : 0.0f; }
template <typename M>
ONNXFUSE_INLINE float MaskValue(M x) {
  return ToFloat(x);
}

// value[j] = the mask of vector `vec` of the chunk's queries for key `key` + j, j < keys <= kLanes.
// False, and nothing read into `value`, where no bit of it is set and so it adds nothing.
template <typename M>
ONNXFUSE_INLINE bool ReadMask(const M* mask, int64_t column, const Chunk& chunk, int vec, int64_t key, int keys,
                              Vec (&value)[kLanes]) {
  const int64_t* at = chunk.mask_at + vec * kLanes;
  if (chunk.has_one_mask) {
    for (int j = 0; j < keys; ++j) value[j] = Set(MaskValue(mask[at[0] + (key + j) * column]));
    return true;
  }
  if (column == 1) {
    Vec bits = Zero();
    for (int i = 0; i < kLanes; ++i) {
      value[i] = LoadMaskValues(mask + at[i] + key, keys);
      bits = bits | value[i];
    }
    if (!AnyBit(bits)) return false;
    Transpose(value);
    return true;
  }
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = MaskValue(mask[at[i]]);
  for (int j = 0; j < keys; ++j) value[j] = Load(lanes);
  return true;
}

// The first and last key that the queries of one vector see, relative to `base`, cut to [-1, kMostKeys].
struct Bounds {
  Vec first, last;
};
inline constexpr int64_t kMostKeys = 1 << 20;  // float holds these exactly

ONNXFUSE_INLINE Bounds BoundsOf(const Chunk& chunk, int vec, int64_t base) {
  float first[kLanes], last[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const Visible& keys = chunk.by[vec * kLanes + i];
    first[i] = static_cast<float>(Most(-1, Least(keys.first - base, kMostKeys)));
    last[i] = static_cast<float>(Most(-1, Least(keys.last - base, kMostKeys)));
  }
  return {Load(first), Load(last)};
}

// Starts bringing the mask of queries [query, end) of the chunk for keys [key, key + keys) near: its rows are too far
// apart for the processor to foresee.
ONNXFUSE_INLINE void PrefetchMask(const void* mask, int64_t element, const Chunk& chunk, int query, int end,
                                  int64_t key, int64_t keys) {
#if defined(__GNUC__)
  constexpr int64_t kLine = 64;
  for (int i = query; i < end; ++i) {
    const char* row = static_cast<const char*>(mask) + (chunk.mask_at[i] + key) * element;
    for (int64_t at = 0; at < keys * element; at += kLine) __builtin_prefetch(row + at, 0, 2);
  }
#else
  (void)mask, (void)element, (void)chunk, (void)query, (void)end, (void)key, (void)keys;
#endif
}

// What a mask does to a score.
enum class Masking { kNone, kAdds, kReplaces };

// `keys` rows of one vector of scores: mask, bounds, maxima. `key`: the first row's index in the block.
template <Masking kMasking, bool kIsBounded>
ONNXFUSE_INLINE void AdjustRows(const Vec (&mask)[kLanes], Vec mask_value, const Bounds& bounds, int key, int keys,
                                float* scores, Vec& largest) {
  for (int j = 0; j < keys; ++j) {
    Vec s = Load(scores + j * kChunk);
    if constexpr (kMasking == Masking::kAdds) s = s + mask[j];
    if constexpr (kMasking == Masking::kReplaces) s = Select(mask[j] != Zero(), s, mask_value);
    if constexpr (kIsBounded) {
      const Vec index = Set(static_cast<float>(key + j));
      s = Select((bounds.first <= index) & (index <= bounds.last), s, Set(-kInfinity));
    }
    if constexpr (kMasking != Masking::kNone || kIsBounded) Store(scores + j * kChunk, s);
    largest = Max(largest, s);
  }
}

inline void CapScores(float softcap, int vecs, int keys, float* block) {
  const Vec cap = Set(softcap);
  for (int j = 0; j < keys; ++j) {
    for (int lane = 0; lane < vecs * kLanes; lane += kLanes) {
      float* at = block + j * kChunk + lane;
      Store(at, cap * Tanh(Load(at) / cap));
    }
  }
}

// Applies softcap, mask and bounds to scores of keys [key, key + keys) and finds the largest score of each query.
// M is the mask's element type; any when there is no mask.
template <typename M, typename T>
void AdjustScores(const AttentionArgs<T>& a, const Chunk& chunk, int64_t key, int keys, float* block, float* most) {
  const M* mask = static_cast<const M*>(a.mask);
  const bool is_bounded = key < chunk.by_all.first || key + keys - 1 > chunk.by_all.last;
  if (a.softcap > 0) CapScores(a.softcap, chunk.vecs, keys, block);
  for (int vec = 0; vec < chunk.vecs; ++vec) {
    const Bounds bounds = is_bounded ? BoundsOf(chunk, vec, key) : Bounds{};
    Vec largest = Set(-kInfinity);
    for (int from = 0; from < keys; from += kLanes) {
      const int count = static_cast<int>(Least(kLanes, keys - from));
      Vec value[kLanes];
      Masking masking = Masking::kNone;
      if (a.mask_kind == AttentionMask::kBool) {
        if (!ReadMask(mask, a.mask_column, chunk, vec, key + from, count, value)) {
          for (int j = 0; j < count; ++j) value[j] = Zero();
        }
        masking = Masking::kReplaces;
      } else if (mask != nullptr && ReadMask(mask, a.mask_column, chunk, vec, key + from, count, value)) {
        masking = Masking::kAdds;
      }
      auto adjust = [&]<Masking kMasking>() {
        float* scores = block + from * kChunk + vec * kLanes;
        if (is_bounded) {
          AdjustRows<kMasking, true>(value, Set(a.mask_value), bounds, from, count, scores, largest);
        } else {
          AdjustRows<kMasking, false>(value, Set(a.mask_value), bounds, from, count, scores, largest);
        }
      };
      if (masking == Masking::kNone) adjust.template operator()<Masking::kNone>();
      if (masking == Masking::kAdds) adjust.template operator()<Masking::kAdds>();
      if (masking == Masking::kReplaces) adjust.template operator()<Masking::kReplaces>();
    }
    Store(most + vec * kLanes, largest);
  }
}

// Turns scores into probabilities relative to the largest score so far, and updates the running sums. block_most: the
// largest score of each query in this block. to_log2: what a score is multiplied with to be a power of 2.
inline void Exponentiate(int vecs, int keys, float* block, const float* block_most, float to_log2, Running& running) {
  const Vec factor = Set(to_log2);
  for (int lane = 0; lane < vecs * kLanes; lane += kLanes) {
    const Vec before = Load(running.most + lane);
    const Vec most = Max(before, Load(block_most + lane));
    // Where every score is -inf so far, -inf - (-inf) would be NaN: 0 in its place makes all probabilities 0.
    const Vec shift = Select(most == Set(-kInfinity), Zero(), most);
    const Vec keep = ExpTwo((before - shift) * factor);
    Vec total = Zero();
    for (int j = 0; j < keys; ++j) {
      float* at = block + j * kChunk + lane;
      const Vec p = ExpTwo((Load(at) - shift) * factor);
      total = total + p;
      Store(at, p);
    }
    Store(running.total + lane, Fma(Load(running.total + lane), keep, total));
    Store(running.most + lane, most);
    Store(running.keep + lane, keep);
  }
}

// The weights of a row, relative to its largest score, with that of its head's sink. The largest score times `to_log2` is
// in units of log2.
template <typename T>
ONNXFUSE_INLINE float WithSink(const AttentionArgs<T>& a, int64_t head, float most, float to_log2, float total) {
  return a.sink == nullptr ? total : total + std::exp2(ToFloat(a.sink[head]) * kLog2E - most * to_log2);
}

// y = sums / total. No key seen: the softmax of nothing but -inf, NaN, or 0 where that is asked for or a sink takes all.
template <typename T>
ONNXFUSE_INLINE void FinishRow(const AttentionArgs<T>& a, const float* sums, bool is_started, float total, T* y) {
  const int64_t size = a.value_size;
  if (is_started && total > 0) {
    const Vec factor = Set(1.0f / total);
    ForEachVec(size, [&](int64_t i, int lanes) { StoreN(y + i, Load(sums + i) * factor, lanes); });
  } else {
    const Vec value = Set(a.zero_masked_rows || total > 0 ? 0.0f : kNan);
    ForEachVec(size, [&](int64_t i, int lanes) { StoreN(y + i, value, lanes); });
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
