#include "custom_ops/_runtime/adapter.h"

#include <algorithm>
#include <stdexcept>

#include "custom_ops/_runtime/attributes.h"
#include "custom_ops/_runtime/pool.h"

namespace onnxfuse {
namespace {

// A node that the runtime will run: what is known once the model is loaded.
struct Kernel {
  const CustomOp& op;
  std::string name;  // the node's
  std::vector<AttributeValue> attributes;
};

std::string NodeName(const OrtApi* api, const OrtKernelInfo* info) {
  size_t size = 0;
  Check(ort::KernelInfo_GetNodeName(api)(info, nullptr, &size));
  std::string name(size, '\0');
  Check(ort::KernelInfo_GetNodeName(api)(info, name.data(), &size));
  name.resize(size - 1);  // without the closing 0
  return name;
}

std::string Headline(const CustomOp& op, const std::string& node) {
  return "onnxfuse " + op.signature.name + " '" + node + "': ";
}

// The runtime's ownership of a type-and-shape record that it made for us.
class TypeAndShape {
 public:
  TypeAndShape(const OrtApi* api, OrtTensorTypeAndShapeInfo* info) : api_(api), info_(info) {}
  TypeAndShape(const TypeAndShape&) = delete;
  ~TypeAndShape() { ort::ReleaseTensorTypeAndShapeInfo(api_)(info_); }
  OrtTensorTypeAndShapeInfo* get() const { return info_; }

 private:
  const OrtApi* api_;
  OrtTensorTypeAndShapeInfo* info_;
};

std::vector<int64_t> SizesOf(const OrtApi* api, const OrtTensorTypeAndShapeInfo* info) {
  size_t rank = 0;
  Check(ort::GetDimensionsCount(api)(info, &rank));
  std::vector<int64_t> sizes(rank);
  Check(ort::GetDimensions(api)(info, sizes.data(), rank));
  return sizes;
}

Dims ToDims(const std::vector<int64_t>& sizes) {
  Dims dims;
  for (const int64_t size : sizes) dims.push_back({size, ""});
  return dims;
}

// The outputs' sizes from the inputs'; an output whose sizes cannot be told gets none and false.
struct OutputShapes {
  OutputShapes(const CustomOp& op, const Node& node, const Binding& binding, const std::vector<Dims>& inputs) {
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
  std::vector<Dims> dims;
  std::vector<bool> is_known;
};

const AttributeValue& ValueOf(const std::vector<Attribute>& attributes, const std::vector<AttributeValue>& values,
                              const char* name) {
  const auto found =
      std::find_if(attributes.begin(), attributes.end(), [&](const Attribute& a) { return a.name == name; });
  return values.at(static_cast<size_t>(found - attributes.begin()));
}

class LoadTimeNode final : public Node {
 public:
  LoadTimeNode(const CustomOp& op, const OrtShapeInferContext* context)
      : op_(op), values_(ReadAttributes(op.spec.attributes, op.api, context)) {}

 private:
  const AttributeValue& Value(const char* name) const override { return ValueOf(op_.spec.attributes, values_, name); }

  const CustomOp& op_;
  const std::vector<AttributeValue> values_;
};

class RuntimeCall final : public Call {
 public:
  RuntimeCall(const Kernel& kernel, OrtKernelContext* context)
      : kernel_(kernel), api_(kernel.op.api), context_(context), pool_{api_, context},
        parallel_(RuntimeThreads(&pool_)) {
    Binding binding;
    std::vector<Dims> dims;
    for (const Param& param : kernel.op.signature.inputs) {
      inputs_.push_back(ReadInput(inputs_.size()));
      if (!inputs_.back().is_given && !param.is_optional) Fail("input ", param.name, " must be given");
      dims.push_back(ToDims(inputs_.back().shape));
      const std::string problem = inputs_.back().is_given ? binding.Add(param, dims.back()) : "";
      if (!problem.empty()) Fail(problem);
    }
    outputs_ = OutputShapes(kernel.op, *this, binding, dims).dims;
  }

  const Tensor& Input(size_t index) const override { return inputs_.at(index); }

  Tensor Output(size_t index) const override {
    Tensor tensor;
    for (const Dim& dim : outputs_.at(index)) tensor.shape.push_back(dim.value);
    OrtValue* value = nullptr;
    Check(ort::KernelContext_GetOutput(api_)(context_, index, tensor.shape.data(), tensor.shape.size(), &value));
    if (value == nullptr) return tensor;
    tensor.is_given = true;
    tensor.type = kernel_.op.TypeOf(kernel_.op.signature.outputs[index]);
    Check(ort::GetTensorMutableData(api_)(value, &tensor.data));
    return tensor;
  }

  const ParallelFor& Parallel() const override { return parallel_; }

 private:
  Tensor ReadInput(size_t index) const {
    Tensor tensor;
    const OrtValue* value = nullptr;
    Check(ort::KernelContext_GetInput(api_)(context_, index, &value));
    if (value == nullptr) return tensor;
    OrtTensorTypeAndShapeInfo* made = nullptr;
    Check(ort::GetTensorTypeAndShape(api_)(value, &made));
    const TypeAndShape info(api_, made);
    OrtElementType type = kOrtUndefined;
    Check(ort::GetTensorElementType(api_)(info.get(), &type));
    tensor.type = static_cast<Type>(type);
    tensor.shape = SizesOf(api_, info.get());
    tensor.is_given = true;
    Check(ort::GetTensorMutableData(api_)(const_cast<OrtValue*>(value), &tensor.data));
    return tensor;
  }

  const AttributeValue& Value(const char* name) const override {
    return ValueOf(kernel_.op.spec.attributes, kernel_.attributes, name);
  }

  const Kernel& kernel_;
  const OrtApi* api_;
  OrtKernelContext* context_;
  RuntimePool pool_;
  ParallelFor parallel_;
  std::vector<Tensor> inputs_;
  std::vector<Dims> outputs_;
};

const CustomOp& Self(const OrtCustomOp* op) { return *static_cast<const CustomOp*>(op); }

OrtStatus* ORT_CALL MakeKernel(const OrtCustomOp* custom, const OrtApi*, const OrtKernelInfo* info, void** result) {
  const CustomOp& op = Self(custom);
  return Guard(op.api, [&] {
    auto kernel = std::make_unique<Kernel>(Kernel{op, NodeName(op.api, info), {}});
    try {
      kernel->attributes = ReadAttributes(op.spec.attributes, op.api, info);
    } catch (const std::exception& error) {
      throw std::runtime_error(Headline(op, kernel->name) + error.what());
    }
    *result = kernel.release();
  });
}

OrtStatus* ORT_CALL RunKernel(void* state, OrtKernelContext* context) {
  const Kernel& kernel = *static_cast<const Kernel*>(state);
  return Guard(kernel.op.api, [&] {
    try {
      kernel.op.spec.compute(RuntimeCall(kernel, context));
    } catch (const std::exception& error) {
      throw std::runtime_error(Headline(kernel.op, kernel.name) + error.what());
    }
  });
}

struct LoadTimeInput {
  bool is_given = false;
  OrtElementType type = kOrtUndefined;
  Dims dims;  // none where not even the rank is known
};

LoadTimeInput ReadLoadTimeInput(const OrtApi* api, const OrtShapeInferContext* context, size_t index) {
  OrtTensorTypeAndShapeInfo* info = nullptr;  // owned by the context
  OrtStatus* absent = ort::ShapeInferContext_GetInputTypeShape(api)(context, index, &info);
  if (absent != nullptr) return ort::ReleaseStatus(api)(absent), LoadTimeInput{};
  LoadTimeInput input{true, kOrtUndefined, ToDims(SizesOf(api, info))};
  Check(ort::GetTensorElementType(api)(info, &input.type));
  std::vector<const char*> symbols(input.dims.size(), "");
  Check(ort::GetSymbolicDimensions(api)(info, symbols.data(), symbols.size()));
  for (size_t i = 0; i < symbols.size(); ++i) input.dims[i].symbol = symbols[i];
  return input;
}

std::vector<LoadTimeInput> ReadLoadTimeInputs(const CustomOp& op, const OrtShapeInferContext* context) {
  size_t count = 0;
  Check(ort::ShapeInferContext_GetInputCount(op.api)(context, &count));
  std::vector<LoadTimeInput> inputs(op.signature.inputs.size());
  for (size_t i = 0; i < std::min(count, inputs.size()); ++i) inputs[i] = ReadLoadTimeInput(op.api, context, i);
  return inputs;
}

// The type of an output: the runtime asks one op of a name for all of them, so that op's own types say nothing.
OrtElementType LoadTimeType(const CustomOp& op, const Param& output, const std::vector<LoadTimeInput>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].is_given && op.signature.inputs[i].type == output.type) return inputs[i].type;
  }
  return static_cast<OrtElementType>(op.TypeOf(output));
}

void SetLoadTimeOutput(const OrtApi* api, OrtShapeInferContext* context, size_t index, OrtElementType type,
                       const Dims& dims) {
  // The runtime would write a size that has neither value nor symbol as -1.
  if (!std::all_of(dims.begin(), dims.end(), [](const Dim& dim) { return dim.HasName(); })) return;
  std::vector<int64_t> sizes;
  std::vector<const char*> symbols;
  for (const Dim& dim : dims) sizes.push_back(dim.value), symbols.push_back(dim.symbol.c_str());
  OrtTensorTypeAndShapeInfo* made = nullptr;
  Check(ort::CreateTensorTypeAndShapeInfo(api)(&made));
  const TypeAndShape info(api, made);
  Check(ort::SetTensorElementType(api)(info.get(), type));
  Check(ort::SetDimensions(api)(info.get(), sizes.data(), sizes.size()));
  Check(ort::SetSymbolicDimensions(api)(info.get(), symbols.data(), symbols.size()));
  Check(ort::ShapeInferContext_SetOutputTypeShape(api)(context, index, info.get()));
}

OrtStatus* ORT_CALL InferShapes(const OrtCustomOp* custom, OrtShapeInferContext* context) {
  const CustomOp& op = Self(custom);
  OrtStatus* status = Guard(op.api, [&] {
    const std::vector<LoadTimeInput> inputs = ReadLoadTimeInputs(op, context);
    Binding binding;
    std::vector<Dims> dims;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].is_given && inputs[i].dims.empty()) return;
      // What does not fit is said when the node runs.
      if (inputs[i].is_given && !binding.Add(op.signature.inputs[i], inputs[i].dims).empty()) return;
      dims.push_back(inputs[i].dims);
    }
    const OutputShapes outputs(op, LoadTimeNode(op, context), binding, dims);
    for (size_t i = 0; i < outputs.dims.size(); ++i) {
      const Param& param = op.signature.outputs[i];
      // An optional output may not be there, and the runtime does not say; it writes past its end if told.
      if (!outputs.is_known[i] || param.is_optional) continue;
      SetLoadTimeOutput(op.api, context, i, LoadTimeType(op, param, inputs), outputs.dims[i]);
    }
  });
  // The runtime drops a status given here; without a shape it goes on as it would for any op that has no inference.
  if (status != nullptr) ort::ReleaseStatus(op.api)(status);
  return nullptr;
}

OrtCharacteristic CharacteristicOf(const Param& param) { return param.is_optional ? kOrtOptional : kOrtRequired; }

}  // namespace

CustomOp::CustomOp(const OpSpec& op, const Signature& parsed, std::vector<Type> chosen, const OrtApi* runtime,
                   bool has_safe_inference)
    : OrtCustomOp{}, spec(op), signature(parsed), types(std::move(chosen)), api(runtime) {
  version = kOrtApiVersion;
  GetName = [](const OrtCustomOp* self) { return Self(self).signature.name.c_str(); };
  GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
  GetInputTypeCount = [](const OrtCustomOp* self) { return Self(self).signature.inputs.size(); };
  GetOutputTypeCount = [](const OrtCustomOp* self) { return Self(self).signature.outputs.size(); };
  GetInputType = [](const OrtCustomOp* self, size_t i) {
    return static_cast<OrtElementType>(Self(self).TypeOf(Self(self).signature.inputs[i]));
  };
  GetOutputType = [](const OrtCustomOp* self, size_t i) {
    return static_cast<OrtElementType>(Self(self).TypeOf(Self(self).signature.outputs[i]));
  };
  GetInputCharacteristic = [](const OrtCustomOp* self, size_t i) {
    return CharacteristicOf(Self(self).signature.inputs[i]);
  };
  GetOutputCharacteristic = [](const OrtCustomOp* self, size_t i) {
    return CharacteristicOf(Self(self).signature.outputs[i]);
  };
  GetInputMemoryType = [](const OrtCustomOp*, size_t) { return kOrtMemTypeDefault; };
  CreateKernelV2 = &MakeKernel;
  KernelComputeV2 = &RunKernel;
  KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  GetStartVersion = [](const OrtCustomOp*) { return 1; };
  GetEndVersion = [](const OrtCustomOp*) { return 1; };
  const auto& inputs = signature.inputs;
  const bool can_lack_inputs = std::any_of(inputs.begin(), inputs.end(), [](const Param& p) { return p.is_optional; });
  if (has_safe_inference || !can_lack_inputs) InferOutputShapeFn = &InferShapes;
  GetMayInplace = spec.inplace.get;
  ReleaseMayInplace = [](int*, int*) {};
}

Type CustomOp::TypeOf(const Param& param) const {
  for (size_t i = 0; i < types.size(); ++i) {
    if (spec.types[i].name == param.type) return types[i];
  }
  if (param.type == "int64") return Type::kInt64;
  if (param.type == "int32") return Type::kInt32;
  if (param.type == "bool") return Type::kBool;
  if (param.type == "float") return Type::kFloat;
  throw std::invalid_argument(signature.name + ": " + param.name + " has the type " + param.type +
                              ", which is no type variable");
}

std::vector<std::unique_ptr<CustomOp>> CustomOpsOf(const OpSpec& spec, const Signature& signature, const OrtApi* api,
                                                   bool has_safe_inference) {
  std::vector<std::vector<Type>> choices = {{}};
  for (const TypeVariable& variable : spec.types) {
    std::vector<std::vector<Type>> longer;
    for (const auto& before : choices) {
      for (const Type type : variable.types) {
        longer.push_back(before);
        longer.back().push_back(type);
      }
    }
    choices = std::move(longer);
  }
  std::vector<std::unique_ptr<CustomOp>> ops;
  for (auto& types : choices)
    ops.push_back(std::make_unique<CustomOp>(spec, signature, std::move(types), api, has_safe_inference));
  return ops;
}

int64_t Tensor::Count(int64_t begin, int64_t end) const {
  int64_t count = 1;
  for (int64_t i = begin; i < end; ++i) count *= shape[static_cast<size_t>(i)];
  return count;
}

}  // namespace onnxfuse
