#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/attention/decode.h"
#include "custom_ops/attention/kernel.h"
#include "custom_ops/attention/prefill.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

template <typename T>
void FillPresent(const Rows<T>& rows, T* present, int64_t new_rows) {
  if (rows.past_count > 0) {  // else there may be no memory
    std::memcpy(present, rows.past, static_cast<size_t>(rows.past_count * rows.size) * sizeof(T));
  }
  present += rows.past_count * rows.size;
  for (int64_t row = 0; row < new_rows; ++row, present += rows.size) {
    const T* source = rows.current + row * rows.stride;
    for (int64_t i = 0; i < rows.size; ++i) present[i] = source[i * rows.dim_stride];
  }
}

template <typename T>
void FillPresents(const AttentionArgs<T>& a, const ParallelFor& parallel) {
  const int64_t keys = a.past_keys + a.new_keys;
  const double cost = 0.1 * static_cast<double>(keys * (a.head_size + a.value_size));
  parallel(a.batch * a.kv_heads, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / a.kv_heads, head = i % a.kv_heads;
      if (a.present_key != nullptr)
        FillPresent(KeysOf(a, batch, head), a.present_key + i * keys * a.head_size, a.new_keys);
      if (a.present_value != nullptr)
        FillPresent(ValuesOf(a, batch, head), a.present_value + i * keys * a.value_size, a.new_keys);
    }
  });
}

template <typename T>
void FillZero(const AttentionArgs<T>& a) {
  for (int64_t b = 0; b < a.batch; ++b) {
    for (int64_t h = 0; h < a.q_heads; ++h) {
      for (int64_t i = 0; i < a.queries; ++i) {
        T* y = a.y + b * a.y_strides.batch + h * a.y_strides.head + i * a.y_strides.seq;
        std::memset(static_cast<void*>(y), 0, static_cast<size_t>(a.value_size) * sizeof(T));
      }
    }
  }
}

template <typename T>
void AttentionCpu(const AttentionArgs<T>& a, const ParallelFor& parallel) {
  if (a.present_key != nullptr || a.present_value != nullptr) FillPresents(a, parallel);
  if (a.batch == 0 || a.q_heads == 0 || a.queries == 0 || a.value_size == 0) return;
  if (a.past_keys + a.new_keys == 0) return FillZero(a);
  if (a.q_heads / a.kv_heads * a.queries <= kFewRows) return Decode(a, parallel);
  Prefill(a, parallel);
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(AttentionCpu, (const AttentionArgs<T>& args, const ParallelFor& parallel), (args, parallel))
ONNXFUSE_INSTANTIATE(AttentionCpu, float)
ONNXFUSE_INSTANTIATE(AttentionCpu, Half)
ONNXFUSE_INSTANTIATE(AttentionCpu, BFloat16)
