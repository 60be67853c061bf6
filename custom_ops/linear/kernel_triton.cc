// Linear on a GPU: kernel_triton.py, compiled; or cuBLASLt, where it is wanted.
#include <array>

#include "custom_ops/_runtime/cuda/compiled.h"
#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/program.h"
#include "custom_ops/linear/read.h"

namespace onnxfuse {
namespace {

using namespace linear;

// What the kernels ask for; kernel_triton.py says what each is.
#define ONNXFUSE_LINEAR_VALUES(X)                                                                              \
  X(x) X(weight) X(bias) X(residual) X(y) X(alpha) X(activation_alpha) X(activation_beta) X(rows) X(columns)   \
  X(depth) X(weight_depth) X(weight_column) X(activation) X(has_bias) X(has_residual) X(residual_last)

namespace value {
enum Name : int {
#define ONNXFUSE_ENUMERATOR(name) name,
  ONNXFUSE_LINEAR_VALUES(ONNXFUSE_ENUMERATOR)
#undef ONNXFUSE_ENUMERATOR
};
}  // namespace value

const std::vector<std::string>& Names() {
#define ONNXFUSE_TEXT(name) #name,
  static const std::vector<std::string> names = {ONNXFUSE_LINEAR_VALUES(ONNXFUSE_TEXT)};
#undef ONNXFUSE_TEXT
  return names;
}

// The number of an activation in ACTIVATIONS of kernel_triton.py.
int64_t CodeOf(Activation activation) {
  constexpr std::array kOrder = {Activation::kNone,        Activation::kRelu,      Activation::kGelu,
                                 Activation::kGeluTanh,    Activation::kSilu,      Activation::kSigmoid,
                                 Activation::kTanh,        Activation::kClip,      Activation::kLeakyRelu,
                                 Activation::kHardSigmoid, Activation::kHardSwish, Activation::kSquaredRelu};
  int64_t code = 0;
  while (kOrder[static_cast<size_t>(code)] != activation) ++code;
  return code;
}

const cuda::CompiledKernels& KernelsFor(const cuda::Device& device) {
  return cuda::CompiledKernels::Of("Linear", Names(), device);
}

std::string GroupOf(Type type) { return std::string("tile dtype=") + NameOf(type); }

bool Exists(const cuda::Device& device, std::string* why) {
  std::vector<std::string> groups;
  for (const Type type : FloatTypes()) groups.push_back(GroupOf(type));
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
  values.Set(value::activation, CodeOf(args.activation));
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

template <typename T>
void RunTyped(const Call& call, cuda::Queue& queue) {
  const LinearArgs<T> args = ReadLinear<T>(call);
  if (args.rows * args.cols == 0 || RunByCublasLt(args, call.Input(kX).type, queue)) return;
  const cuda::Values values = ValuesOf(args);
  const std::string group = GroupOf(call.Input(kX).type);
  const cuda::CompiledKernel* kernel = KernelsFor(queue.device()).Find(group, values);
  // A group without a kernel for whatever comes is not registered.
  if (kernel == nullptr) throw cuda::DeviceError("no compiled kernel is there for " + group);
  const int64_t m = kernel->Tile("m"), n = kernel->Tile("n");
  queue.Start(*kernel, (args.rows + m - 1) / m * ((args.cols + n - 1) / n), values);
}

void Run(const Call& call, cuda::Queue& queue) {
  ForFloatType(call.Input(kX).type, [&]<typename T>() { RunTyped<T>(call, queue); });
}

const cuda::RegisterCuda kLinear("Linear", &Run, &Exists);

}  // namespace
}  // namespace onnxfuse
