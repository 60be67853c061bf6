// GLU: y = f(gate) up with f sigmoid or relu, element by element. One read of each, one write of y.
//
// Raw memory only: op.cc adapts this to ONNX Runtime; tests and benchmarks call it directly. Computed in float
// whatever T is (float, Half or BFloat16), and rounded once.
#pragma once

#include "custom_ops/_runtime/parallel.h"

namespace onnxfuse {

// y: [rows, cols], row-major. gate and up: rows of cols elements, their starts `stride` elements apart (2 cols where
// both are halves of one packed matrix). y may be gate, or up, where stride is cols.
template <typename T>
void GluCpu(const T* gate, const T* up, T* y, int64_t rows, int64_t cols, int64_t stride, bool is_relu,
            const ParallelFor& parallel);

}  // namespace onnxfuse
