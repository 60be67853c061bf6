// MaskedSoftmax for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include <limits>

#include "custom_ops/masked_softmax/kernel.h"

namespace onnxfuse {
namespace {

// Mask elements from one index to the next of each axis of x, 0 where the mask is broadcast.
std::vector<int64_t> MaskSteps(const Call& call, const Tensor& x, const Tensor& mask) {
  std::vector<int64_t> steps(x.shape.size(), 0);
  int64_t step = 1;
  for (int64_t back = 1; back <= mask.rank(); ++back) {
    const int64_t size = mask.shape[static_cast<size_t>(mask.rank() - back)];
    const int64_t axis = x.rank() - back;
    if (axis < 0 || (size != 1 && size != x.shape[static_cast<size_t>(axis)]))
      call.Fail("mask must broadcast to x ", x.shape, "; got ", mask.shape);
    steps[static_cast<size_t>(axis)] = size == 1 ? 0 : step;
    step *= size;
  }
  return steps;
}

// Adds an axis inside the last one, as part of it where the mask is walked as if the two were one.
void AddAxis(const Call& call, const Tensor& x, int64_t size, int64_t step, MaskedSoftmaxArgs* args) {
  if (size == 1) return;
  const int last = args->axes - 1;
  if (last >= 0 && args->mask_steps[last] == size * step) {
    args->sizes[last] *= size;
    args->mask_steps[last] = step;
    return;
  }
  if (args->axes == kSoftmaxAxes)
    call.Fail("x must have at most ", kSoftmaxAxes, " leading axes that the mask walks differently; got ", x.shape);
  args->sizes[args->axes] = size;
  args->mask_steps[args->axes] = step;
  ++args->axes;
}

SoftmaxMask KindOf(const Tensor& mask) {
  switch (mask.type) {
    case Type::kBool: return SoftmaxMask::kBool;
    case Type::kFloat: return SoftmaxMask::kFloat;
    case Type::kFloat16: return SoftmaxMask::kHalf;
    case Type::kBFloat16: return SoftmaxMask::kBFloat16;
    default: return SoftmaxMask::kNone;
  }
}

void Check(const Call& call) {
  const Tensor& x = call.Input(0);
  if (x.rank() == 0) call.Fail("x must have rank 1 or more; got ", x.shape);
  if (call.FloatOf("mask_value") == std::numeric_limits<float>::infinity())
    call.Fail("mask_value must be finite or -inf; got ", call.FloatOf("mask_value"));
  MaskSteps(call, x, call.Input(1));
}

void Compute(const Call& call) {
  const Tensor &x = call.Input(0), &mask = call.Input(1);
  MaskedSoftmaxArgs args;
  args.rows = x.Rows();
  args.cols = x.Columns();
  args.scale = call.FloatOf("scale");
  args.mask_value = call.FloatOf("mask_value");
  args.zero_masked_rows = call.IntOf("zero_masked_rows") != 0;
  const std::vector<int64_t> steps = MaskSteps(call, x, mask);
  for (size_t axis = 0; axis + 1 < steps.size(); ++axis) AddAxis(call, x, x.shape[axis], steps[axis], &args);
  args.mask = mask.data;
  args.mask_kind = mask.is_given ? KindOf(mask) : SoftmaxMask::kNone;
  args.mask_column = steps.back();
  const Tensor y = call.Output(0);
  ForFloatType(x.type, [&]<typename T>() { MaskedSoftmaxCpu(x.As<T>(), y.As<T>(), args, call.Parallel()); });
}

const Register kMaskedSoftmax({
    .signature = "MaskedSoftmax(x: T[...], mask: M?) -> (y: T[...])",
    .types = {{"T", FloatTypes()}, {"M", {Type::kBool, Type::kFloat, Type::kFloat16, Type::kBFloat16}}},
    .attributes = {Float("scale", 1.0f), AnyFloat("mask_value", -std::numeric_limits<float>::infinity()),
                   Int("zero_masked_rows", 0, 0, 1)},
    .check = &Check,
    .compute = &Compute,
    .inplace = Inplace<0, 0>::kTable,
});

}  // namespace
}  // namespace onnxfuse
