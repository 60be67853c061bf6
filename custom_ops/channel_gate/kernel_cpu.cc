#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/elementwise.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/channel_gate/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

ONNXFUSE_INLINE Vec Apply(GateFunction f, Vec v) {
  if (!f.is_hard) return Sigmoid(v);
  return Max(Zero(), Min(Set(1.0f), Set(f.alpha) * v + Set(f.beta)));
}

// Rows may be few and long or many and short, so threads share the elements, not the rows.
template <typename T>
void ChannelGateCpu(const T* x, const T* gate, T* y, int64_t rows, int64_t cols, GateFunction f,
                    const ParallelFor& parallel) {
  constexpr double kNanosecondsPerElement = 0.3;
  parallel(rows * cols, kNanosecondsPerElement, [&](int64_t begin, int64_t end) {
    ForEachRowPart(begin, end, cols, [&](int64_t row, int64_t column, int64_t count) {
      const Vec factor = Apply(f, Set(ToFloat(gate[row])));
      const T* from = x + row * cols + column;
      T* to = y + row * cols + column;
      ForEachVec(count, [&](int64_t i, int lanes) { StoreAhead(to + i, LoadAhead(from + i, lanes) * factor, lanes); });
    });
  });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(ChannelGateCpu,
                           (const T* x, const T* gate, T* y, int64_t rows, int64_t cols, GateFunction f,
                            const ParallelFor& parallel),
                           (x, gate, y, rows, cols, f, parallel))
ONNXFUSE_INSTANTIATE(ChannelGateCpu, float)
ONNXFUSE_INSTANTIATE(ChannelGateCpu, Half)
ONNXFUSE_INSTANTIATE(ChannelGateCpu, BFloat16)
