// GroupNorm: y = (x - mean) / sqrt(variance + epsilon) * scale + bias, group by group of channels, then SiLU if wanted.
//
// Raw memory only: op.cc adapts this to ONNX Runtime; tests and benchmarks call it directly. Computed in float
// whatever T is (float, Half or BFloat16), and rounded once.
#pragma once

#include "custom_ops/_runtime/parallel.h"

namespace onnxfuse {

struct GroupNormShape {
  int64_t batch;
  int64_t groups;
  int64_t channels;  // in a group
  int64_t places;    // in a channel
};

// x and y: [batch, groups, channels, places], row-major; y may be x. scale, bias: [groups * channels], or null for
// none.
template <typename T>
void GroupNormCpu(const T* x, const T* scale, const T* bias, T* y, const GroupNormShape& shape, float epsilon,
                  bool is_silu, const ParallelFor& parallel);

}  // namespace onnxfuse
