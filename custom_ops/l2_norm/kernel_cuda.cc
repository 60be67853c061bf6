// L2Norm on a GPU: a row is read once; over an axis that is not the last, neighbouring threads do neighbouring places.
#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/cuda/formula.h"

namespace onnxfuse {
namespace {

void Run(const Call& call, cuda::Queue& queue) {
  const Tensor &x = call.Input(0), &scale = call.Input(1);
  const Tensor y = call.Output(0);
  const int64_t axis = x.rank() + call.IntOf("axis");
  const std::vector<int64_t> sizes = {x.Count(0, axis), x.Count(axis, axis + 1), x.Count(axis + 1, x.rank())};
  cuda::Formula f;
  const cuda::Term v = f.Input(x), factor = f.Input(scale);
  const cuda::Term norm = f("Max", f("ReduceL2", v), f.Number(call.FloatOf("epsilon")));
  const cuda::Term result = f.Product(f("Div", v, norm), factor);
  std::vector<cuda::View> inputs = {cuda::View::Of(x, sizes).Swap(1, 2)};
  if (scale.is_given) inputs.push_back(cuda::View::Of(scale));
  queue.Run(f.Text({f.Output(result, y)}), 1, inputs, {cuda::View::Of(y, sizes).Swap(1, 2)});
}

const cuda::RegisterCuda kL2Norm("L2Norm", &Run);

}  // namespace
}  // namespace onnxfuse
