// Linear for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include "custom_ops/linear/kernel.h"

namespace onnxfuse {
namespace {

enum Input : size_t { kX, kWeight, kBias, kResidual };

std::vector<Dims> OutputShapes(const Node& node, const std::vector<Dims>& inputs) {
  const Dims& weight = inputs[kWeight];
  if (weight.size() != 2) return {};
  Dims y = inputs[kX];
  y.back() = weight[node.IntOf("trans_weight") == 1 ? 0 : 1];
  return {y};
}

template <typename T>
LinearArgs<T> ReadArgs(const Call& call) {
  const Tensor &x = call.Input(kX), &weight = call.Input(kWeight), &residual = call.Input(kResidual);
  LinearArgs<T> args;
  args.is_transposed = call.IntOf("trans_weight") == 1;
  if (weight.rank() != 2) call.Fail("weight must have rank 2; got ", weight.shape);
  const int64_t depth = weight.shape[args.is_transposed ? 1 : 0];
  args.cols = weight.shape[args.is_transposed ? 0 : 1];
  if (depth != x.Columns()) call.Fail("weight must have k = ", x.Columns(), ", the last axis of x; got ", weight.shape);
  for (const Input input : {kBias, kResidual}) {
    const Tensor& added = call.Input(input);
    if (added.is_given && added.Columns() != args.cols)
      call.Fail(input == kBias ? "bias" : "residual", " must have n = ", args.cols, "; got ", added.shape);
  }
  args.rows = x.Rows();
  args.depth = depth;
  args.x = x.As<T>();
  args.weight = weight.As<T>();
  args.bias = call.Input(kBias).As<T>();
  args.residual = residual.As<T>();
  args.is_residual_last = call.IntOf("residual_last") == 1;
  args.alpha = call.FloatOf("alpha");
  args.activation = static_cast<Activation>(call.ChoiceOf("activation"));
  args.a = call.FloatOf("activation_alpha");
  args.b = call.FloatOf("activation_beta");
  return args;
}

template <typename T>
void Run(const Call& call) {
  LinearArgs<T> args = ReadArgs<T>(call);
  args.y = call.Output(0).As<T>();
  const T* packed = nullptr;
  if (LinearReadsPacked(args.rows, args.depth)) {
    int64_t size = 0;
    PackedLinearSize(args.depth, args.cols, &size);
    packed = static_cast<const T*>(call.Kept(static_cast<size_t>(size) * sizeof(T), [&](void* memory) {
      PackLinearWeights(args, static_cast<T*>(memory), call.Parallel());
    }));
  }
  LinearCpu(args, packed, call.Parallel());
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
