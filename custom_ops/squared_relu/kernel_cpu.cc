#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/elementwise.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/squared_relu/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

ONNXFUSE_INLINE Vec SquaredRelu(Vec v) {
  const Vec positive = Max(Zero(), v);
  return positive * positive;
}

template <typename T>
void SquaredReluCpu(const T* x, const T* bias, T* y, int64_t rows, int64_t cols, const ParallelFor& parallel) {
  MapWithBias(x, bias, y, rows, cols, parallel, [](Vec v) { return SquaredRelu(v); });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(SquaredReluCpu,
                           (const T* x, const T* bias, T* y, int64_t rows, int64_t cols, const ParallelFor& parallel),
                           (x, bias, y, rows, cols, parallel))
ONNXFUSE_INSTANTIATE(SquaredReluCpu, float)
ONNXFUSE_INSTANTIATE(SquaredReluCpu, Half)
ONNXFUSE_INSTANTIATE(SquaredReluCpu, BFloat16)
