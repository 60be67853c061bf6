// MaskedSoftmax on a GPU: a row is read once; its powers stay in registers.
#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/cuda/formula.h"

namespace onnxfuse {
namespace {

void Run(const Call& call, cuda::Queue& queue) {
  const Tensor &x = call.Input(0), &mask = call.Input(1);
  const Tensor y = call.Output(0);
  cuda::Formula f;
  const cuda::Term v = f.Input(x), masked = mask.type == Type::kBool ? f.BoolInput() : f.Input(mask);
  cuda::Term s = f("Mul", v, f.Number(call.FloatOf("scale")));
  s = mask.type == Type::kBool ? f("Where", masked, s, f.Number(call.FloatOf("mask_value"))) : f.Sum(s, masked);
  const cuda::Term power = f("Exp", f("Sub", s, f("ReduceMax", s)));
  cuda::Term result = f("Div", power, f("ReduceSum", power));
  if (call.IntOf("zero_masked_rows") != 0) result = f("Where", f.IsNaN(result), f.Number(0.0f), result);
  std::vector<cuda::View> inputs = {cuda::View::Of(x)};
  if (mask.is_given) inputs.push_back(cuda::View::Of(mask));
  queue.Run(f.Text({f.Output(result, y)}), 1, inputs, {cuda::View::Of(y)});
}

const cuda::RegisterCuda kMaskedSoftmax("MaskedSoftmax", &Run);

}  // namespace
}  // namespace onnxfuse
