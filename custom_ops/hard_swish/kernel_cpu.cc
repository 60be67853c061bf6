#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/elementwise.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/hard_swish/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

ONNXFUSE_INLINE Vec HardSwish(Vec v) {
  const Vec slope = Fma(v, Set(1.0f / 6.0f), Set(0.5f));
  return v * Max(Zero(), Min(Set(1.0f), slope));
}

template <typename T>
void HardSwishCpu(const T* x, const T* bias, T* y, int64_t rows, int64_t cols, const ParallelFor& parallel) {
  MapWithBias(x, bias, y, rows, cols, parallel, [](Vec v) { return HardSwish(v); });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(HardSwishCpu,
                           (const T* x, const T* bias, T* y, int64_t rows, int64_t cols, const ParallelFor& parallel),
                           (x, bias, y, rows, cols, parallel))
ONNXFUSE_INSTANTIATE(HardSwishCpu, float)
ONNXFUSE_INSTANTIATE(HardSwishCpu, Half)
ONNXFUSE_INSTANTIATE(HardSwishCpu, BFloat16)
