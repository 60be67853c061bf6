// Attention: y = softmax(scale * q k^T, masked) v, without the score matrix ever being in memory.
//
// Raw memory only: op.cc adapts this to ONNX Runtime, tests call it directly. Everything is computed in float (fp16
// and bf16 are converted as they are read) and rounded once at the end.
//
// For batch b, query head h (it uses key head h / (q_heads / kv_heads)), query i and key j of past then current keys:
//   s = scale * sum_d q[i, d] k[j, d]
//   s = softcap * tanh(s / softcap)                 where softcap > 0
//   s = mask[i, j] ? s : mask_value                 for a boolean mask; s + mask[i, j] for another
//   s = -inf                                        where j < i + diagonal - left or j > i + diagonal + right
//   y[i] = sum_j softmax_j(s)[j] v[j]               the sink of head h, if there are sinks, is one more score without a value
// NaN and inf go where IEEE takes them: a NaN or +inf score makes its row NaN, so does a row of -inf alone, unless
// zero_masked_rows makes it 0. With no keys at all y is 0. One thing is not as in the unfused graph: values of keys
// that no query of a tile may see are not read, so a NaN among them does not spread.
#pragma once

#include <cstdint>

#include "custom_ops/_runtime/half.h"
#include "custom_ops/_runtime/parallel.h"

namespace onnxfuse {

// Where element [batch, head, seq, dim] is: data[batch * strides.batch + ...], in elements.
struct AttentionStrides {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t seq = 0;
  int64_t dim = 1;
};

enum class AttentionMask { kNone, kBool, kFloat, kHalf, kBFloat16 };

// No limit to one side of the diagonal.
inline constexpr int64_t kUnlimited = INT64_MAX / 4;

// All of q, v, past, present and y have dim stride 1; k may have another (it is then [batch, heads, dim, seq]).
// Outputs overlap nothing. Pointers of what a size of 0 leaves empty are not read.
template <typename T>
struct AttentionArgs {
  int64_t batch = 0;
  int64_t q_heads = 0;
  int64_t kv_heads = 0;    // divides q_heads
  int64_t queries = 0;     // S
  int64_t new_keys = 0;    // of k and v; all keys are past_keys + new_keys
  int64_t past_keys = 0;   // P
  int64_t head_size = 0;   // of q and k
  int64_t value_size = 0;  // of v and y

  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  T* y = nullptr;
  AttentionStrides q_strides, k_strides, v_strides, y_strides;

  // Contiguous [batch, kv_heads, past_keys, size].
  const T* past_key = nullptr;
  const T* past_value = nullptr;
  // Contiguous [batch, kv_heads, past_keys + new_keys, size], or null when not wanted.
  T* present_key = nullptr;
  T* present_value = nullptr;

  // mask[b, h, i, j] is at the strides below; the stride of a broadcast axis is 0, that of j is 0 or 1.
  AttentionMask mask_kind = AttentionMask::kNone;
  const void* mask = nullptr;
  int64_t mask_batch = 0, mask_head = 0, mask_row = 0, mask_column = 0;

  float scale = 1.0f;
  float softcap = 0.0f;
  float mask_value = 0.0f;
  int64_t diagonal = 0;
  int64_t left = kUnlimited;
  int64_t right = kUnlimited;
  bool zero_masked_rows = false;
  const T* sink = nullptr;  // [q_heads], or null where there is none
};

// T is float, Half or BFloat16.
template <typename T>
void AttentionCpu(const AttentionArgs<T>& args, const ParallelFor& parallel);

}  // namespace onnxfuse
