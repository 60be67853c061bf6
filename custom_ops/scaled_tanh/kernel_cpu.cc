#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/elementwise.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/scaled_tanh/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

template <typename T>
void ScaledTanhCpu(const T* x, const T* bias, T* y, int64_t rows, int64_t cols, float alpha, float beta,
                   const ParallelFor& parallel) {
  MapWithBias(x, bias, y, rows, cols, parallel, [=](Vec v) { return Set(alpha) * Tanh(Set(beta) * v); });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(ScaledTanhCpu,
                           (const T* x, const T* bias, T* y, int64_t rows, int64_t cols, float alpha, float beta,
                            const ParallelFor& parallel),
                           (x, bias, y, rows, cols, alpha, beta, parallel))
ONNXFUSE_INSTANTIATE(ScaledTanhCpu, float)
ONNXFUSE_INSTANTIATE(ScaledTanhCpu, Half)
ONNXFUSE_INSTANTIATE(ScaledTanhCpu, BFloat16)
