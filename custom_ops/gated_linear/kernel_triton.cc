// GatedLinear on a GPU: kernel_triton.py, compiled.
#include "custom_ops/_runtime/cuda/compiled.h"
#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/program.h"
#include "custom_ops/gated_linear/read.h"

namespace onnxfuse {
namespace {

using namespace gated_linear;

// What the kernels ask for; kernel_triton.py says what each is.
#define ONNXFUSE_GATED_LINEAR_VALUES(X)                                                                               \
  X(x) X(weight) X(bias) X(y) X(activation_alpha) X(rows) X(columns) X(depth) X(weight_depth) X(weight_column)         \
  X(gate_column) X(up_column) X(activation) X(has_bias)
ONNXFUSE_KERNEL_VALUES(ONNXFUSE_GATED_LINEAR_VALUES)

const cuda::CompiledKernels& KernelsFor(const cuda::Device& device) {
  return cuda::CompiledKernels::Of("GatedLinear", Names(), device);
}

std::string GroupOf(Type type) { return std::string("tile dtype=") + NameOf(type); }

bool Exists(const cuda::Device& device, std::string* why) {
  std::vector<std::string> groups;
  for (const Type type : FloatTypes()) groups.push_back(GroupOf(type));
  return cuda::AreCompiled(KernelsFor(device), groups, device, why);
}

template <typename T>
cuda::Values ValuesOf(const GatedLinearArgs<T>& args) {
  cuda::Values values(Names().size());
  values.Set(value::x, args.x);
  values.Set(value::weight, args.weight);
  values.Set(value::bias, args.bias);
  values.Set(value::y, args.y);
  values.Set(value::activation_alpha, args.alpha);
  values.Set(value::rows, args.rows);
  values.Set(value::columns, args.cols);
  values.Set(value::depth, args.depth);
  values.Set(value::weight_depth, args.is_transposed ? 1 : 2 * args.cols);
  values.Set(value::weight_column, args.is_transposed ? args.depth : 1);
  values.Set(value::gate_column, args.gate_column());
  values.Set(value::up_column, args.up_column());
  values.Set(value::activation, static_cast<int64_t>(args.gate));
  values.Set(value::has_bias, int64_t{args.bias != nullptr});
  return values;
}

template <typename T>
void RunTyped(const Call& call, cuda::Queue& queue) {
  const GatedLinearArgs<T> args = ReadGatedLinear<T>(call);
  if (args.rows * args.cols == 0) return;
  const cuda::Values values = ValuesOf(args);
  const std::string group = GroupOf(call.Input(kX).type);
  const cuda::CompiledKernel& kernel = cuda::Required(KernelsFor(queue.device()), group, values);
  const int64_t m = kernel.Tile("m"), n = kernel.Tile("n");
  queue.Start(kernel, (args.rows + m - 1) / m * ((args.cols + n - 1) / n), values);
}

void Run(const Call& call, cuda::Queue& queue) {
  ForFloatType(call.Input(kX).type, [&]<typename T>() { RunTyped<T>(call, queue); });
}

const cuda::RegisterCuda kGatedLinear("GatedLinear", &Run, &Exists);

}  // namespace
}  // namespace onnxfuse
