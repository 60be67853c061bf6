// ScaledTanh: y = alpha tanh(beta v) with v = x + bias, element by element. One read of x, one write of y.
//
// Raw memory only: op.cc adapts this to ONNX Runtime; tests and benchmarks call it directly. Computed in float
// whatever T is (float, Half or BFloat16), and rounded once.
#pragma once

#include "custom_ops/_runtime/parallel.h"

namespace onnxfuse {

// x and y: [rows, cols], row-major; y may be x. bias: [cols], or null for none.
template <typename T>
void ScaledTanhCpu(const T* x, const T* bias, T* y, int64_t rows, int64_t cols, float alpha, float beta,
                   const ParallelFor& parallel);

}  // namespace onnxfuse
