// L2Norm: y = x / max(|x|, epsilon) * scale, with |x| over the channels, place by place.
//
// Raw memory only: op.cc adapts this to ONNX Runtime; tests and benchmarks call it directly. Computed in float
// whatever T is (float, Half or BFloat16), and rounded once.
#pragma once

#include "custom_ops/_runtime/parallel.h"

namespace onnxfuse {

// x and y: [matrices, channels, places], row-major; y may be x. scale: [channels], or null for none.
template <typename T>
void L2NormCpu(const T* x, const T* scale, T* y, int64_t matrices, int64_t channels, int64_t places, float epsilon,
               const ParallelFor& parallel);

}  // namespace onnxfuse
