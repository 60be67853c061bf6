// GroupNorm on a GPU: a row is a group; one that is too long for registers is read again, and split where groups are few.
#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/cuda/formula.h"

namespace onnxfuse {
namespace {

void Run(const Call& call, cuda::Queue& queue) {
  const Tensor &x = call.Input(0), &scale = call.Input(1), &bias = call.Input(2);
  const Tensor y = call.Output(0);
  const int64_t groups = call.IntOf("num_groups"), channels = x.shape[1] / groups;
  const std::vector<int64_t> whole = {x.shape[0], groups, channels, x.Count(2, x.rank())};
  const std::vector<int64_t> each = {groups, channels, 1};
  cuda::Formula f;
  const cuda::Term v = f.Input(x), factor = f.Input(scale), shift = f.Input(bias);
  const cuda::Term unit = f.UnitVariance(v, call.FloatOf("epsilon"));
  cuda::Term result = f.Sum(f.Product(unit, factor), shift);
  if (call.ChoiceOf("activation") == 1) result = f.Silu(result, 1.0f);
  std::vector<cuda::View> inputs = {cuda::View::Of(x, whole)};
  if (scale.is_given) inputs.push_back(cuda::View::Of(scale, each));
  if (bias.is_given) inputs.push_back(cuda::View::Of(bias, each));
  queue.Run(f.Text({f.Output(result, y)}), 2, inputs, {cuda::View::Of(y, whole)});
}

const cuda::RegisterCuda kGroupNorm("GroupNorm", &Run);

}  // namespace
}  // namespace onnxfuse
