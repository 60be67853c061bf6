#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/normalize.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/skip_layer_norm/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

template <typename T>
void SkipLayerNormCpu(const T* x, const T* skip, const T* scale, const T* bias, const T* x_bias, T* y, T* sum,
                      int64_t rows, int64_t cols, float epsilon, const ParallelFor& parallel) {
  NormalizeRows<true>(NormOperands<T>{x, skip, x_bias, scale, bias, y, sum}, rows, cols, epsilon, parallel);
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(SkipLayerNormCpu,
                           (const T* x, const T* skip, const T* scale, const T* bias, const T* x_bias, T* y, T* sum,
                            int64_t rows, int64_t cols, float epsilon, const ParallelFor& parallel),
                           (x, skip, scale, bias, x_bias, y, sum, rows, cols, epsilon, parallel))
ONNXFUSE_INSTANTIATE(SkipLayerNormCpu, float)
ONNXFUSE_INSTANTIATE(SkipLayerNormCpu, Half)
ONNXFUSE_INSTANTIATE(SkipLayerNormCpu, BFloat16)
