// L2Norm for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include "custom_ops/l2_norm/kernel.h"

namespace onnxfuse {
namespace {

void Check(const Call& call) {
  const Tensor &x = call.Input(0), &scale = call.Input(1);
  const int64_t axis = x.rank() + call.IntOf("axis");
  if (axis < 0) call.Fail("x must have rank ", -call.IntOf("axis"), " or more, for its axis; got ", x.shape);
  const std::vector<int64_t> want = {x.shape[static_cast<size_t>(axis)]};
  if (scale.is_given && scale.shape != want) call.Fail("scale must have the shape ", want, "; got ", scale.shape);
}

void Compute(const Call& call) {
  const Tensor &x = call.Input(0), &scale = call.Input(1);
  const int64_t axis = x.rank() + call.IntOf("axis");
  const Tensor y = call.Output(0);
  ForFloatType(x.type, [&]<typename T>() {
    L2NormCpu(x.As<T>(), scale.As<T>(), y.As<T>(), x.Count(0, axis), x.Count(axis, axis + 1),
              x.Count(axis + 1, x.rank()), call.FloatOf("epsilon"), call.Parallel());
  });
}

const Register kL2Norm({
    .signature = "L2Norm(x: T[...], scale: T?) -> (y: T[...])",
    .types = {{"T", FloatTypes()}},
    .attributes = {Int("axis", -1, -64, -1), Float("epsilon", 1e-12f, 0.0f)},
    .check = &Check,
    .compute = &Compute,
    .inplace = Inplace<0, 0>::kTable,
});

}  // namespace
}  // namespace onnxfuse
