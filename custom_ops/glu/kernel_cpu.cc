#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/elementwise.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/glu/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

template <typename T>
void GluCpu(const T* gate, const T* up, T* y, int64_t rows, int64_t cols, int64_t stride, bool is_relu,
            const ParallelFor& parallel) {
  if (is_relu) {
    MapGated(gate, up, y, rows, cols, stride, parallel, [](Vec v) { return Max(Zero(), v); });
  } else {
    MapGated(gate, up, y, rows, cols, stride, parallel, [](Vec v) { return Sigmoid(v); });
  }
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(GluCpu,
                           (const T* gate, const T* up, T* y, int64_t rows, int64_t cols, int64_t stride, bool is_relu,
                            const ParallelFor& parallel),
                           (gate, up, y, rows, cols, stride, is_relu, parallel))
ONNXFUSE_INSTANTIATE(GluCpu, float)
ONNXFUSE_INSTANTIATE(GluCpu, Half)
ONNXFUSE_INSTANTIATE(GluCpu, BFloat16)
