// Activations of one Vec, shared by the kernels of several ops. For kernel_cpu.cc files, after simd.h.
#pragma once

#include "custom_ops/_runtime/simd.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

// x / 2 (1 + erf(x / sqrt 2)).
ONNXFUSE_INLINE Vec GeluErf(Vec x) { return Set(0.5f) * x * (Set(1.0f) + Erf(x * Set(0.70710678118654752f))); }

// x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
ONNXFUSE_INLINE Vec GeluTanh(Vec x) {
  const Vec cube = x * x * x;
  return Set(0.5f) * x * (Set(1.0f) + Tanh(Set(0.79788456080286536f) * Fma(Set(0.044715f), cube, x)));
}

// x sigmoid(alpha x).
ONNXFUSE_INLINE Vec Silu(Vec x, Vec alpha) { return x * Sigmoid(alpha * x); }

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
