#include "custom_ops/_runtime/call.h"

#include <algorithm>

namespace onnxfuse {

namespace {

void ReadSizes(const OrtApi* api, const OrtValue* value, bool lends_sizes, Tensor* tensor) {
  OrtElementType type = kOrtUndefined;
  if (lends_sizes) {
    const int64_t* sizes = nullptr;
    size_t rank = 0;
    Check(ort::GetTensorElementTypeAndShapeDataReference(api)(value, &type, &sizes, &rank));
    tensor->shape.assign(sizes, sizes + rank);
  } else {
    OrtTensorTypeAndShapeInfo* made = nullptr;
    Check(ort::GetTensorTypeAndShape(api)(value, &made));
    const TypeAndShape info(api, made);
    Check(ort::GetTensorElementType(api)(info.get(), &type));
    tensor->shape = SizesOf(api, info.get());
  }
  tensor->type = static_cast<Type>(type);
}

}  // namespace

Tensor ReadInput(const OrtApi* api, OrtKernelContext* context, size_t index, bool lends_sizes) {
  Tensor tensor;
  const OrtValue* value = nullptr;
  Check(ort::KernelContext_GetInput(api)(context, index, &value));
  if (value == nullptr) return tensor;
  ReadSizes(api, value, lends_sizes, &tensor);
  tensor.is_given = true;
  Check(ort::GetTensorMutableData(api)(const_cast<OrtValue*>(value), &tensor.data));
  return tensor;
}

Tensor MakeOutput(const OrtApi* api, OrtKernelContext* context, size_t index, Tensor expected) {
  OrtValue* value = nullptr;
  Check(ort::KernelContext_GetOutput(api)(context, index, expected.shape.data(), expected.shape.size(), &value));
  if (value == nullptr) return expected;
  expected.is_given = true;
  Check(ort::GetTensorMutableData(api)(value, &expected.data));
  return expected;
}

std::string NodeName(const OrtApi* api, const OrtKernelInfo* info) {
  size_t size = 0;
  Check(ort::KernelInfo_GetNodeName(api)(info, nullptr, &size));
  std::string name(size, '\0');
  Check(ort::KernelInfo_GetNodeName(api)(info, name.data(), &size));
  name.resize(size - 1);  // without the closing 0
  return name;
}

std::unique_ptr<Keeper> KeeperOf(const CustomOp& op, const OrtKernelInfo* info) {
  if (op.spec.kept_input < 0) return nullptr;
  int is_constant = 0;
  const OrtValue* value = nullptr;
  const auto index = static_cast<size_t>(op.spec.kept_input);
  Check(ort::KernelInfoGetConstantInput_tensor(op.api)(info, index, &is_constant, &value));
  return is_constant != 0 ? std::make_unique<Keeper>() : nullptr;
}

Sizes SizesOf(const OrtApi* api, const OrtTensorTypeAndShapeInfo* info) {
  size_t rank = 0;
  Check(ort::GetDimensionsCount(api)(info, &rank));
  Sizes sizes(rank);
  Check(ort::GetDimensions(api)(info, sizes.data(), rank));
  return sizes;
}

Dims ToDims(const Sizes& sizes) {
  Dims dims;
  for (const int64_t size : sizes) dims.push_back({size, ""});
  return dims;
}

OutputShapes::OutputShapes(const CustomOp& op, const Node& node, const Binding& binding,
                           const std::vector<Dims>& inputs) {
  if (op.spec.output_shapes != nullptr) {
    dims = op.spec.output_shapes(node, inputs);
    is_known.assign(dims.size(), true);
    return;
  }
  for (const Param& param : op.signature.outputs) {
    Dims one;
    is_known.push_back(binding.Resolve(param, &one));
    dims.push_back(std::move(one));
  }
}

const AttributeValue& ValueOf(const std::vector<Attribute>& attributes, const std::vector<AttributeValue>& values,
                              const char* name) {
  const auto found =
      std::find_if(attributes.begin(), attributes.end(), [&](const Attribute& a) { return a.name == name; });
  return values.at(static_cast<size_t>(found - attributes.begin()));
}

LastSizes::Outputs LastSizes::Recall(const std::vector<Tensor>& inputs) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool is_same =
      std::equal(inputs.begin(), inputs.end(), inputs_.begin(), inputs_.end(),
                 [](const Tensor& a, const Tensor& b) { return a.is_given == b.is_given && a.shape == b.shape; });
  return is_same ? outputs_ : nullptr;
}

void LastSizes::Keep(const std::vector<Tensor>& inputs, Outputs outputs) {
  const std::lock_guard<std::mutex> lock(mutex_);
  inputs_ = inputs;
  for (Tensor& input : inputs_) input.data = nullptr;
  outputs_ = std::move(outputs);
}

void NodeCall::Bind(std::vector<Tensor> inputs) {
  inputs_ = std::move(inputs);
  outputs_ = node_.last->Recall(inputs_);
  has_last_sizes_ = outputs_ != nullptr;
  if (!has_last_sizes_) outputs_ = std::make_shared<const std::vector<Sizes>>(SizesOfOutputs());
}

std::vector<Sizes> NodeCall::SizesOfOutputs() const {
  Binding binding;
  std::vector<Dims> dims;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Param& param = node_.op.signature.inputs[i];
    if (!inputs_[i].is_given && !param.is_optional) Fail("input ", param.name, " must be given");
    dims.push_back(ToDims(inputs_[i].shape));
    const std::string problem = inputs_[i].is_given ? binding.Add(param, dims.back()) : "";
    if (!problem.empty()) Fail(problem);
  }
  std::vector<Sizes> sizes;
  for (const Dims& output : OutputShapes(node_.op, *this, binding, dims).dims) {
    sizes.emplace_back();
    for (const Dim& dim : output) sizes.back().push_back(dim.value);
  }
  return sizes;
}

const void* NodeCall::Kept(size_t bytes, const std::function<void(void*)>& fill) const {
  auto make = [&](KeptMemory& to) {
    KeptMemory memory(::operator new(bytes, kKeptAlignment));
    fill(memory.get());
    to = std::move(memory);
    return to.get();
  };
  if (node_.keeper == nullptr) return make(own_);
  const std::lock_guard<std::mutex> lock(node_.keeper->mutex);
  return node_.keeper->memory != nullptr ? node_.keeper->memory.get() : make(node_.keeper->memory);
}

Tensor NodeCall::Expected(size_t index) const {
  Tensor tensor;
  tensor.shape = outputs_->at(index);
  tensor.type = node_.op.TypeOf(node_.op.signature.outputs[index]);
  return tensor;
}

RuntimeCall::RuntimeCall(const NodeFacts& node, OrtKernelContext* context)
    : NodeCall(node), api_(node.op.api), context_(context), pool_{api_, context}, parallel_(RuntimeThreads(&pool_)) {
  const size_t count = node.op.signature.inputs.size();
  std::vector<Tensor> inputs;
  inputs.reserve(count);
  for (size_t i = 0; i < count; ++i) inputs.push_back(ReadInput(api_, context_, i, node.op.lends_sizes));
  Bind(std::move(inputs));
}

Tensor RuntimeCall::Output(size_t index) const { return MakeOutput(api_, context_, index, Expected(index)); }

}  // namespace onnxfuse
