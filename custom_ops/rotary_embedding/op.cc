// RotaryEmbedding for ONNX Runtime.
#include "custom_ops/_runtime/op.h"

#include "custom_ops/rotary_embedding/kernel.h"

namespace onnxfuse {
namespace {

// How far apart the rows of `table` (cos or sin) lie along each leading axis of x: 0 where it is broadcast.
std::vector<int64_t> Steps(const Call& call, const char* name, const Tensor& x, const Tensor& table, int64_t rotary_dim,
                           bool* is_full) {
  *is_full = table.Columns() == rotary_dim;
  bool fits = table.rank() >= 1 && table.rank() <= x.rank() && (*is_full || table.Columns() * 2 == rotary_dim);
  std::vector<int64_t> steps(x.shape.size() - 1, 0);
  int64_t step = table.Columns();
  for (int64_t back = 2; fits && back <= table.rank(); ++back) {
    const int64_t size = table.shape[static_cast<size_t>(table.rank() - back)];
    const auto axis = static_cast<size_t>(x.rank() - back);
    fits = size == 1 || size == x.shape[axis];
    steps[axis] = size == 1 ? 0 : step;
    step *= size;
  }
  if (!fits) {
    call.Fail(name, " must broadcast to x ", x.shape, " but for its last axis, which must be ", rotary_dim,
              " or half of it; got ", table.shape);
  }
  return steps;
}

// Adds an axis inside the last one, as part of it where cos and sin are walked as if the two were one.
void AddAxis(const Call& call, const Tensor& x, int64_t size, int64_t cos_step, int64_t sin_step,
             RotaryLayout* layout) {
  if (size == 1) return;
  const int last = layout->axes - 1;
  if (last >= 0 && layout->cos_steps[last] == size * cos_step && layout->sin_steps[last] == size * sin_step) {
    layout->sizes[last] *= size;
    layout->cos_steps[last] = cos_step;
    layout->sin_steps[last] = sin_step;
    return;
  }
  if (layout->axes == kRotaryAxes)
    call.Fail("x must have at most ", kRotaryAxes, " leading axes that differ; got ", x.shape);
  layout->sizes[layout->axes] = size;
  layout->cos_steps[layout->axes] = cos_step;
  layout->sin_steps[layout->axes] = sin_step;
  ++layout->axes;
}

int64_t RotaryDim(const Call& call) {
  return call.IntOf("rotary_dim") == 0 ? call.Input(0).Columns() : call.IntOf("rotary_dim");
}

void Check(const Call& call) {
  const Tensor& x = call.Input(0);
  const int64_t rotary_dim = RotaryDim(call);
  if (rotary_dim % 2 != 0 || rotary_dim > x.Columns()) {
    call.Fail("rotary_dim must be even and at most the last axis of x ", x.shape, "; got ", rotary_dim);
  }
  bool is_full = false;
  Steps(call, "cos", x, call.Input(1), rotary_dim, &is_full);
  Steps(call, "sin", x, call.Input(2), rotary_dim, &is_full);
}

void Compute(const Call& call) {
  const Tensor &x = call.Input(0), &cos = call.Input(1), &sin = call.Input(2);
  RotaryLayout layout;
  layout.row_size = x.Columns();
  layout.rotary_dim = RotaryDim(call);
  layout.is_interleaved = call.IntOf("interleaved") != 0;
  const std::vector<int64_t> cos_steps = Steps(call, "cos", x, cos, layout.rotary_dim, &layout.is_cos_full);
  const std::vector<int64_t> sin_steps = Steps(call, "sin", x, sin, layout.rotary_dim, &layout.is_sin_full);
  for (size_t axis = 0; axis + 1 < x.shape.size(); ++axis)
    AddAxis(call, x, x.shape[axis], cos_steps[axis], sin_steps[axis], &layout);
  const Tensor y = call.Output(0);
  ForFloatType(x.type, [&]<typename T>() {
    RotaryEmbeddingCpu(x.As<T>(), cos.As<T>(), sin.As<T>(), y.As<T>(), layout, call.Parallel());
  });
}

const Register kRotaryEmbedding({
    .signature = "RotaryEmbedding(x: T[..., d], cos: T, sin: T) -> (y: T[..., d])",
    .types = {{"T", FloatTypes()}},
    .attributes = {Int("interleaved", 0, 0, 1), Int("rotary_dim", 0, 0)},
    .check = &Check,
    .compute = &Compute,
    .inplace = Inplace<0, 0>::kTable,
});

}  // namespace
}  // namespace onnxfuse
