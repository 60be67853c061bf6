// SkipRMSNorm on a GPU: the sum stays in registers; x and skip are read once.
#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/cuda/formula.h"

namespace onnxfuse {
namespace {

void Run(const Call& call, cuda::Queue& queue) {
  const Tensor y = call.Output(0), sum = call.Output(1);
  cuda::Formula f;
  const cuda::Term x = f.Input(call.Input(0)), skip = f.Input(call.Input(1)), scale = f.Input(call.Input(2)),
                   x_bias = f.Input(call.Input(3));
  const cuda::Term total = f.Sum(f("Add", x, skip), x_bias);
  const cuda::Term unit = f.UnitRootMeanSquare(total, call.FloatOf("epsilon"));
  std::vector<cuda::Term> results = {f.Output(f.Product(unit, scale), y)};
  std::vector<cuda::View> inputs, outputs = {cuda::View::Of(y)};
  for (size_t i = 0; i <= 3; ++i) {
    if (call.Input(i).is_given) inputs.push_back(cuda::View::Of(call.Input(i)));
  }
  if (sum.is_given) results.push_back(f.Output(total, sum)), outputs.push_back(cuda::View::Of(sum));
  queue.Run(f.Text(results), 1, inputs, outputs);
}

const cuda::RegisterCuda kSkipRMSNorm("SkipRMSNorm", &Run);

}  // namespace
}  // namespace onnxfuse
