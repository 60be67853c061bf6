// GLU on a GPU: both halves of a packed matrix are views of it.
#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/cuda/formula.h"

namespace onnxfuse {
namespace {

void Run(const Call& call, cuda::Queue& queue) {
  const Tensor &gate = call.Input(0), &up = call.Input(1);
  const Tensor y = call.Output(0);
  const int64_t axis = gate.rank() + call.IntOf("axis");
  const int64_t size = y.shape[static_cast<size_t>(axis)];
  const bool is_gate_first = call.IntOf("gate_first") != 0;
  const cuda::View whole = cuda::View::Of(gate);
  const cuda::View first = up.is_given ? whole : whole.Slice(axis, is_gate_first ? 0 : size, size);
  const cuda::View second = up.is_given ? cuda::View::Of(up) : whole.Slice(axis, is_gate_first ? size : 0, size);
  cuda::Formula f;
  const cuda::Term g = f.Input(gate), u = f.Input(up.is_given ? up : gate);
  const cuda::Term result = f("Mul", f(call.ChoiceOf("activation") == 1 ? "Relu" : "Sigmoid", g), u);
  queue.Run(f.Text({f.Output(result, y)}), 0, {first, second}, {cuda::View::Of(y)});
}

const cuda::RegisterCuda kGLU("GLU", &Run);

}  // namespace
}  // namespace onnxfuse
