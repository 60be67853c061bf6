#include "custom_ops/_runtime/activation.h"
#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/elementwise.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/gelu/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

template <typename T>
void GeluCpu(const T* x, const T* bias, T* y, int64_t rows, int64_t cols, bool is_tanh, const ParallelFor& parallel) {
  if (is_tanh) {
    MapWithBias(x, bias, y, rows, cols, parallel, [](Vec v) { return GeluTanh(v); });
  } else {
    MapWithBias(x, bias, y, rows, cols, parallel, [](Vec v) { return GeluErf(v); });
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(GeluCpu,
                           (const T* x, const T* bias, T* y, int64_t rows, int64_t cols, bool is_tanh,
                            const ParallelFor& parallel),
                           (x, bias, y, rows, cols, is_tanh, parallel))
ONNXFUSE_INSTANTIATE(GeluCpu, float)
ONNXFUSE_INSTANTIATE(GeluCpu, Half)
ONNXFUSE_INSTANTIATE(GeluCpu, BFloat16)
