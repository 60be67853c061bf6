// Reductions over a row. For kernel_cpu.cc files.
//
// Four chains of each, so that none waits for the result of the one before it, and for the accuracy of sums.
#pragma once

#include "custom_ops/_runtime/simd.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

// kSums sums over a row: add(i, lanes, sums) adds elements from i on, of which those past the end of the row must come as
// 0.
template <int kSums, typename Add>
ONNXFUSE_INLINE void RowSums(int64_t cols, float (&total)[kSums], Add&& add) {
  Vec a[kSums], b[kSums], c[kSums], d[kSums];
  for (int k = 0; k < kSums; ++k) a[k] = b[k] = c[k] = d[k] = Zero();
  int64_t i = 0;
  for (; i + 4 * kLanes <= cols; i += 4 * kLanes) {
    add(i, kLanes, a);
    add(i + kLanes, kLanes, b);
    add(i + 2 * kLanes, kLanes, c);
    add(i + 3 * kLanes, kLanes, d);
  }
  ForEachVec(cols - i, [&](int64_t j, int lanes) { add(i + j, lanes, a); });
  for (int k = 0; k < kSums; ++k) total[k] = ReduceSum((a[k] + b[k]) + (c[k] + d[k]));
}

// The sum of value(i, lanes) over a row.
template <typename Value>
ONNXFUSE_INLINE float RowSum(int64_t cols, Value&& value) {
  float total[1];
  RowSums(cols, total, [&](int64_t i, int lanes, Vec(&sum)[1]) { sum[0] = sum[0] + value(i, lanes); });
  return total[0];
}

// The largest value(i, lanes) of a row; lanes past its end must come as -inf. May lose a NaN.
template <typename Value>
ONNXFUSE_INLINE float RowMax(int64_t cols, Value&& value) {
  Vec a = Set(-__builtin_inff()), b = a, c = a, d = a;
  int64_t i = 0;
  for (; i + 4 * kLanes <= cols; i += 4 * kLanes) {
    a = Max(a, value(i, kLanes));
    b = Max(b, value(i + kLanes, kLanes));
    c = Max(c, value(i + 2 * kLanes, kLanes));
    d = Max(d, value(i + 3 * kLanes, kLanes));
  }
  ForEachVec(cols - i, [&](int64_t j, int lanes) { a = Max(a, value(i + j, lanes)); });
  return ReduceMax(Max(Max(a, b), Max(c, d)));
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
