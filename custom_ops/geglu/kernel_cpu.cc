#include "custom_ops/_runtime/activation.h"
#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/elementwise.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/geglu/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

template <typename T>
void GegluCpu(const T* gate, const T* up, T* y, int64_t rows, int64_t cols, int64_t stride, bool is_tanh,
              const ParallelFor& parallel) {
  if (is_tanh) {
    MapGated(gate, up, y, rows, cols, stride, parallel, [](Vec v) { return GeluTanh(v); });
  } else {
    MapGated(gate, up, y, rows, cols, stride, parallel, [](Vec v) { return GeluErf(v); });
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(GegluCpu,
                           (const T* gate, const T* up, T* y, int64_t rows, int64_t cols, int64_t stride, bool is_tanh,
                            const ParallelFor& parallel),
                           (gate, up, y, rows, cols, stride, is_tanh, parallel))
ONNXFUSE_INSTANTIATE(GegluCpu, float)
ONNXFUSE_INSTANTIATE(GegluCpu, Half)
ONNXFUSE_INSTANTIATE(GegluCpu, BFloat16)
