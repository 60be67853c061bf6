// LayerNorm: y = (x - mean) / sqrt(variance + epsilon) * scale + bias, row by row.
//
// Raw memory only: op.cc adapts this to ONNX Runtime; tests and benchmarks call it directly. Computed in float
// whatever T is (float, Half or BFloat16), and rounded once.
#pragma once

#include "custom_ops/_runtime/parallel.h"

namespace onnxfuse {

// x and y: [rows, cols], row-major; y may be x. scale, bias: [cols], or null for none.
template <typename T>
void LayerNormCpu(const T* x, const T* scale, const T* bias, T* y, int64_t rows, int64_t cols, float epsilon,
                  const ParallelFor& parallel);

}  // namespace onnxfuse
