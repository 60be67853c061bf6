// The kernels of a node as text, for tools: `onnxfuse kernels show`, the table of registers, tests. No GPU is needed.

#include <algorithm>
#include <cstring>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "custom_ops/_runtime/call.h"
#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/cuda/program_run.h"

#if defined(_WIN32)
#define ONNXFUSE_EXPORT __declspec(dllexport)
#else
#define ONNXFUSE_EXPORT __attribute__((visibility("default")))
#endif

namespace onnxfuse::cuda {
namespace {

using Texts = std::map<std::string, std::string>;

// A call with sizes and no memory, of an op that is no part of a session.
class ShownCall final : public NodeCall {
 public:
  ShownCall(const NodeFacts& node, std::vector<Tensor> inputs, size_t output_count)
      : NodeCall(node), output_count_(output_count) {
    inputs.resize(node.op.signature.inputs.size());
    Bind(std::move(inputs));
  }
  Tensor Output(size_t index) const override {
    Tensor tensor = Expected(index);
    tensor.is_given = index < output_count_;
    tensor.data = Nowhere(node_.op.signature.inputs.size() + index);
    return tensor;
  }
  const ParallelFor& Parallel() const override { return serial_; }

 private:
  const size_t output_count_;
  const ParallelFor serial_ = SerialFor();
};

AttributeValue ValueFrom(const Attribute& attribute, const Texts& given) {
  AttributeValue value{.i = attribute.int_default, .f = attribute.float_default};
  const auto found = given.find(attribute.name);
  if (found == given.end()) return attribute.kind == Attribute::Kind::kChoice ? AttributeValue{} : value;
  const std::string& text = found->second;
  if (attribute.kind == Attribute::Kind::kInt) value.i = std::stoll(text);
  if (attribute.kind == Attribute::Kind::kFloat) value.f = std::stof(text);
  if (attribute.kind == Attribute::Kind::kChoice) {
    value.i = std::find(attribute.choices.begin(), attribute.choices.end(), text) - attribute.choices.begin();
  }
  return value;
}

// The type that each type variable has with these inputs; its first where none of them tells.
std::vector<Type> TypesWith(const OpSpec& spec, const Signature& signature, const std::vector<Tensor>& inputs) {
  std::vector<Type> types;
  for (const TypeVariable& variable : spec.types) {
    types.push_back(variable.types.front());
    for (size_t i = 0; i < std::min(inputs.size(), signature.inputs.size()); ++i) {
      if (inputs[i].is_given && signature.inputs[i].type == variable.name) types.back() = inputs[i].type;
    }
  }
  return types;
}

bool ShowNamed(const std::string& name, const Texts& attributes, const std::vector<Tensor>& inputs, size_t output_count,
               Queue* queue) {
  const Form* form = FormOf(name);
  for (const OpSpec& spec : AllOps()) {
    const Signature signature = Signature::Parse(spec.signature);
    if (signature.name != name || form == nullptr || !form->is_generated) continue;
    const CustomOp op(spec, signature, TypesWith(spec, signature, inputs), nullptr, {}, form);
    NodeFacts node{op, name, {}, {}};
    for (const Attribute& attribute : spec.attributes) node.attributes.push_back(ValueFrom(attribute, attributes));
    const ShownCall call(node, inputs, output_count);
    if (spec.check != nullptr) spec.check(call);
    form->run(call, *queue);
    return true;
  }
  return false;
}

void ShowProgram(const Texts& attributes, const std::vector<Tensor>& inputs, Queue* queue) {
  const std::string& text = attributes.at("program");
  const auto axes = attributes.find("axes");
  const Program program = Program::Parse(text);
  RunProgram(
      program, text,
      !program.HasReduction()    ? 0
      : axes == attributes.end() ? 1
                                 : std::stoll(axes->second),
      inputs, [](size_t, const Tensor& expected) { return expected; }, queue);
}

// Each program: a line `<bytes of the program> <bytes of the source> <grid x> <grid y> <threads> <kernel>...`, then both.
std::string Framed(const std::vector<Shown>& shown) {
  std::ostringstream text;
  for (const Shown& one : shown) {
    text << one.program.size() << " " << one.source.size() << " " << one.launch.grid_x << " " << one.launch.grid_y
         << " " << one.launch.threads;
    for (const std::string& name : one.names) text << " " << name;
    text << "\n" << one.program << one.source;
  }
  return text.str();
}

}  // namespace
}  // namespace onnxfuse::cuda

// Writes the kernels of a node, at most `room` bytes of them, and returns how many bytes they are; or -1 and the reason
// where there are none. Attributes as text; types by their ONNX numbers, 0 for an input that is not given; sizes of all
// inputs one after another.
extern "C" ONNXFUSE_EXPORT int64_t OnnxfuseShowKernels(const char* op, int attribute_count, const char* const* names,
                                                       const char* const* values, int input_count, const int* types,
                                                       const int* ranks, const int64_t* sizes, int output_count,
                                                       char* text, int64_t room) {
  using namespace onnxfuse;
  int64_t result = -1;
  std::string found;
  try {
    cuda::Texts attributes;
    for (int i = 0; i < attribute_count; ++i) attributes[names[i]] = values[i];
    std::vector<Tensor> inputs;
    for (int i = 0; i < input_count; sizes += ranks[i++]) {
      void* memory = cuda::Nowhere(static_cast<size_t>(i));
      inputs.push_back(Tensor{memory, types[i] != 0, static_cast<Type>(types[i]), {sizes, sizes + ranks[i]}});
    }
    cuda::NodeKernels kernels;
    std::vector<cuda::Shown> shown;
    cuda::Queue queue(nullptr, &kernels, nullptr, &shown);
    if (attributes.count("program") != 0) {
      cuda::ShowProgram(attributes, inputs, &queue);
    } else if (!cuda::ShowNamed(op, attributes, inputs, static_cast<size_t>(output_count), &queue)) {
      throw std::runtime_error(std::string(op) + " has no generated CUDA kernel");
    }
    found = cuda::Framed(shown);
    result = static_cast<int64_t>(found.size());
  } catch (const std::exception& error) {
    found = error.what();
  }
  if (room > 0) {
    const size_t size = std::min(found.size(), static_cast<size_t>(room - 1));
    std::memcpy(text, found.data(), size);
    text[size] = '\0';
  }
  return result;
}
