#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/normalize.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/skip_rms_norm/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

template <typename T>
void SkipRmsNormCpu(const T* x, const T* skip, const T* scale, const T* x_bias, T* y, T* sum, int64_t rows,
                    int64_t cols, float epsilon, const ParallelFor& parallel) {
  NormalizeRows<false>(NormOperands<T>{x, skip, x_bias, scale, nullptr, y, sum}, rows, cols, epsilon, parallel);
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(SkipRmsNormCpu,
                           (const T* x, const T* skip, const T* scale, const T* x_bias, T* y, T* sum, int64_t rows,
                            int64_t cols, float epsilon, const ParallelFor& parallel),
                           (x, skip, scale, x_bias, y, sum, rows, cols, epsilon, parallel))
ONNXFUSE_INSTANTIATE(SkipRmsNormCpu, float)
ONNXFUSE_INSTANTIATE(SkipRmsNormCpu, Half)
ONNXFUSE_INSTANTIATE(SkipRmsNormCpu, BFloat16)
