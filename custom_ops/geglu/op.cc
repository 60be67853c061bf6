// GeGLU for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include "custom_ops/geglu/kernel.h"

namespace onnxfuse {
namespace {

// That of gate where up is given; else gate holds both, side by side.
std::vector<Dims> OutputShapes(const Node&, const std::vector<Dims>& inputs) {
  Dims y = inputs[0];
  if (inputs[1].empty()) y.back() = y.back().IsKnown() ? Dim{y.back().value / 2, ""} : Dim{};
  return {y};
}

void Check(const Call& call) {
  const Tensor& gate = call.Input(0);
  if (!call.Input(1).is_given && gate.Columns() % 2 != 0)
    call.Fail("gate must have an even last axis where up is not given; got ", gate.shape);
}

void Compute(const Call& call) {
  const Tensor &gate = call.Input(0), &up = call.Input(1);
  const Tensor y = call.Output(0);
  const bool is_gate_first = call.IntOf("gate_first") != 0;
  ForFloatType(gate.type, [&]<typename T>() {
    const T *g = gate.As<T>(), *u = up.As<T>();
    if (!up.is_given) {
      u = g + (is_gate_first ? y.Columns() : 0);
      g += is_gate_first ? 0 : y.Columns();
    }
    GegluCpu(g, u, y.As<T>(), y.Rows(), y.Columns(), gate.Columns(), call.ChoiceOf("approximate") == 1,
             call.Parallel());
  });
}

const Register kGeGLU({
    .signature = "GeGLU(gate: T[..., m], up: T[..., m]?) -> (y: T)",
    .types = {{"T", FloatTypes()}},
    .attributes = {Choice("approximate", {"none", "tanh"}), Int("gate_first", 1, 0, 1)},
    .output_shapes = &OutputShapes,
    .check = &Check,
    .compute = &Compute,
    .inplace = Inplace<0, 0, 1, 0>::kTable,
});

}  // namespace
}  // namespace onnxfuse
