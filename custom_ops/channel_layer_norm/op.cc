// ChannelLayerNorm for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include "custom_ops/channel_layer_norm/kernel.h"

namespace onnxfuse {
namespace {

// `given` must have one number for each channel.
void RequireShape(const Call& call, int64_t channels, const char* name, const Tensor& given) {
  const std::vector<int64_t> want = {channels};
  if (given.is_given && given.shape != want) call.Fail(name, " must have the shape ", want, "; got ", given.shape);
}

void Check(const Call& call) {
  const Tensor& x = call.Input(0);
  const int64_t axis = x.rank() + call.IntOf("axis");
  if (axis < 0) call.Fail("x must have rank ", -call.IntOf("axis"), " or more, for its axis; got ", x.shape);
  RequireShape(call, x.Count(axis, axis + 1), "scale", call.Input(1));
  RequireShape(call, x.Count(axis, axis + 1), "bias", call.Input(2));
}

void Compute(const Call& call) {
  const Tensor &x = call.Input(0), &scale = call.Input(1), &bias = call.Input(2);
  const int64_t axis = x.rank() + call.IntOf("axis");
  const ColumnShape shape{x.Count(0, axis), x.Count(axis, axis + 1), x.Count(axis + 1, x.rank())};
  const Tensor y = call.Output(0);
  ForFloatType(x.type, [&]<typename T>() {
    ChannelLayerNormCpu(x.As<T>(), scale.As<T>(), bias.As<T>(), y.As<T>(), shape, call.FloatOf("epsilon"),
                        call.Parallel());
  });
}

const Register kChannelLayerNorm({
    .signature = "ChannelLayerNorm(x: T[...], scale: T?, bias: T?) -> (y: T[...])",
    .types = {{"T", FloatTypes()}},
    .attributes = {Int("axis", -3, -64, -2), Float("epsilon", 1e-5f, 0.0f)},
    .check = &Check,
    .compute = &Compute,
    .inplace = Inplace<0, 0>::kTable,
});

}  // namespace
}  // namespace onnxfuse
