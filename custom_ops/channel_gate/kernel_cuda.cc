// ChannelGate on a GPU: one read of x, one write of y; the gate comes once for each vector.
#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/cuda/formula.h"

namespace onnxfuse {
namespace {

void Run(const Call& call, cuda::Queue& queue) {
  const Tensor &x = call.Input(0), &gate = call.Input(1);
  const Tensor y = call.Output(0);
  cuda::Formula f;
  const cuda::Term v = f.Input(x), g = f.Input(gate);
  cuda::Term factor = f("Sigmoid", g);
  if (call.ChoiceOf("activation") == 1) {
    const cuda::Term line = f("Add", f("Mul", g, f.Number(call.FloatOf("alpha"))), f.Number(call.FloatOf("beta")));
    factor = f("Max", f("Min", line, f.Number(1.0f)), f.Number(0.0f));
  }
  queue.Run(f.Text({f.Output(f("Mul", v, factor), y)}), 0, {cuda::View::Of(x), cuda::View::Of(gate)},
            {cuda::View::Of(y)});
}

const cuda::RegisterCuda kChannelGate("ChannelGate", &Run);

}  // namespace
}  // namespace onnxfuse
