// GLU for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include "custom_ops/glu/kernel.h"

namespace onnxfuse {
namespace {

// That of gate where up is given; else gate holds both, side by side. None where gate has too few axes.
std::vector<Dims> OutputShapes(const Node& node, const std::vector<Dims>& inputs) {
  Dims y = inputs[0];
  const int64_t axis = static_cast<int64_t>(y.size()) + node.IntOf("axis");
  if (axis < 0) return {y};
  Dim& size = y[static_cast<size_t>(axis)];
  if (inputs[1].empty()) size = size.IsKnown() ? Dim{size.value / 2, ""} : Dim{};
  return {y};
}

void Check(const Call& call) {
  const Tensor& gate = call.Input(0);
  const int64_t axis = gate.rank() + call.IntOf("axis");
  if (axis < 0) call.Fail("gate must have rank ", -call.IntOf("axis"), " or more, for its axis; got ", gate.shape);
  if (!call.Input(1).is_given && gate.shape[static_cast<size_t>(axis)] % 2 != 0)
    call.Fail("gate must have an even axis ", call.IntOf("axis"), " where up is not given; got ", gate.shape);
}

void Compute(const Call& call) {
  const Tensor &gate = call.Input(0), &up = call.Input(1);
  const int64_t axis = gate.rank() + call.IntOf("axis");
  const Tensor y = call.Output(0);
  const int64_t rows = gate.Count(0, axis), stride = gate.Count(axis, gate.rank());
  const int64_t cols = up.is_given ? stride : stride / 2;
  const bool is_gate_first = call.IntOf("gate_first") != 0;
  ForFloatType(gate.type, [&]<typename T>() {
    const T *g = gate.As<T>(), *u = up.As<T>();
    if (!up.is_given) {
      u = g + (is_gate_first ? cols : 0);
      g += is_gate_first ? 0 : cols;
    }
    GluCpu(g, u, y.As<T>(), rows, cols, stride, call.ChoiceOf("activation") == 1, call.Parallel());
  });
}

const Register kGLU({
    .signature = "GLU(gate: T[...], up: T[...]?) -> (y: T)",
    .types = {{"T", FloatTypes()}},
    .attributes = {Choice("activation", {"sigmoid", "relu"}), Int("axis", -1, -64, -1), Int("gate_first", 1, 0, 1)},
    .output_shapes = &OutputShapes,
    .check = &Check,
    .compute = &Compute,
    .inplace = Inplace<0, 0, 1, 0>::kTable,
});

}  // namespace
}  // namespace onnxfuse
