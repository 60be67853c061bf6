// RMSNorm on a GPU: a row is read once and kept in registers.
#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/cuda/formula.h"

namespace onnxfuse {
namespace {

void Run(const Call& call, cuda::Queue& queue) {
  const Tensor &x = call.Input(0), &scale = call.Input(1);
  const Tensor y = call.Output(0);
  cuda::Formula f;
  const cuda::Term v = f.Input(x), factor = f.Input(scale);
  const cuda::Term result = f.Product(f.UnitRootMeanSquare(v, call.FloatOf("epsilon")), factor);
  std::vector<cuda::View> inputs = {cuda::View::Of(x)};
  if (scale.is_given) inputs.push_back(cuda::View::Of(scale));
  queue.Run(f.Text({f.Output(result, y)}), static_cast<int>(-call.IntOf("axis")), inputs, {cuda::View::Of(y)});
}

const cuda::RegisterCuda kRMSNorm("RMSNorm", &Run);

}  // namespace
}  // namespace onnxfuse
