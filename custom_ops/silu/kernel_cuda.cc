// Silu on a GPU: one read of x, one write of y.
#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/cuda/formula.h"

namespace onnxfuse {
namespace {

void Run(const Call& call, cuda::Queue& queue) {
  const Tensor &x = call.Input(0), &bias = call.Input(1);
  const Tensor y = call.Output(0);
  cuda::Formula f;
  const cuda::Term first = f.Input(x), second = f.Input(bias), v = f.Sum(first, second);
  const cuda::Term result = f.Silu(v, call.FloatOf("alpha"));
  std::vector<cuda::View> inputs = {cuda::View::Of(x)};
  if (bias.is_given) inputs.push_back(cuda::View::Of(bias));
  queue.Run(f.Text({f.Output(result, y)}), 0, inputs, {cuda::View::Of(y)});
}

const cuda::RegisterCuda kSilu("Silu", &Run);

}  // namespace
}  // namespace onnxfuse
