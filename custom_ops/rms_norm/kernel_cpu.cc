#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/normalize.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/rms_norm/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

template <typename T>
void RmsNormCpu(const T* x, const T* scale, T* y, int64_t rows, int64_t cols, float epsilon,
                const ParallelFor& parallel) {
  NormalizeRows<false>(NormOperands<T>{x, nullptr, nullptr, scale, nullptr, y, nullptr}, rows, cols, epsilon, parallel);
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(RmsNormCpu,
                           (const T* x, const T* scale, T* y, int64_t rows, int64_t cols, float epsilon,
                            const ParallelFor& parallel),
                           (x, scale, y, rows, cols, epsilon, parallel))
ONNXFUSE_INSTANTIATE(RmsNormCpu, float)
ONNXFUSE_INSTANTIATE(RmsNormCpu, Half)
ONNXFUSE_INSTANTIATE(RmsNormCpu, BFloat16)
