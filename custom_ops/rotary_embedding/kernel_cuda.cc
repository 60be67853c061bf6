// RotaryEmbedding on a GPU: both elements of a pair in one thread; what does not turn is copied.
#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/cuda/formula.h"

namespace onnxfuse {
namespace {

// The first and the second elements of the pairs along the last axis, or those of a table for pairs.
struct Pairs {
  cuda::View first, second;

  Pairs(const cuda::View& view, int64_t count, bool is_interleaved) : first(view), second(view) {
    const auto last = static_cast<int64_t>(view.shape.size()) - 1;
    const bool is_full = view.shape.back() == 2 * count;
    if (!is_full) return;
    first = view.Slice(last, 0, count, is_interleaved ? 2 : 1);
    second = view.Slice(last, is_interleaved ? 1 : count, count, is_interleaved ? 2 : 1);
  }
};

void Run(const Call& call, cuda::Queue& queue) {
  const Tensor &x = call.Input(0), &cos = call.Input(1), &sin = call.Input(2);
  const Tensor y = call.Output(0);
  const int64_t last = x.rank() - 1, size = x.Columns();
  const int64_t turning = call.IntOf("rotary_dim") == 0 ? size : call.IntOf("rotary_dim");
  const bool is_interleaved = call.IntOf("interleaved") != 0;
  const Pairs from(cuda::View::Of(x).Slice(last, 0, turning), turning / 2, is_interleaved);
  const Pairs to(cuda::View::Of(y).Slice(last, 0, turning), turning / 2, is_interleaved);
  const Pairs cosines(cuda::View::Of(cos), turning / 2, is_interleaved);
  const Pairs sines(cuda::View::Of(sin), turning / 2, is_interleaved);
  cuda::Formula f;
  const cuda::Term a = f.Input(x), b = f.Input(x), cos_a = f.Input(cos), cos_b = f.Input(cos), sin_a = f.Input(sin),
                   sin_b = f.Input(sin);
  const cuda::Term first = f("Sub", f("Mul", a, cos_a), f("Mul", b, sin_a));
  const cuda::Term second = f("Add", f("Mul", b, cos_b), f("Mul", a, sin_b));
  queue.Run(f.Text({f.Output(first, y), f.Output(second, y)}), 0,
            {from.first, from.second, cosines.first, cosines.second, sines.first, sines.second}, {to.first, to.second});
  if (turning == size || x.data == y.data) return;
  cuda::Formula copy;
  const cuda::Term same = copy.Input(x);
  queue.Run(copy.Text({copy.Output(same, y)}), 0, {cuda::View::Of(x).Slice(last, turning, size - turning)},
            {cuda::View::Of(y).Slice(last, turning, size - turning)});
}

const cuda::RegisterCuda kRotaryEmbedding("RotaryEmbedding", &Run);

}  // namespace
}  // namespace onnxfuse
