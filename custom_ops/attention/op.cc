// Attention for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include "custom_ops/attention/kernel.h"
#include "custom_ops/attention/read.h"

namespace onnxfuse {
namespace {

using namespace attention;

void Compute(const Call& call) {
  ForFloatType(call.Input(kQ).type, [&]<typename T>() { AttentionCpu(ReadAttention<T>(call), call.Parallel()); });
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
