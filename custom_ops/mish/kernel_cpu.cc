#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/elementwise.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/mish/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

// With e = exp(v) and n = e (e + 2): tanh(log(1 + e)) = n / (n + 2). Nothing cancels for small e; from 20 on the
// quotient is 1 in float, so e need not grow further, and n + 2 is in the range of Inverse.
ONNXFUSE_INLINE Vec Mish(Vec v) {
  const Vec e = Exp(Min(Set(20.0f), v));
  const Vec n = e * (e + Set(2.0f));
  return v * (n * Inverse(n + Set(2.0f)));
}

template <typename T>
void MishCpu(const T* x, const T* bias, T* y, int64_t rows, int64_t cols, const ParallelFor& parallel) {
  MapWithBias(x, bias, y, rows, cols, parallel, [](Vec v) { return Mish(v); });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(MishCpu,
                           (const T* x, const T* bias, T* y, int64_t rows, int64_t cols, const ParallelFor& parallel),
                           (x, bias, y, rows, cols, parallel))
ONNXFUSE_INSTANTIATE(MishCpu, float)
ONNXFUSE_INSTANTIATE(MishCpu, Half)
ONNXFUSE_INSTANTIATE(MishCpu, BFloat16)
