// What a node of Attention asks for: layouts become strides, attributes and shapes are checked, outputs are made.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "custom_ops/_runtime/op.h"
#include "custom_ops/attention/kernel.h"

namespace onnxfuse::attention {

enum Input : size_t { kQ, kK, kV, kMask, kPastKey, kPastValue, kSink };
enum Output : size_t { kY, kPresentKey, kPresentValue };
// As the choices of q_layout, v_layout and y_layout; of k_layout with kBhds.
enum Layout : int64_t { kBhsd, kBshd, kBse, kBhds };

// [batch, heads, seq, size] and where it is.
struct Operand {
  int64_t batch, heads, seq, size;
  AttentionStrides strides;
};

struct Heads {
  int64_t q, kv;
  explicit Heads(const Node& node) : q(node.IntOf("q_num_heads")), kv(node.IntOf("kv_num_heads")) {
    if (kv == 0) kv = q;
  }
};

inline Operand InLayout(Layout layout, int64_t batch, int64_t heads, int64_t seq, int64_t size) {
  const int64_t all = heads * seq * size;
  if (layout == kBhsd) return {batch, heads, seq, size, {all, seq * size, size, 1}};
  if (layout == kBhds) return {batch, heads, seq, size, {all, seq * size, 1, seq}};
  return {batch, heads, seq, size, {all, size, heads * size, 1}};
}

inline Operand ReadOperand(const Call& call, Input input, const char* name, Layout layout, int64_t heads) {
  const Tensor& x = call.Input(input);
  if (!x.is_given) call.Fail(name, " must be given where packed is \"\"");
  if (x.rank() != (layout == kBse ? 3 : 4)) {
    call.Fail(name, " must have ", layout == kBse ? 3 : 4, " axes; got ", x.shape);
  }
  const auto& s = x.shape;
  if (layout == kBse) {
    if (heads == 0) call.Fail("q_num_heads must be given where q, k or v has 3 axes");
    if (s[2] % heads != 0)
      call.Fail("the last axis of ", name, " ", x.shape, " must be a multiple of its ", heads, " heads");
    return InLayout(layout, s[0], heads, s[1], s[2] / heads);
  }
  const Operand found = layout == kBhsd   ? InLayout(layout, s[0], s[1], s[2], s[3])
                        : layout == kBshd ? InLayout(layout, s[0], s[2], s[1], s[3])
                                          : InLayout(layout, s[0], s[1], s[3], s[2]);
  if (heads != 0 && found.heads != heads)
    call.Fail("the heads of ", name, " ", x.shape, " must be ", heads, " as the attributes say");
  return found;
}

struct Operands {
  Operand q, k, v;
  int64_t k_offset = 0, v_offset = 0;  // from the start of q, where all are packed into it
};

inline Operands Packed(const Call& call, const Heads& heads) {
  const Tensor& x = call.Input(kQ);
  const int64_t total = heads.q + 2 * heads.kv;
  if (total == 0) call.Fail("q_num_heads must be given where packed is \"qkv\"");
  if (call.Input(kK).is_given || call.Input(kV).is_given) call.Fail("k and v must be absent where packed is \"qkv\"");
  if (x.rank() != 3 || x.shape[2] % total != 0) {
    call.Fail("q must be [batch, seq, ", total, " heads * size] where packed is \"qkv\"; got ", x.shape);
  }
  const int64_t size = x.shape[2] / total;
  Operands all;
  const AttentionStrides strides{x.shape[1] * x.shape[2], size, x.shape[2], 1};
  all.q = {x.shape[0], heads.q, x.shape[1], size, strides};
  all.k = all.v = {x.shape[0], heads.kv, x.shape[1], size, strides};
  all.k_offset = heads.q * size;
  all.v_offset = (heads.q + heads.kv) * size;
  return all;
}

inline std::string Shown(const Operand& x) { return Show({x.batch, x.heads, x.seq, x.size}); }

inline Operands ReadOperands(const Call& call) {
  const Heads heads(call);
  if (call.ChoiceOf("packed") == 1) return Packed(call, heads);
  auto read = [&](Input input, const char* name, const char* layout, int64_t count) {
    return ReadOperand(call, input, name, static_cast<Layout>(call.ChoiceOf(layout)), count);
  };
  Operands all{read(kQ, "q", "q_layout", heads.q), read(kK, "k", "k_layout", heads.kv),
               read(kV, "v", "v_layout", heads.kv)};
  const Operand &q = all.q, &k = all.k, &v = all.v;
  auto fail = [&](const char* must) {
    call.Fail(must, "; got q ", Shown(q), ", k ", Shown(k), ", v ", Shown(v), " as [batch, heads, seq, size]");
  };
  if (q.batch != k.batch || q.batch != v.batch) fail("q, k and v must have the same batch");
  if (k.heads != v.heads || k.seq != v.seq) fail("k and v must have the same heads and seq");
  if (q.size != k.size) fail("q and k must have the same size");
  return all;
}

inline void CheckPast(const Call& call, Input input, const char* name, const Operand& current, int64_t seq) {
  const std::vector<int64_t> wanted = {current.batch, current.heads, seq, current.size};
  if (call.Input(input).shape != wanted)
    call.Fail(name, " must have the shape ", wanted, "; got ", call.Input(input).shape);
}

// How many past keys there are.
inline int64_t PastKeys(const Call& call, const Operands& all) {
  const Tensor &key = call.Input(kPastKey), &value = call.Input(kPastValue);
  if (key.is_given != value.is_given) call.Fail("past_key and past_value must both be given, or neither");
  if (!key.is_given) return 0;
  const int64_t seq = key.rank() == 4 ? key.shape[2] : 0;
  CheckPast(call, kPastKey, "past_key", all.k, seq);
  CheckPast(call, kPastValue, "past_value", all.v, seq);
  return seq;
}

template <typename T>
void SetMask(const Call& call, AttentionArgs<T>& args) {
  const Tensor& mask = call.Input(kMask);
  if (!mask.is_given) return;
  const std::vector<int64_t> full = {args.batch, args.q_heads, args.queries, args.past_keys + args.new_keys};
  int64_t* const strides[] = {&args.mask_batch, &args.mask_head, &args.mask_row, &args.mask_column};
  bool fits = mask.rank() <= 4;
  int64_t stride = 1;
  for (int64_t i = 1; fits && i <= mask.rank(); ++i) {
    const int64_t size = mask.shape[static_cast<size_t>(mask.rank() - i)], wanted = full[static_cast<size_t>(4 - i)];
    fits = size == 1 || size == wanted;
    *strides[4 - i] = size == 1 ? 0 : stride;
    stride *= size;
  }
  if (!fits) call.Fail("mask must broadcast to ", full, "; got ", mask.shape);
  args.mask = mask.data;
  args.mask_kind = mask.type == Type::kBool      ? AttentionMask::kBool
                   : mask.type == Type::kFloat   ? AttentionMask::kFloat
                   : mask.type == Type::kFloat16 ? AttentionMask::kHalf
                                                 : AttentionMask::kBFloat16;
}

template <typename T>
const T* SinkOf(const Call& call, int64_t heads) {
  const Tensor& sink = call.Input(kSink);
  if (sink.is_given && (sink.rank() != 1 || sink.shape[0] != heads))
    call.Fail("sink must have a number for each of the ", heads, " heads of q; got ", sink.shape);
  return sink.As<T>();
}

template <typename T>
void SetLimits(const Call& call, AttentionArgs<T>& args) {
  enum Causal : int64_t { kTopLeft = 1, kBottomRight = 2 };
  const int64_t causal = call.IntOf("causal"), left = call.IntOf("window_left"), right = call.IntOf("window_right");
  if (causal == kBottomRight) args.diagonal = args.past_keys + args.new_keys - args.queries;
  if (left >= 0) args.left = std::min(left, kUnlimited);
  if (right >= 0) args.right = std::min(right, kUnlimited);
  if (causal != 0) args.right = 0;
  const float scale = call.FloatOf("scale");
  args.scale = std::isinf(scale) ? static_cast<float>(1.0 / std::sqrt(static_cast<double>(args.head_size))) : scale;
  args.softcap = call.FloatOf("softcap");
  args.mask_value = call.FloatOf("mask_value");
  args.zero_masked_rows = call.IntOf("zero_masked_rows") == 1;
}

template <typename T>
AttentionArgs<T> ReadAttention(const Call& call) {
  const Operands all = ReadOperands(call);
  AttentionArgs<T> args;
  args.batch = all.q.batch;
  args.q_heads = all.q.heads;
  args.kv_heads = all.k.heads;
  args.queries = all.q.seq;
  args.new_keys = all.k.seq;
  args.past_keys = PastKeys(call, all);
  args.head_size = all.q.size;
  args.value_size = all.v.size;
  if (args.kv_heads == 0 ? args.q_heads != 0 : args.q_heads % args.kv_heads != 0) {
    call.Fail("the heads of q must be a multiple of those of k; got ", args.q_heads, " and ", args.kv_heads);
  }
  SetMask(call, args);
  SetLimits(call, args);
  const bool is_packed = call.ChoiceOf("packed") == 1;
  args.q = call.Input(kQ).As<T>();
  args.k = (is_packed ? call.Input(kQ) : call.Input(kK)).template As<T>() + all.k_offset;
  args.v = (is_packed ? call.Input(kQ) : call.Input(kV)).template As<T>() + all.v_offset;
  args.past_key = call.Input(kPastKey).As<T>();
  args.past_value = call.Input(kPastValue).As<T>();
  args.sink = SinkOf<T>(call, args.q_heads);
  args.y = call.Output(kY).As<T>();
  args.present_key = call.Output(kPresentKey).As<T>();
  args.present_value = call.Output(kPresentValue).As<T>();
  args.q_strides = all.q.strides;
  args.k_strides = all.k.strides;
  args.v_strides = all.v.strides;
  const auto y_layout = static_cast<Layout>(call.ChoiceOf("y_layout"));
  args.y_strides = InLayout(y_layout, args.batch, args.q_heads, args.queries, args.value_size).strides;
  return args;
}

}  // namespace onnxfuse::attention
