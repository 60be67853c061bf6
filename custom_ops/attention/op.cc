// Attention for ONNX Runtime: layouts become strides, attributes and shapes are checked.
#include "custom_ops/_runtime/op.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "custom_ops/attention/kernel.h"

namespace onnxfuse {
namespace {

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

Operand InLayout(Layout layout, int64_t batch, int64_t heads, int64_t seq, int64_t size) {
  const int64_t all = heads * seq * size;
  if (layout == kBhsd) return {batch, heads, seq, size, {all, seq * size, size, 1}};
  if (layout == kBhds) return {batch, heads, seq, size, {all, seq * size, 1, seq}};
  return {batch, heads, seq, size, {all, size, heads * size, 1}};
}

Operand ReadOperand(const Call& call, Input input, const char* name, Layout layout, int64_t heads) {
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

Operands Packed(const Call& call, const Heads& heads) {
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

std::string Shown(const Operand& x) { return Show({x.batch, x.heads, x.seq, x.size}); }

Operands ReadOperands(const Call& call) {
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

void CheckPast(const Call& call, Input input, const char* name, const Operand& current, int64_t seq) {
  const std::vector<int64_t> wanted = {current.batch, current.heads, seq, current.size};
  if (call.Input(input).shape != wanted)
    call.Fail(name, " must have the shape ", wanted, "; got ", call.Input(input).shape);
}

// How many past keys there are.
int64_t PastKeys(const Call& call, const Operands& all) {
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
void Run(const Call& call) {
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
  AttentionCpu(args, call.Parallel());
}

void Compute(const Call& call) {
  ForFloatType(call.Input(kQ).type, [&]<typename T>() { Run<T>(call); });
}

// Sizes that may not be known yet.

Dim Times(const Dim& a, const Dim& b) {
  if (a.value == 1) return b;
  if (b.value == 1) return a;
  return a.IsKnown() && b.IsKnown() ? Dim{a.value * b.value, ""} : Dim{};
}

Dim Over(const Dim& a, int64_t divisor) {
  if (divisor == 1) return a;
  return a.IsKnown() && divisor > 0 ? Dim{a.value / divisor, ""} : Dim{};
}

Dim Plus(const Dim& a, const Dim& b) {
  if (a.value == 0) return b;
  return a.IsKnown() && b.IsKnown() ? Dim{a.value + b.value, ""} : Dim{};
}

// [batch, heads, seq, size] of an operand; none where its rank is not what its layout needs.
Dims ByHead(const Dims& x, int64_t layout, int64_t heads) {
  if (x.size() != (layout == kBse ? 3u : 4u)) return {};
  if (layout == kBse) return {x[0], Dim{heads, ""}, x[1], Over(x[2], heads)};
  if (layout == kBhsd) return x;
  return layout == kBshd ? Dims{x[0], x[2], x[1], x[3]} : Dims{x[0], x[1], x[3], x[2]};
}

std::vector<Dims> OutputShapes(const Node& node, const std::vector<Dims>& inputs) {
  const Heads heads(node);
  const bool is_packed = node.ChoiceOf("packed") == 1;
  Dims q, k, v;
  if (is_packed && inputs[kQ].size() == 3) {
    const Dims& x = inputs[kQ];
    const Dim size = Over(x[2], heads.q + 2 * heads.kv);
    q = {x[0], Dim{heads.q, ""}, x[1], size};
    k = v = {x[0], Dim{heads.kv, ""}, x[1], size};
  } else if (!is_packed) {
    q = ByHead(inputs[kQ], node.ChoiceOf("q_layout"), heads.q);
    k = ByHead(inputs[kK], node.ChoiceOf("k_layout"), heads.kv);
    v = ByHead(inputs[kV], node.ChoiceOf("v_layout"), heads.kv);
  }
  if (q.empty() || k.empty() || v.empty()) return {};
  const Dim past = inputs[kPastKey].size() == 4 ? inputs[kPastKey][2] : Dim{0, ""};
  // A row of as many heads as v's is as long as v's, even where nobody knows how long that is.
  const bool is_row_of_v = !is_packed && node.ChoiceOf("v_layout") == kBse && heads.q == heads.kv;
  const Dim row = is_row_of_v ? inputs[kV][2] : Times(q[1], v[3]);
  const int64_t layout = node.ChoiceOf("y_layout");
  const Dims y = layout == kBhsd   ? Dims{q[0], q[1], q[2], v[3]}
                 : layout == kBshd ? Dims{q[0], q[2], q[1], v[3]}
                                   : Dims{q[0], q[2], row};
  return {y, {q[0], k[1], Plus(past, k[2]), k[3]}, {q[0], k[1], Plus(past, v[2]), v[3]}};
}

const Register kAttention({
    .signature = "Attention(q: T, k: T?, v: T?, mask: M?, past_key: T?, past_value: T?, sink: T?) -> "
                 "(y: T, present_key: T?, present_value: T?)",
    .types = {{"T", FloatTypes()}, {"M", {Type::kBool, Type::kFloat, Type::kFloat16, Type::kBFloat16}}},
    .attributes = {Int("q_num_heads", 0, 0), Int("kv_num_heads", 0, 0), Choice("q_layout", {"BHSD", "BSHD", "BSE"}),
                   Choice("k_layout", {"BHSD", "BSHD", "BSE", "BHDS"}), Choice("v_layout", {"BHSD", "BSHD", "BSE"}),
                   Choice("y_layout", {"BHSD", "BSHD", "BSE"}), Choice("packed", {"", "qkv"}),
                   AnyFloat("scale", std::numeric_limits<float>::infinity()), Int("causal", 0, 0, 2),
                   Int("window_left", -1, -1), Int("window_right", -1, -1), Float("softcap", 0, 0),
                   AnyFloat("mask_value", -std::numeric_limits<float>::infinity()), Int("zero_masked_rows", 0, 0, 1)},
    .output_shapes = &OutputShapes,
    .compute = &Compute,
    .variants = 16,
});

}  // namespace
}  // namespace onnxfuse
