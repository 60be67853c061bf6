// ScaledTanh for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include "custom_ops/scaled_tanh/kernel.h"

namespace onnxfuse {
namespace {

void Compute(const Call& call) {
  const Tensor &x = call.Input(0), &bias = call.Input(1);
  const Tensor y = call.Output(0);
  ForFloatType(x.type, [&]<typename T>() {
    ScaledTanhCpu(x.As<T>(), bias.As<T>(), y.As<T>(), x.Rows(), x.Columns(), call.FloatOf("alpha"),
                  call.FloatOf("beta"), call.Parallel());
  });
}

const Register kScaledTanh({
    .signature = "ScaledTanh(x: T[..., n], bias: T[n]?) -> (y: T[..., n])",
    .types = {{"T", FloatTypes()}},
    .attributes = {Float("alpha", 1.0f), Float("beta", 1.0f)},
    .compute = &Compute,
    .inplace = Inplace<0, 0>::kTable,
});

}  // namespace
}  // namespace onnxfuse
