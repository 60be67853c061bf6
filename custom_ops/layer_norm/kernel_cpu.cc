#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/normalize.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/layer_norm/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

template <typename T>
void LayerNormCpu(const T* x, const T* scale, const T* bias, T* y, int64_t rows, int64_t cols, float epsilon,
                  const ParallelFor& parallel) {
  NormalizeRows<true>(NormOperands<T>{x, nullptr, nullptr, scale, bias, y, nullptr}, rows, cols, epsilon, parallel);
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(LayerNormCpu,
                           (const T* x, const T* scale, const T* bias, T* y, int64_t rows, int64_t cols, float epsilon,
                            const ParallelFor& parallel),
                           (x, scale, bias, y, rows, cols, epsilon, parallel))
ONNXFUSE_INSTANTIATE(LayerNormCpu, float)
ONNXFUSE_INSTANTIATE(LayerNormCpu, Half)
ONNXFUSE_INSTANTIATE(LayerNormCpu, BFloat16)
