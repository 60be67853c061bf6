// Gelu for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include "custom_ops/gelu/kernel.h"

namespace onnxfuse {
namespace {

void Compute(const Call& call) {
  const Tensor &x = call.Input(0), &bias = call.Input(1);
  const Tensor y = call.Output(0);
  const bool is_tanh = call.ChoiceOf("approximate") == 1;
  ForFloatType(x.type, [&]<typename T>() {
    GeluCpu(x.As<T>(), bias.As<T>(), y.As<T>(), x.Rows(), x.Columns(), is_tanh, call.Parallel());
  });
}

const Register kGelu({
    .signature = "Gelu(x: T[..., n], bias: T[n]?) -> (y: T[..., n])",
    .types = {{"T", FloatTypes()}},
    .attributes = {Choice("approximate", {"none", "tanh"})},
    .compute = &Compute,
    .inplace = Inplace<0, 0>::kTable,
});

}  // namespace
}  // namespace onnxfuse
