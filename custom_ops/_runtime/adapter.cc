#include "custom_ops/_runtime/adapter.h"

#include <algorithm>
#include <stdexcept>

#include "custom_ops/_runtime/attributes.h"
#include "custom_ops/_runtime/call.h"
#include "custom_ops/_runtime/cuda/node.h"
#include "custom_ops/_runtime/providers.h"

namespace onnxfuse {
namespace {

std::string Headline(const CustomOp& op, const std::string& node) {
  return "onnxfuse " + op.signature.name + " '" + node + "': ";
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

const CustomOp& Self(const OrtCustomOp* op) { return *static_cast<const CustomOp*>(op); }

// What a node keeps from run to run; `gpu` is null on the CPU.
struct NodeState {
  NodeFacts facts;
  std::unique_ptr<cuda::NodeOnGpu> gpu;
};

// Runs body for a node; what it throws becomes a status that names op and node.
template <typename Body>
OrtStatus* GuardNode(const CustomOp& op, const std::string& node, Body&& body) {
  return Guard(op.api, [&] {
    try {
      body();
    } catch (const std::exception& error) {
      throw std::runtime_error(Headline(op, node) + error.what());
    }
  });
}

OrtStatus* ORT_CALL MakeKernel(const OrtCustomOp* custom, const OrtApi*, const OrtKernelInfo* info, void** result) {
  const CustomOp& op = Self(custom);
  std::string name;
  OrtStatus* unnamed = Guard(op.api, [&] { name = NodeName(op.api, info); });
  if (unnamed != nullptr) return unnamed;
  return GuardNode(op, name, [&] {
    auto node = std::make_unique<NodeState>(
        NodeState{NodeFacts{op, name, ReadAttributes(op.spec.attributes, op.api, info), KeeperOf(op, info)}, nullptr});
    if (op.form != nullptr) node->gpu = cuda::NodeOnGpu::Make(node->facts, info);
    *result = node.release();
  });
}

OrtStatus* ORT_CALL RunKernel(void* state, OrtKernelContext* context) {
  const NodeFacts& node = static_cast<const NodeState*>(state)->facts;
  return GuardNode(node.op, node.name, [&] {
    const RuntimeCall call(node, context);
    if (!call.HasLastSizes()) {
      if (node.op.spec.check != nullptr) node.op.spec.check(call);
      call.KeepSizes();
    }
    node.op.spec.compute(call);
  });
}

OrtStatus* ORT_CALL RunOnGpu(void* state, OrtKernelContext* context) {
  const NodeState& node = *static_cast<const NodeState*>(state);
  return GuardNode(node.facts.op, node.facts.name, [&] { node.gpu->Run(node.facts, context); });
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
                   const Abilities& abilities, const cuda::Form* gpu_form)
    : OrtCustomOp{}, spec(op), signature(parsed), types(std::move(chosen)), api(runtime),
      lends_sizes(abilities.lends_sizes), form(gpu_form) {
  version = kOrtApiVersion;
  GetName = [](const OrtCustomOp* self) { return Self(self).signature.name.c_str(); };
  GetExecutionProviderType = [](const OrtCustomOp* self) {
    return Self(self).form == nullptr ? nullptr : kCudaProvider;
  };
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
  KernelComputeV2 = form == nullptr ? &RunKernel : &RunOnGpu;
  KernelDestroy = [](void* kernel) { delete static_cast<NodeState*>(kernel); };
  GetStartVersion = [](const OrtCustomOp*) { return 1; };
  GetEndVersion = [](const OrtCustomOp*) { return 1; };
  const auto& inputs = signature.inputs;
  const bool can_lack_inputs = std::any_of(inputs.begin(), inputs.end(), [](const Param& p) { return p.is_optional; });
  if (abilities.has_safe_inference || !can_lack_inputs) InferOutputShapeFn = &InferShapes;
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
                                                   const Abilities& abilities, const cuda::Form* form) {
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
    ops.push_back(std::make_unique<CustomOp>(spec, signature, std::move(types), api, abilities, form));
  return ops;
}

int64_t Tensor::Count(int64_t begin, int64_t end) const {
  int64_t count = 1;
  for (int64_t i = begin; i < end; ++i) count *= shape[static_cast<size_t>(i)];
  return count;
}

}  // namespace onnxfuse
