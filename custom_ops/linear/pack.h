// Operands of a product laid out as its inner loop reads them: floats, one step of the depth after the other.
#pragma once

#include "custom_ops/_runtime/multiply.h"
#include "custom_ops/linear/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

inline constexpr int kPanelVecs = 2;  // Vecs of columns to a tile
inline constexpr int kPanel = kPanelVecs * kLanes;
inline constexpr int kTileRows = TileRows(kPanelVecs);
inline constexpr int kRowStep = kTileRows / 6;  // by which tiles with fewer rows differ

ONNXFUSE_INLINE int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }
ONNXFUSE_INLINE int64_t Most(int64_t a, int64_t b) { return a > b ? a : b; }
ONNXFUSE_INLINE int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Rows [first, first + count) of a product.
template <typename T>
ONNXFUSE_INLINE LinearArgs<T> RowsOf(LinearArgs<T> a, int64_t first, int64_t count) {
  a.rows = count;
  a.x += first * a.depth;
  if (a.y != nullptr) a.y += first * a.cols;
  if (a.unrounded != nullptr) a.unrounded += first * a.cols;
  if (a.residual != nullptr) a.residual += first * a.cols;
  return a;
}

// packed[i * kWidth + r] = from[r * stride + i] for i < depth; 0 for rows r in [rows, kWidth).
template <int kWidth, typename T>
ONNXFUSE_INLINE void PackRows(const T* from, int64_t stride, int64_t rows, int64_t depth, T* packed) {
#pragma GCC unroll 4
  for (int first = 0; first < kWidth; first += kLanes) {
    const int width = kWidth - first < kLanes ? kWidth - first : kLanes;
    ForEachVec(depth, [&](int64_t i, int lanes) {
      Vec x[kLanes];
#pragma GCC unroll 16
      for (int r = 0; r < kLanes; ++r) {
        x[r] = r < width && first + r < rows ? LoadN(from + (first + r) * stride + i, lanes) : Zero();
      }
      Transpose(x);
      for (int c = 0; c < lanes; ++c) StoreN(packed + (i + c) * kWidth + first, x[c], width);
    });
  }
}

// packed[i * kPanel + c] = from[i * stride + c] for i < depth; 0 for columns c in [cols, kPanel).
template <typename T>
ONNXFUSE_INLINE void PackColumns(const T* from, int64_t stride, int64_t cols, int64_t depth, float* packed) {
  for (int64_t i = 0; i < depth; ++i, from += stride, packed += kPanel) {
#pragma GCC unroll 2
    for (int v = 0; v < kPanelVecs; ++v) {
      const int64_t left = cols - v * kLanes;
      Store(packed + v * kLanes, left >= kLanes ? Load(from + v * kLanes)
                                 : left > 0     ? LoadPartial(from + v * kLanes, static_cast<int>(left))
                                                : Zero());
    }
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
