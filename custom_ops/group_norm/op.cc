// GroupNorm for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include "custom_ops/group_norm/kernel.h"

namespace onnxfuse {
namespace {

// `given` must have one number for each channel.
void RequireShape(const Call& call, int64_t channels, const char* name, const Tensor& given) {
  const std::vector<int64_t> want = {channels};
  if (given.is_given && given.shape != want) call.Fail(name, " must have the shape ", want, "; got ", given.shape);
}

void Check(const Call& call) {
  const Tensor& x = call.Input(0);
  if (x.rank() < 2) call.Fail("x must have rank 2 or more; got ", x.shape);
  const int64_t channels = x.shape[1], groups = call.IntOf("num_groups");
  if (channels % groups != 0) call.Fail("x must have a multiple of num_groups = ", groups, " channels; got ", x.shape);
  RequireShape(call, channels, "scale", call.Input(1));
  RequireShape(call, channels, "bias", call.Input(2));
}

void Compute(const Call& call) {
  const Tensor &x = call.Input(0), &scale = call.Input(1), &bias = call.Input(2);
  const int64_t channels = x.shape[1], groups = call.IntOf("num_groups");
  const Tensor y = call.Output(0);
  const GroupNormShape shape{x.shape[0], groups, channels / groups, x.Count(2, x.rank())};
  ForFloatType(x.type, [&]<typename T>() {
    GroupNormCpu(x.As<T>(), scale.As<T>(), bias.As<T>(), y.As<T>(), shape, call.FloatOf("epsilon"),
                 call.ChoiceOf("activation") == 1, call.Parallel());
  });
}

const Register kGroupNorm({
    .signature = "GroupNorm(x: T[...], scale: T?, bias: T?) -> (y: T[...])",
    .types = {{"T", FloatTypes()}},
    .attributes = {Int("num_groups", 1, 1), Float("epsilon", 1e-5f, 0.0f), Choice("activation", {"none", "silu"})},
    .check = &Check,
    .compute = &Compute,
    .inplace = Inplace<0, 0>::kTable,
});

}  // namespace
}  // namespace onnxfuse
