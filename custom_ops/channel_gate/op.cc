// ChannelGate for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include "custom_ops/channel_gate/kernel.h"

namespace onnxfuse {
namespace {

// How many leading axes of x have a gate for each index.
int64_t GatedAxes(const Tensor& x, const Tensor& gate) {
  size_t same = 0;
  while (same < x.shape.size() && same < gate.shape.size() && x.shape[same] == gate.shape[same]) ++same;
  return static_cast<int64_t>(same);
}

void Check(const Call& call) {
  const Tensor &x = call.Input(0), &gate = call.Input(1);
  if (gate.rank() == x.rank() && gate.Count(GatedAxes(x, gate), gate.rank()) == 1) return;
  call.Fail("gate must have the leading axes of x ", x.shape, " and size 1 along the others; got ", gate.shape);
}

void Compute(const Call& call) {
  const Tensor &x = call.Input(0), &gate = call.Input(1);
  const int64_t axes = GatedAxes(x, gate);
  const Tensor y = call.Output(0);
  const GateFunction f{call.ChoiceOf("activation") == 1, call.FloatOf("alpha"), call.FloatOf("beta")};
  ForFloatType(x.type, [&]<typename T>() {
    ChannelGateCpu(x.As<T>(), gate.As<T>(), y.As<T>(), x.Count(0, axes), x.Count(axes, x.rank()), f, call.Parallel());
  });
}

const Register kChannelGate({
    .signature = "ChannelGate(x: T[...], gate: T) -> (y: T[...])",
    .types = {{"T", FloatTypes()}},
    .attributes = {Choice("activation", {"sigmoid", "hard_sigmoid"}), Float("alpha", 1.0f / 6.0f), Float("beta", 0.5f)},
    .check = &Check,
    .compute = &Compute,
    .inplace = Inplace<0, 0>::kTable,
});

}  // namespace
}  // namespace onnxfuse
