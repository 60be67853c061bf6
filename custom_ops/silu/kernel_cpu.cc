#include "custom_ops/_runtime/activation.h"
#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/elementwise.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/silu/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

template <typename T>
void SiluCpu(const T* x, const T* bias, T* y, int64_t rows, int64_t cols, float alpha, const ParallelFor& parallel) {
  MapWithBias(x, bias, y, rows, cols, parallel, [=](Vec v) { return Silu(v, Set(alpha)); });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(SiluCpu,
                           (const T* x, const T* bias, T* y, int64_t rows, int64_t cols, float alpha,
                            const ParallelFor& parallel),
                           (x, bias, y, rows, cols, alpha, parallel))
ONNXFUSE_INSTANTIATE(SiluCpu, float)
ONNXFUSE_INSTANTIATE(SiluCpu, Half)
ONNXFUSE_INSTANTIATE(SiluCpu, BFloat16)
