// MaskedSoftmax: y = softmax(scale x, masked), row by row. One read of x and of the mask, one write of y.
//
//   s = scale x;  s = mask ? s : mask_value for a boolean mask, s + mask for another;  y = exp(s - max s) / sum
//
// Raw memory only: op.cc adapts this to ONNX Runtime; tests and benchmarks call it directly. Computed in float
// whatever T is (float, Half or BFloat16), and rounded once. NaN and inf go where IEEE takes them: a NaN or +inf makes
// its row NaN, so does a row of -inf alone, unless zero_masked_rows makes it 0.
#pragma once

#include "custom_ops/_runtime/parallel.h"

namespace onnxfuse {

enum class SoftmaxMask { kNone, kBool, kFloat, kHalf, kBFloat16 };

inline constexpr int kSoftmaxAxes = 8;

struct MaskedSoftmaxArgs {
  int64_t rows = 0;
  int64_t cols = 0;
  float scale = 1.0f;
  const void* mask = nullptr;
  SoftmaxMask mask_kind = SoftmaxMask::kNone;
  int axes = 0;                      // those of the rows of x; neighbours that the mask walks alike count as one
  int64_t sizes[kSoftmaxAxes];       // of x
  int64_t mask_steps[kSoftmaxAxes];  // mask elements from one index of an axis to the next; 0 where it is broadcast
  int64_t mask_column = 0;           // from one column to the next: 1, or 0
  float mask_value = 0.0f;
  bool zero_masked_rows = false;
};

// x and y: [rows, cols], row-major; y may be x.
template <typename T>
void MaskedSoftmaxCpu(const T* x, T* y, const MaskedSoftmaxArgs& args, const ParallelFor& parallel);

}  // namespace onnxfuse
