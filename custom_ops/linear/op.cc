// Linear for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include "custom_ops/linear/packed.h"
#include "custom_ops/linear/read.h"

namespace onnxfuse {
namespace {

using namespace linear;

std::vector<Dims> OutputShapes(const Node& node, const std::vector<Dims>& inputs) {
  const Dims& weight = inputs[kWeight];
  if (weight.size() != 2) return {};
  Dims y = inputs[kX];
  y.back() = weight[node.IntOf("trans_weight") == 1 ? 0 : 1];
  return {y};
}

template <typename T>
void Run(const Call& call) {
  const LinearArgs<T> args = ReadLinear<T>(call);
  LinearCpu(args, PackedWeights(call, args), call.Parallel());
}

void Compute(const Call& call) {
  ForFloatType(call.Input(kX).type, [&]<typename T>() { Run<T>(call); });
}

const Register kLinear({
    .signature = "Linear(x: T[..., k], weight: T, bias: T[n]?, residual: T[..., n]?) -> (y: T)",
    .types = {{"T", FloatTypes()}},
    .attributes = {Choice("activation", {"none", "relu", "leaky_relu", "clip", "gelu", "gelu_tanh", "silu", "sigmoid",
                                         "tanh", "hard_swish", "squared_relu", "hard_sigmoid"}),
                   AnyFloat("activation_alpha", 1.0f), AnyFloat("activation_beta", 0.0f), Float("alpha", 1.0f),
                   Int("trans_weight", 0, 0, 1), Int("residual_last", 0, 0, 1)},
    .output_shapes = &OutputShapes,
    .compute = &Compute,
    .kept_input = kWeight,
    .inplace = Inplace<3, 0>::kTable,
    .variants = 8,
});

}  // namespace
}  // namespace onnxfuse
