// ChannelLayerNorm: y = (x - mean) / sqrt(variance + epsilon) * scale + bias over the channels, place by place.
//
// Raw memory only: op.cc adapts this to ONNX Runtime; tests and benchmarks call it directly. Computed in float
// whatever T is (float, Half or BFloat16), and rounded once.
#pragma once

#include "custom_ops/_runtime/parallel.h"

namespace onnxfuse {

struct ColumnShape {
  int64_t matrices;
  int64_t channels;
  int64_t places;
};

// x and y: [matrices, channels, places], row-major; y may be x. scale, bias: [channels], or null for none.
template <typename T>
void ChannelLayerNormCpu(const T* x, const T* scale, const T* bias, T* y, const ColumnShape& shape, float epsilon,
                         const ParallelFor& parallel);

}  // namespace onnxfuse
