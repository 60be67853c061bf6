// LayerNorm for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include "custom_ops/layer_norm/kernel.h"

namespace onnxfuse {
namespace {

// `given` must have exactly the axes of x that are normalised.
void RequireShape(const Call& call, const Tensor& x, int64_t axis, const char* name, const Tensor& given) {
  const std::vector<int64_t> want(x.shape.begin() + axis, x.shape.end());
  if (given.is_given && given.shape != want) call.Fail(name, " must have the shape ", want, "; got ", given.shape);
}

void Check(const Call& call) {
  const Tensor &x = call.Input(0), &scale = call.Input(1), &bias = call.Input(2);
  const int64_t axis = x.rank() + call.IntOf("axis");
  if (axis < 0) call.Fail("x must have rank ", -call.IntOf("axis"), " or more, for its axis; got ", x.shape);
  RequireShape(call, x, axis, "scale", scale);
  RequireShape(call, x, axis, "bias", bias);
}

void Compute(const Call& call) {
  const Tensor &x = call.Input(0), &scale = call.Input(1), &bias = call.Input(2);
  const int64_t axis = x.rank() + call.IntOf("axis");
  const Tensor y = call.Output(0);
  ForFloatType(x.type, [&]<typename T>() {
    LayerNormCpu(x.As<T>(), scale.As<T>(), bias.As<T>(), y.As<T>(), x.Count(0, axis), x.Count(axis, x.rank()),
                 call.FloatOf("epsilon"), call.Parallel());
  });
}

const Register kLayerNorm({
    .signature = "LayerNorm(x: T[...], scale: T?, bias: T?) -> (y: T[...])",
    .types = {{"T", FloatTypes()}},
    .attributes = {Int("axis", -1, -64, -1), Float("epsilon", 1e-5f, 0.0f)},
    .check = &Check,
    .compute = &Compute,
    .inplace = Inplace<0, 0>::kTable,
});

}  // namespace
}  // namespace onnxfuse
