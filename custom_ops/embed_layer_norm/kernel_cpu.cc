#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/normalize.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/embed_layer_norm/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

template <typename T>
ONNXFUSE_INLINE const T* RowOf(const Embedding<T>& embedding, int64_t row, int64_t cols) {
  return embedding.table == nullptr ? nullptr : embedding.table + embedding.rows[row] * cols;
}

// next: a row of y that comes soon. Its row of the first table, which is the largest as a rule, is asked for.
template <typename T>
ONNXFUSE_INLINE void NormalizeEmbedding(const EmbedLayerNormArgs<T>& a, int64_t row, int64_t next) {
  const T* first = RowOf(a.first, row, a.cols);
  const T* second = RowOf(a.second, row, a.cols);
  const T* third = RowOf(a.third, row, a.cols);
  const T* soon = RowOf(a.first, next, a.cols);
  auto value = [&](int64_t i, int lanes) {
    const Vec v = LoadN(first + i, lanes) + LoadN(second + i, lanes);
    return third == nullptr ? v : v + LoadN(third + i, lanes);
  };
  auto at_first = [&](int64_t i, int lanes) {
    Prefetch<Fetch::kFar>(soon + i);
    return value(i, lanes);
  };
  const int64_t at = row * a.cols;
  NormalizeRow<true>(RowOutput<T>{a.scale, a.bias, a.y + at, a.sum == nullptr ? nullptr : a.sum + at}, a.cols,
                     a.epsilon, true, at_first, value);
}

inline constexpr int64_t kAhead = 2048;  // bytes of y between a row and one whose rows of tables are asked for

template <typename T>
void EmbedLayerNormCpu(const EmbedLayerNormArgs<T>& args, const ParallelFor& parallel) {
  constexpr double kNanosecondsPerElement = 0.6;
  parallel(args.rows, static_cast<double>(args.cols) * kNanosecondsPerElement, [&](int64_t begin, int64_t end) {
    const EmbedLayerNormArgs<T> own = args;  // where what is stored cannot change it, so that it stays in registers
    const int64_t row_bytes = own.cols * static_cast<int64_t>(sizeof(T)), ahead = kAhead / (row_bytes + 1) + 1;
    for (int64_t row = begin; row < end; ++row) {
      NormalizeEmbedding(own, row, row + ahead < end ? row + ahead : row);
    }
  });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(EmbedLayerNormCpu, (const EmbedLayerNormArgs<T>& args, const ParallelFor& parallel),
                           (args, parallel))
ONNXFUSE_INSTANTIATE(EmbedLayerNormCpu, float)
ONNXFUSE_INSTANTIATE(EmbedLayerNormCpu, Half)
ONNXFUSE_INSTANTIATE(EmbedLayerNormCpu, BFloat16)
