// SquaredRelu for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include "custom_ops/squared_relu/kernel.h"

namespace onnxfuse {
namespace {

void Compute(const Call& call) {
  const Tensor &x = call.Input(0), &bias = call.Input(1);
  const Tensor y = call.Output(0);
  ForFloatType(x.type, [&]<typename T>() {
    SquaredReluCpu(x.As<T>(), bias.As<T>(), y.As<T>(), x.Rows(), x.Columns(), call.Parallel());
  });
}

const Register kSquaredRelu({
    .signature = "SquaredRelu(x: T[..., n], bias: T[n]?) -> (y: T[..., n])",
    .types = {{"T", FloatTypes()}},
    .attributes = {},
    .compute = &Compute,
    .inplace = Inplace<0, 0>::kTable,
});

}  // namespace
}  // namespace onnxfuse
