// Linear on a GPU: kernel_triton.py, compiled; or cuBLASLt, where it is wanted or was measured to be the faster one.
//
// A product of few blocks leaves a GPU idle: its depth is split over more, and the parts are added up by a second kernel.
#include <algorithm>

#include "custom_ops/_runtime/cuda/compiled.h"
#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/program.h"
#include "custom_ops/linear/read.h"

namespace onnxfuse {
namespace {

using namespace linear;

// What the kernels ask for; kernel_triton.py says what each is.
#define ONNXFUSE_LINEAR_VALUES(X)                                                                              \
  X(x) X(weight) X(bias) X(residual) X(y) X(partial) X(alpha) X(activation_alpha) X(activation_beta) X(rows)   \
  X(columns) X(depth) X(weight_depth) X(weight_column) X(activation) X(has_bias) X(has_residual)               \
  X(residual_last) X(splits) X(split_depth)
ONNXFUSE_KERNEL_VALUES(ONNXFUSE_LINEAR_VALUES)

constexpr int64_t kMostSplits = 32;
constexpr int64_t kBlocksOfMultiprocessor = 2;
constexpr int64_t kLeastStepsOfSplit = 4;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

const cuda::CompiledKernels& KernelsFor(const cuda::Device& device) {
  return cuda::CompiledKernels::Of("Linear", Names(), device);
}

std::string GroupOf(const char* role, Type type) { return std::string(role) + " dtype=" + NameOf(type); }

bool Exists(const cuda::Device& device, std::string* why) {
  std::vector<std::string> groups;
  for (const Type type : FloatTypes()) groups.push_back(GroupOf("tile", type));
  return cuda::AreCompiled(KernelsFor(device), groups, device, why);
}

template <typename T>
cuda::Values ValuesOf(const LinearArgs<T>& args) {
  cuda::Values values(Names().size());
  values.Set(value::x, args.x);
  values.Set(value::weight, args.weight);
  values.Set(value::bias, args.bias);
  values.Set(value::residual, args.residual);
  values.Set(value::y, args.y);
  values.Set(value::alpha, args.alpha);
  values.Set(value::activation_alpha, args.a);
  values.Set(value::activation_beta, args.b);
  values.Set(value::rows, args.rows);
  values.Set(value::columns, args.cols);
  values.Set(value::depth, args.depth);
  values.Set(value::weight_depth, args.is_transposed ? 1 : args.cols);
  values.Set(value::weight_column, args.is_transposed ? args.depth : 1);
  values.Set(value::activation, static_cast<int64_t>(args.activation));
  values.Set(value::has_bias, int64_t{args.bias != nullptr});
  values.Set(value::has_residual, int64_t{args.residual != nullptr});
  values.Set(value::residual_last, int64_t{args.is_residual_last});
  return values;
}

// Whether cuBLASLt does it: where it is wanted, and has what comes after the product.
template <typename T>
bool RunByCublasLt(const LinearArgs<T>& args, Type type, cuda::Queue& queue) {
  using Known = cuda::Product::Activation;
  const Activation wanted = args.activation;
  const bool is_plain = wanted == Activation::kNone;
  if (!is_plain && wanted != Activation::kRelu && wanted != Activation::kGeluTanh) return false;
  if (!is_plain && args.residual != nullptr && args.is_residual_last) return false;
  const Known known = is_plain ? Known::kNone : wanted == Activation::kRelu ? Known::kRelu : Known::kGeluTanh;
  return queue.Multiply({type, args.rows, args.cols, args.depth, args.x, args.weight, args.bias, args.residual, args.y,
                         args.is_transposed, args.alpha, known});
}

// Into how many parts the depth is split: as many as keep all multiprocessors at work, but none of few steps, and no more
// than that their sums, written and read, stay below the weights.
template <typename T>
int64_t PartsOf(const LinearArgs<T>& args, const cuda::CompiledKernel& split, int64_t blocks, int multiprocessors) {
  const int64_t most_by_depth = args.depth / (kLeastStepsOfSplit * split.Tile("k"));
  const int64_t most_by_memory =
      args.depth * static_cast<int64_t>(sizeof(T)) / (2 * static_cast<int64_t>(sizeof(float)) * args.rows);
  return std::min({kBlocksOfMultiprocessor * multiprocessors / blocks, kMostSplits, most_by_depth, most_by_memory});
}

// Whether the depth was split over blocks: not where there are blocks enough without.
template <typename T>
bool RunSplit(const LinearArgs<T>& args, Type type, cuda::Values& values, cuda::Queue& queue) {
  const cuda::CompiledKernels& kernels = KernelsFor(queue.device());
  const cuda::CompiledKernel* split = kernels.Find(GroupOf("split", type), values);
  const cuda::CompiledKernel* combine = kernels.Find(GroupOf("combine", type), values);
  if (split == nullptr || combine == nullptr) return false;
  const int64_t blocks = CeilDiv(args.rows, split->Tile("m")) * CeilDiv(args.cols, split->Tile("n"));
  const int64_t parts = PartsOf(args, *split, blocks, queue.device().multiprocessors());
  if (parts < 2) return false;
  const int64_t step = split->Tile("k"), split_depth = CeilDiv(CeilDiv(args.depth, parts), step) * step;
  const int64_t splits = CeilDiv(args.depth, split_depth);
  values.Set(value::splits, splits);
  values.Set(value::split_depth, split_depth);
  const int64_t elements = args.rows * args.cols;
  values.Set(value::partial, queue.Scratch(static_cast<size_t>(splits * elements) * sizeof(float)));
  queue.Start(*split, splits * blocks, values);
  queue.Start(*combine, CeilDiv(elements, combine->Tile("size")), values);
  return true;
}

template <typename T>
void RunTyped(const Call& call, cuda::Queue& queue) {
  const LinearArgs<T> args = ReadLinear<T>(call);
  const Type type = call.Input(kX).type;
  if (args.rows * args.cols == 0 || RunByCublasLt(args, type, queue)) return;
  cuda::Values values = ValuesOf(args);
  if (RunSplit(args, type, values, queue)) return;
  const cuda::CompiledKernel& kernel = cuda::Required(KernelsFor(queue.device()), GroupOf("tile", type), values);
  queue.Start(kernel, CeilDiv(args.rows, kernel.Tile("m")) * CeilDiv(args.cols, kernel.Tile("n")), values);
}

void Run(const Call& call, cuda::Queue& queue) {
  ForFloatType(call.Input(kX).type, [&]<typename T>() { RunTyped<T>(call, queue); });
}

const cuda::RegisterCuda kLinear("Linear", &Run, &Exists);

}  // namespace
}  // namespace onnxfuse
