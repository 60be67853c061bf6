#include "custom_ops/_runtime/activation.h"
#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/row_parts.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/gelu/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

constexpr double kNanosecondsPerElement = 1.0;

template <bool kIsTanh, typename T>
ONNXFUSE_INLINE void Range(const T* x, const T* bias, T* y, int64_t cols, int64_t begin, int64_t end) {
  auto gelu = [](Vec v) { return kIsTanh ? GeluTanh(v) : GeluErf(v); };
  if (bias == nullptr) {
    ForEachVec(end - begin,
               [&](int64_t i, int lanes) { StoreN(y + begin + i, gelu(LoadN(x + begin + i, lanes)), lanes); });
    return;
  }
  ForEachRowPart(begin, end, cols, [&](int64_t row, int64_t column, int64_t count) {
    const int64_t at = row * cols + column;
    ForEachVec(count, [&](int64_t i, int lanes) {
      StoreN(y + at + i, gelu(LoadN(x + at + i, lanes) + LoadN(bias + column + i, lanes)), lanes);
    });
  });
}

template <typename T>
void GeluCpu(const T* x, const T* bias, T* y, int64_t rows, int64_t cols, bool is_tanh, const ParallelFor& parallel) {
  parallel(rows * cols, kNanosecondsPerElement, [&](int64_t begin, int64_t end) {
    is_tanh ? Range<true>(x, bias, y, cols, begin, end) : Range<false>(x, bias, y, cols, begin, end);
  });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(GeluCpu,
                           (const T* x, const T* bias, T* y, int64_t rows, int64_t cols, bool is_tanh,
                            const ParallelFor& parallel),
                           (x, bias, y, rows, cols, is_tanh, parallel))
ONNXFUSE_INSTANTIATE(GeluCpu, float)
ONNXFUSE_INSTANTIATE(GeluCpu, Half)
ONNXFUSE_INSTANTIATE(GeluCpu, BFloat16)
