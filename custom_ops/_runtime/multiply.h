// The register-blocked product that matrix products are made of. For kernel_cpu.cc files.
#pragma once

#include "custom_ops/_runtime/simd.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

// How a(row, k) lies in memory: rows one after the other, or columns (k) one after the other.
enum class Order { kRows, kColumns };

// sum[r][v] += sum_k a(r, k) * b[k * b_stride + v * kLanes ...], r < kRows, v < kVecs. Each element of a is loaded once
// and multiplied with kVecs vectors of b; kRows * kVecs sums stay in registers.
template <int kRows, int kVecs, Order kOrder, typename T>
ONNXFUSE_INLINE void MultiplyAdd(const float* a, int64_t a_stride, const T* b, int64_t b_stride, int64_t depth,
                                 Vec (&sum)[kRows][kVecs]) {
  for (int64_t k = 0; k < depth; ++k) {
    Vec right[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) right[v] = Load(b + v * kLanes);
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) {
      const Vec left = Set(kOrder == Order::kRows ? a[r * a_stride] : a[r]);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) sum[r][v] = Fma(left, right[v], sum[r][v]);
    }
    a += kOrder == Order::kRows ? 1 : a_stride;
    b += b_stride;
  }
}

// Rows of a product tile with kVecs vectors to a row, so that the sums fill the registers but for what the loop needs.
constexpr int TileRows(int vecs) {
  if (kVectorRegisters == 32) return vecs == 4 ? 6 : vecs == 3 ? 8 : 12;
  return vecs == 2 ? 6 : 12;
}
inline constexpr int kMostVecs = kVectorRegisters == 32 ? 4 : 2;

// Calls body.operator()<vecs>(first) over [0, count) in groups of at most kMostVecs, as even as can be.
template <typename Body>
ONNXFUSE_INLINE void ForEachVecGroup(int count, Body&& body) {
  for (int first = 0, groups = (count + kMostVecs - 1) / kMostVecs; groups > 0; --groups) {
    const int vecs = (count - first + groups - 1) / groups;
    if constexpr (kMostVecs == 4) {
      if (vecs == 4) body.template operator()<4>(first);
      if (vecs == 3) body.template operator()<3>(first);
    }
    if (vecs == 2) body.template operator()<2>(first);
    if (vecs == 1) body.template operator()<1>(first);
    first += vecs;
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
