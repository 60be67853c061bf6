// Normalising the rows of a matrix, with or without a residual: what LayerNorm, RMSNorm and their skip forms share.
// For kernel_cpu.cc files.
//
// A row is read two or three times, out of the cache after the first, and written once. Statistics are float. The
// variance is the mean square of differences from the mean, never a difference of two squares, and what the rounded
// mean leaves over is taken off those differences: rows far from 0 keep their digits.
#pragma once

#include "custom_ops/_runtime/parallel.h"
#include "custom_ops/_runtime/simd.h"

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

// The sum of value(i, lanes) over a row; lanes past its end must come as 0. Four chains, for speed and for accuracy.
template <typename Value>
ONNXFUSE_INLINE float RowSum(int64_t cols, Value&& value) {
  Vec a = Zero(), b = Zero(), c = Zero(), d = Zero();
  int64_t i = 0;
  for (; i + 4 * kLanes <= cols; i += 4 * kLanes) {
    a = a + value(i, kLanes);
    b = b + value(i + kLanes, kLanes);
    c = c + value(i + 2 * kLanes, kLanes);
    d = d + value(i + 3 * kLanes, kLanes);
  }
  ForEachVec(cols - i, [&](int64_t j, int lanes) { a = a + value(i + j, lanes); });
  return ReduceSum((a + b) + (c + d));
}

// A row normalised is (v - mean) * factor + shift.
struct RowStatistics {
  Vec mean;
  Vec factor;
  Vec shift;
};

template <bool kTakesMean, typename Value>
ONNXFUSE_INLINE RowStatistics Statistics(int64_t cols, float epsilon, Value&& value) {
  const float count = static_cast<float>(cols);
  if (!kTakesMean) {
    const float squares = RowSum(cols, [&](int64_t i, int lanes) { return value(i, lanes) * value(i, lanes); });
    return {Zero(), Rsqrt(Set(squares / count + epsilon)), Zero()};
  }
  const Vec mean = Set(RowSum(cols, value) / count);
  Vec rest = Zero();
  const float squares = RowSum(cols, [&](int64_t i, int lanes) {
    Vec difference = value(i, lanes) - mean;
    if (lanes < kLanes) difference = Select(FirstMask(lanes), difference, Zero());
    rest = rest + difference;
    return difference * difference;
  });
  const float correction = ReduceSum(rest) / count;
  const float variance = squares / count - correction * correction;
  const Vec factor = Rsqrt(Set((variance < 0.0f ? 0.0f : variance) + epsilon));
  return {mean, factor, Set(-correction) * factor};
}

template <bool kTakesMean, typename T>
ONNXFUSE_INLINE void NormalizeRow(const NormOperands<T>& t, int64_t row, int64_t cols, float epsilon) {
  const int64_t at = row * cols;
  auto value = [&](int64_t i, int lanes) {
    Vec v = LoadN(t.x + at + i, lanes);
    if (t.skip != nullptr) v = v + LoadN(t.skip + at + i, lanes);
    if (t.x_bias != nullptr) v = v + LoadN(t.x_bias + i, lanes);
    return v;
  };
  const RowStatistics statistics = Statistics<kTakesMean>(cols, epsilon, value);
  ForEachVec(cols, [&](int64_t i, int lanes) {
    const Vec v = value(i, lanes);
    Vec y = Fma(v - statistics.mean, statistics.factor, statistics.shift);
    if (t.scale != nullptr) y = y * LoadN(t.scale + i, lanes);
    if (t.bias != nullptr) y = y + LoadN(t.bias + i, lanes);
    if (t.sum != nullptr) StoreN(t.sum + at + i, v, lanes);
    StoreN(t.y + at + i, y, lanes);
  });
}

// kTakesMean: LayerNorm, else RMSNorm.
template <bool kTakesMean, typename T>
ONNXFUSE_INLINE void NormalizeRows(const NormOperands<T>& operands, int64_t rows, int64_t cols, float epsilon,
                                   const ParallelFor& parallel) {
  constexpr double kNanosecondsPerElement = 0.5;
  parallel(rows, static_cast<double>(cols) * kNanosecondsPerElement, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) NormalizeRow<kTakesMean>(operands, row, cols, epsilon);
  });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
