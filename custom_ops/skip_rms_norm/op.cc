// SkipRMSNorm for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include "custom_ops/skip_rms_norm/kernel.h"

namespace onnxfuse {
namespace {

void Compute(const Call& call) {
  const Tensor& x = call.Input(0);
  const Tensor& skip = call.Input(1);
  const Tensor& scale = call.Input(2);
  const Tensor& x_bias = call.Input(3);
  const Tensor y = call.Output(0), sum = call.Output(1);
  ForFloatType(x.type, [&]<typename T>() {
    SkipRmsNormCpu(x.As<T>(), skip.As<T>(), scale.As<T>(), x_bias.As<T>(), y.As<T>(), sum.As<T>(), x.Rows(),
                   x.Columns(), call.FloatOf("epsilon"), call.Parallel());
  });
}

const Register kSkipRMSNorm({
    .signature =
        "SkipRMSNorm(x: T[..., n], skip: T[..., n], scale: T[n]?, x_bias: T[n]?) -> (y: T[..., n], sum: T[..., n]?)",
    .types = {{"T", FloatTypes()}},
    .attributes = {Float("epsilon", 1e-5f, 0.0f)},
    .compute = &Compute,
    .inplace = Inplace<0, 0, 1, 1, 1, 0, 0, 1>::kTable,
});

}  // namespace
}  // namespace onnxfuse
