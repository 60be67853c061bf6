// SkipLayerNorm: sum = x + skip + x_bias; y is LayerNorm of the sum, which is never rounded on the way. Row by row.
//
// Raw memory only: op.cc adapts this to ONNX Runtime; tests and benchmarks call it directly. Computed in float
// whatever T is (float, Half or BFloat16), and rounded once.
#pragma once

#include "custom_ops/_runtime/parallel.h"

namespace onnxfuse {

// x, skip, y and sum: [rows, cols], row-major; y and sum may each be x or skip, but not the same. sum may be null.
// scale, bias and x_bias: [cols], or null for none.
template <typename T>
void SkipLayerNormCpu(const T* x, const T* skip, const T* scale, const T* bias, const T* x_bias, T* y, T* sum,
                      int64_t rows, int64_t cols, float epsilon, const ParallelFor& parallel);

}  // namespace onnxfuse
