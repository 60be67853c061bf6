// Loops of the activations, with a bias or a gate. For kernel_cpu.cc files.
#pragma once

#include "custom_ops/_runtime/parallel.h"
#include "custom_ops/_runtime/simd.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

inline constexpr double kNanosecondsPerActivation = 1.0;

// Splits elements begin to end of a row-major matrix at row ends: body(row, column, count) for each part.
template <typename Body>
ONNXFUSE_INLINE void ForEachRowPart(int64_t begin, int64_t end, int64_t cols, Body&& body) {
  int64_t row = begin / cols, column = begin % cols;
  while (begin < end) {
    const int64_t count = cols - column < end - begin ? cols - column : end - begin;
    body(row, column, count);
    begin += count;
    ++row;
    column = 0;
  }
}

// y = f(x + bias) over [rows, cols]; bias [cols] or null; y may be x.
template <typename T, typename F>
ONNXFUSE_INLINE void MapWithBias(const T* x, const T* bias, T* y, int64_t rows, int64_t cols,
                                 const ParallelFor& parallel, F&& f) {
  if (bias == nullptr) cols = rows * cols, rows = 1;  // one long row
  parallel(rows * cols, kNanosecondsPerActivation, [&](int64_t begin, int64_t end) {
    ForEachRowPart(begin, end, cols, [&](int64_t row, int64_t column, int64_t count) {
      const T *from = x + row * cols + column, *added = bias == nullptr ? nullptr : bias + column;
      T* to = y + row * cols + column;
      ForEachVec(count, [&](int64_t i, int lanes) {
        Vec v = LoadAhead(from + i, lanes);
        if (added != nullptr) v = v + LoadN(added + i, lanes);
        StoreAhead(to + i, f(v), lanes);
      });
    });
  });
}

// y = f(gate) * up over [rows, cols]; rows of gate and up start `stride` elements apart; y may be either if stride is
// cols.
template <typename T, typename F>
ONNXFUSE_INLINE void MapGated(const T* gate, const T* up, T* y, int64_t rows, int64_t cols, int64_t stride,
                              const ParallelFor& parallel, F&& f) {
  if (stride == cols) stride = cols = rows * cols, rows = 1;  // one long row
  parallel(rows * cols, kNanosecondsPerActivation, [&](int64_t begin, int64_t end) {
    ForEachRowPart(begin, end, cols, [&](int64_t row, int64_t column, int64_t count) {
      const T *g = gate + row * stride + column, *u = up + row * stride + column;
      T* to = y + row * cols + column;
      ForEachVec(count, [&](int64_t i, int lanes) {
        StoreAhead(to + i, f(LoadAhead(g + i, lanes)) * LoadAhead(u + i, lanes), lanes);
      });
    });
  });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
