// ChannelGate: y = x f(gate), one gate for each row. One read of x, one write of y.
//
// Raw memory only: op.cc adapts this to ONNX Runtime; tests and benchmarks call it directly. Computed in float
// whatever T is (float, Half or BFloat16), and rounded once.
#pragma once

#include "custom_ops/_runtime/parallel.h"

namespace onnxfuse {

// sigmoid, or min(max(alpha v + beta, 0), 1).
struct GateFunction {
  bool is_hard;
  float alpha;
  float beta;
};

// x and y: [rows, cols], row-major; y may be x. gate: [rows].
template <typename T>
void ChannelGateCpu(const T* x, const T* gate, T* y, int64_t rows, int64_t cols, GateFunction f,
                    const ParallelFor& parallel);

}  // namespace onnxfuse
