// GatedLinear for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include "custom_ops/gated_linear/kernel.h"
#include "custom_ops/gated_linear/read.h"
#include "custom_ops/linear/packed.h"

namespace onnxfuse {
namespace {

using namespace gated_linear;

std::vector<Dims> OutputShapes(const Node& node, const std::vector<Dims>& inputs) {
  const Dims& weight = inputs[kWeight];
  if (weight.size() != 2) return {};
  const Dim& columns = weight[node.IntOf("trans_weight") == 1 ? 0 : 1];
  Dims y = inputs[kX];
  y.back() = columns.IsKnown() ? Dim{columns.value / 2, ""} : Dim{};
  return {y};
}

template <typename T>
void Run(const Call& call) {
  const GatedLinearArgs<T> args = ReadGatedLinear<T>(call);
  GatedLinearCpu(args, linear::PackedWeights(call, args.Products()), call.Parallel());
}

void Compute(const Call& call) {
  ForFloatType(call.Input(kX).type, [&]<typename T>() { Run<T>(call); });
}

const Register kGatedLinear({
    .signature = "GatedLinear(x: T[..., k], weight: T, bias: T?) -> (y: T)",
    .types = {{"T", FloatTypes()}},
    .attributes = {Choice("activation", {"silu", "gelu", "gelu_tanh", "sigmoid", "relu"}),
                   Float("activation_alpha", 1.0f), Int("trans_weight", 0, 0, 1), Int("gate_first", 1, 0, 1)},
    .output_shapes = &OutputShapes,
    .compute = &Compute,
    .kept_input = kWeight,
});

}  // namespace
}  // namespace onnxfuse
