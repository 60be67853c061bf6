#include "custom_ops/_runtime/activation.h"
#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/elementwise.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/swiglu/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

template <typename T>
void SwigluCpu(const T* gate, const T* up, T* y, int64_t rows, int64_t cols, int64_t stride, float alpha,
               const ParallelFor& parallel) {
  MapGated(gate, up, y, rows, cols, stride, parallel, [=](Vec v) { return Silu(v, Set(alpha)); });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(SwigluCpu,
                           (const T* gate, const T* up, T* y, int64_t rows, int64_t cols, int64_t stride, float alpha,
                            const ParallelFor& parallel),
                           (gate, up, y, rows, cols, stride, alpha, parallel))
ONNXFUSE_INSTANTIATE(SwigluCpu, float)
ONNXFUSE_INSTANTIATE(SwigluCpu, Half)
ONNXFUSE_INSTANTIATE(SwigluCpu, BFloat16)
