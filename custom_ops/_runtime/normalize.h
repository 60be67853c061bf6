// Normalising the rows of a matrix, with or without a residual: what LayerNorm, RMSNorm and their skip forms share.
// For kernel_cpu.cc files.
//
// A row is read two or three times, after the first out of the cache, and written once. Statistics are float. The
// variance is the mean square of differences from the mean, never a difference of two squares, and what the rounded
// mean leaves over is taken off those differences: rows far from 0 keep their digits.
#pragma once

#include "custom_ops/_runtime/parallel.h"
#include "custom_ops/_runtime/rows.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

// Row-major, [rows, cols] or [cols]; null where not given. y and sum may each be x or skip, but not the same.
template <typename T>
struct NormOperands {
  const T* x;       // [rows, cols]
  const T* skip;    // [rows, cols]
  const T* x_bias;  // [cols]
  const T* scale;   // [cols]
  const T* bias;    // [cols]
  T* y;             // [rows, cols]
  T* sum;           // [rows, cols]
};

// A row normalised: v - mean is exact where they are alike, and so is what is left of it, so equal elements become 0.
struct RowStatistics {
  Vec mean;
  Vec rest;
  Vec factor;
  ONNXFUSE_INLINE Vec Normal(Vec v) const { return ((v - mean) - rest) * factor; }
};

// The mean of some elements, what its rounding leaves over, and the sum of squares of their differences from both.
struct Moments {
  float mean;
  float rest;
  float squares;
};

// Whether squares about a rounded mean are largely its rounding: of elements that differ by little more than that.
inline constexpr float kTooMuch = 0x1p-7f;
ONNXFUSE_INLINE bool TakesDigits(float too_much, float squares) { return too_much > squares * kTooMuch; }
ONNXFUSE_INLINE Mask TakesDigits(Vec too_much, Vec squares) { return too_much > squares * Set(kTooMuch); }

// Of elements [begin, begin + count); first(i, lanes) is called once for each, then again(i, lanes). Where the rounding of the
// mean takes digits of the squares, they are summed once more about a better one.
template <typename First, typename Again>
ONNXFUSE_INLINE Moments MomentsOf(int64_t begin, int64_t count, First&& first, Again&& again) {
  const float size = static_cast<float>(count);
  float mean = RowSum(count, [&](int64_t i, int lanes) { return first(begin + i, lanes); }) / size;
  for (bool is_first = true;; is_first = false) {
    const Vec about = Set(mean);
    float sums[2];  // of differences, and of their squares
    RowSums(count, sums, [&](int64_t i, int lanes, Vec(&sum)[2]) {
      Vec difference = again(begin + i, lanes) - about;
      if (lanes < kLanes) difference = Select(FirstMask(lanes), difference, Zero());
      sum[0] = sum[0] + difference;
      sum[1] = Fma(difference, difference, sum[1]);
    });
    const float rest = sums[0] / size, too_much = rest * rest * size, squares = sums[1] - too_much;
    if (!is_first || !TakesDigits(too_much, sums[1])) return {mean, rest, squares < 0.0f ? 0.0f : squares};
    mean = mean + rest;
  }
}

inline constexpr int64_t kPart = 4096;  // elements that are still in L1 when they are read again

// Of a row in parts, so that a long one is read once from further away: the moments of two sets give those of both.
template <typename First, typename Again>
ONNXFUSE_INLINE Moments MomentsOfRow(int64_t cols, First&& first, Again&& again) {
  const Moments start = MomentsOf(0, cols < kPart ? cols : kPart, first, again);
  if (cols <= kPart) return start;
  double mean = static_cast<double>(start.mean) + static_cast<double>(start.rest), squares = start.squares;
  for (int64_t begin = kPart; begin < cols; begin += kPart) {
    const int64_t count = cols - begin < kPart ? cols - begin : kPart;
    const Moments part = MomentsOf(begin, count, first, again);
    const double share = static_cast<double>(count) / static_cast<double>(begin + count);
    const double apart = static_cast<double>(part.mean) + static_cast<double>(part.rest) - mean;
    mean += apart * share;
    squares += part.squares + apart * apart * share * static_cast<double>(begin);
  }
  const float rounded = static_cast<float>(mean);
  return {rounded, static_cast<float>(mean - static_cast<double>(rounded)), static_cast<float>(squares)};
}

// first(i, lanes) gives each element when it is first read, again(i, lanes) later.
template <bool kTakesMean, typename First, typename Again>
ONNXFUSE_INLINE RowStatistics Statistics(int64_t cols, float epsilon, First&& first, Again&& again) {
  const float inverse = 1.0f / static_cast<float>(cols);
  if (!kTakesMean) {
    const float squares = RowSum(cols, [&](int64_t i, int lanes) {
      const Vec v = first(i, lanes);
      return v * v;
    });
    return {Zero(), Zero(), Set(Rsqrt(squares * inverse + epsilon))};
  }
  const Moments moments = MomentsOfRow(cols, first, again);
  return {Set(moments.mean), Set(moments.rest), Set(Rsqrt(moments.squares * inverse + epsilon))};
}

// Where reading an element again is reading it as before.
template <bool kTakesMean, typename Value>
ONNXFUSE_INLINE RowStatistics Statistics(int64_t cols, float epsilon, Value&& value) {
  return Statistics<kTakesMean>(cols, epsilon, value, value);
}

// x + skip + x_bias of one row, of what there is of it.
template <bool kIsFirst, typename T>
ONNXFUSE_INLINE Vec Summed(const NormOperands<T>& t, int64_t at, int64_t i, int lanes) {
  auto load = [&](const T* p) { return kIsFirst ? LoadAhead(p + at + i, lanes) : LoadN(p + at + i, lanes); };
  Vec v = load(t.x);
  if (t.skip != nullptr) v = v + load(t.skip);
  if (t.x_bias != nullptr) v = v + LoadN(t.x_bias + i, lanes);
  return v;
}

// What one row is scaled and shifted by, and where it goes; y and sum are those of the row.
template <typename T>
struct RowOutput {
  const T* scale;
  const T* bias;
  T* y;
  T* sum;
};

template <bool kStoresSum, typename T, typename Value>
ONNXFUSE_INLINE void WriteRow(const RowOutput<T>& out, int64_t cols, const RowStatistics& row, Value&& value) {
  ForEachVec(cols, [&](int64_t i, int lanes) {
    const Vec v = value(i, lanes);
    Vec y = row.Normal(v);
    if (out.scale != nullptr) y = y * LoadN(out.scale + i, lanes);
    if (out.bias != nullptr) y = y + LoadN(out.bias + i, lanes);
    if (kStoresSum && out.sum != nullptr) StoreAhead(out.sum + i, v, lanes);
    StoreAhead(out.y + i, y, lanes);
  });
}

// A row whose elements first(i, lanes) gives when they are first read and again(i, lanes) later. is_sum: of two and more.
template <bool kTakesMean, typename T, typename First, typename Again>
ONNXFUSE_INLINE void NormalizeRow(const RowOutput<T>& out, int64_t cols, float epsilon, bool is_sum, First&& first,
                                  Again&& again) {
  if constexpr (sizeof(T) == sizeof(float)) {
    // A sum is made once and read again from an output, which keeps it as it is.
    if (is_sum) {
      T* kept = out.sum != nullptr ? out.sum : out.y;
      auto make = [&](int64_t i, int lanes) {
        const Vec v = first(i, lanes);
        StoreAhead(kept + i, v, lanes);
        return v;
      };
      auto made = [&](int64_t i, int lanes) { return LoadN(kept + i, lanes); };
      return WriteRow<false>(out, cols, Statistics<kTakesMean>(cols, epsilon, make, made), made);
    }
  }
  WriteRow<true>(out, cols, Statistics<kTakesMean>(cols, epsilon, first, again), again);
}

// kTakesMean: LayerNorm, else RMSNorm.
template <bool kTakesMean, typename T>
ONNXFUSE_INLINE void NormalizeRows(const NormOperands<T>& operands, int64_t rows, int64_t cols, float epsilon,
                                   const ParallelFor& parallel) {
  constexpr double kNanosecondsPerElement = 0.5;
  parallel(rows, static_cast<double>(cols) * kNanosecondsPerElement, [&](int64_t begin, int64_t end) {
    const NormOperands<T> own = operands;  // where what is stored cannot change it, so that it stays in registers
    for (int64_t at = begin * cols; at < end * cols; at += cols) {
      NormalizeRow<kTakesMean>(
          RowOutput<T>{own.scale, own.bias, own.y + at, own.sum == nullptr ? nullptr : own.sum + at}, cols, epsilon,
          own.skip != nullptr, [&](int64_t i, int lanes) { return Summed<true>(own, at, i, lanes); },
          [&](int64_t i, int lanes) { return Summed<false>(own, at, i, lanes); });
    }
  });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
