// LayerNorm on a GPU: a row is read once and kept in registers; the variance is the mean square of distances from the mean.
#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/cuda/formula.h"

namespace onnxfuse {
namespace {

void Run(const Call& call, cuda::Queue& queue) {
  const Tensor &x = call.Input(0), &scale = call.Input(1), &bias = call.Input(2);
  const Tensor y = call.Output(0);
  cuda::Formula f;
  const cuda::Term v = f.Input(x), factor = f.Input(scale), shift = f.Input(bias);
  const cuda::Term unit = f.UnitVariance(v, call.FloatOf("epsilon"));
  const cuda::Term result = f.Sum(f.Product(unit, factor), shift);
  std::vector<cuda::View> inputs = {cuda::View::Of(x)};
  if (scale.is_given) inputs.push_back(cuda::View::Of(scale));
  if (bias.is_given) inputs.push_back(cuda::View::Of(bias));
  queue.Run(f.Text({f.Output(result, y)}), static_cast<int>(-call.IntOf("axis")), inputs, {cuda::View::Of(y)});
}

const cuda::RegisterCuda kLayerNorm("LayerNorm", &Run);

}  // namespace
}  // namespace onnxfuse
