#include "custom_ops/_runtime/program_op.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "custom_ops/_runtime/adapter.h"
#include "custom_ops/_runtime/call.h"
#include "custom_ops/_runtime/load_time.h"
#include "custom_ops/_runtime/op.h"
#include "custom_ops/_runtime/pool.h"
#include "custom_ops/_runtime/program.h"
#include "custom_ops/_runtime/program_cpu.h"

namespace onnxfuse {
namespace {

std::vector<ProgramOpSpec>& MutableProgramOps() {
  static std::vector<ProgramOpSpec> ops;
  return ops;
}

const ProgramOp& Self(const OrtCustomOp* op) { return *static_cast<const ProgramOp*>(op); }

// A node that the runtime will run.
struct ProgramNode {
  const ProgramOp& op;
  std::string name;
  CpuProgram program;

  std::string Headline() const { return "onnxfuse " + op.name + " '" + name + "': "; }
};

void CheckCounts(const ProgramOp& op, const OrtKernelInfo* info, const Program& program) {
  size_t inputs = 0, outputs = 0;
  Check(ort::KernelInfo_GetInputCount(op.api)(info, &inputs));
  Check(ort::KernelInfo_GetOutputCount(op.api)(info, &outputs));
  if (inputs == program.GivenCount() && outputs == program.results.size()) return;
  throw std::runtime_error("the node must have the program's " + std::to_string(program.GivenCount()) + " inputs and " +
                           std::to_string(program.results.size()) + " outputs; got " + std::to_string(inputs) +
                           " and " + std::to_string(outputs));
}

OrtStatus* ORT_CALL MakeKernel(const OrtCustomOp* custom, const OrtApi*, const OrtKernelInfo* info, void** result) {
  const ProgramOp& op = Self(custom);
  return Guard(op.api, [&] {
    const std::string name = NodeName(op.api, info);
    try {
      Program program = Program::Parse(ReadProgramText(op.api, info));
      CheckCounts(op, info, program);
      *result = new ProgramNode{op, name, CpuProgram(std::move(program), ReadAxes(op, info))};
    } catch (const std::exception& error) {
      throw std::runtime_error("onnxfuse " + op.name + " '" + name + "': " + error.what());
    }
  });
}

// One run of a node: its tensors.
class ProgramCall {
 public:
  ProgramCall(const ProgramNode& node, OrtKernelContext* context)
      : node_(node), api_(node.op.api), context_(context), program_(node.program.program()) {}

  void Run() {
    inputs_.reserve(program_.GivenCount());
    shapes_.reserve(program_.GivenCount());
    for (size_t i = 0; i < program_.GivenCount(); ++i) AddInput(i);
    MakeOutputs();
    RuntimePool pool{api_, context_};
    node_.program.Run(inputs_, shapes_, outputs_, RuntimeThreads(&pool));
  }

 private:
  void AddInput(size_t index) {
    Tensor tensor = ReadInput(api_, context_, index, node_.op.lends_sizes);
    if (!tensor.is_given) throw std::runtime_error("input " + std::to_string(index) + " must be given");
    const Type wanted = program_.inputs[index];
    if (tensor.type != wanted) {
      throw std::runtime_error("input " + std::to_string(index) + " must have the program's type " + NameOf(wanted) +
                               "; got " + NameOf(tensor.type));
    }
    inputs_.push_back(tensor.data);
    shapes_.push_back(std::move(tensor.shape));
  }

  void MakeOutputs() {
    const std::vector<Shape> shapes = node_.program.ResultShapes(shapes_);
    for (size_t i = 0; i < shapes.size(); ++i) {
      OrtValue* value = nullptr;
      Check(ort::KernelContext_GetOutput(api_)(context_, i, shapes[i].data(), shapes[i].size(), &value));
      void* data = nullptr;
      if (value != nullptr) {
        Check(ort::GetTensorMutableData(api_)(value, &data));
      } else {
        data = Unread(shapes[i], program_.TypeOf(program_.results[i]));
      }
      outputs_.push_back(data);
    }
  }

  // Memory for an output that the model does not name.
  void* Unread(const Shape& shape, Type type) {
    int64_t bytes = SizeOf(type);
    for (const int64_t size : shape) bytes *= size;
    unread_.push_back(std::make_unique<char[]>(static_cast<size_t>(bytes)));
    return unread_.back().get();
  }

  const ProgramNode& node_;
  const OrtApi* api_;
  OrtKernelContext* context_;
  const Program& program_;
  std::vector<const void*> inputs_;
  std::vector<Shape> shapes_;
  std::vector<void*> outputs_;
  std::vector<std::unique_ptr<char[]>> unread_;
};

OrtStatus* ORT_CALL RunKernel(void* state, OrtKernelContext* context) {
  const ProgramNode& node = *static_cast<const ProgramNode*>(state);
  return Guard(node.op.api, [&] {
    try {
      ProgramCall(node, context).Run();
    } catch (const std::exception& error) {
      throw std::runtime_error(node.Headline() + error.what());
    }
  });
}

// The size that two broadcast to; without value and symbol where that cannot be told.
Dim Broadcast(const Dim& a, const Dim& b) {
  if (a.value == 1) return b;
  if (b.value == 1) return a;
  if (a.IsKnown()) return a;
  if (b.IsKnown() || a.symbol == b.symbol) return b;
  return {};
}

Dims Broadcast(const Program& program, const std::vector<Dims>& inputs, size_t axes) {
  const std::vector<bool> broadcasts = program.Broadcasts();
  Dims common(axes, Dim{1, ""});
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!broadcasts[i]) continue;
    if (inputs[i].size() > common.size()) common.insert(common.begin(), inputs[i].size() - common.size(), Dim{1, ""});
    const size_t missing = common.size() - inputs[i].size();
    for (size_t axis = 0; axis < inputs[i].size(); ++axis) {
      common[missing + axis] = Broadcast(common[missing + axis], inputs[i][axis]);
    }
  }
  return common;
}

// The sizes of what is joined; those that cannot be told are left open.
Dims Joined(const Join& join, const std::vector<Dims>& inputs) {
  Dims joined = inputs[static_cast<size_t>(join.pieces.front())];
  const auto at = static_cast<size_t>(static_cast<int64_t>(joined.size()) + join.axis);
  if (at >= joined.size()) return joined;
  joined[at] = Dim{0, ""};
  for (const int piece : join.pieces) {
    const Dims& dims = inputs[static_cast<size_t>(piece)];
    if (dims.size() != joined.size() || !dims[at].IsKnown()) {
      joined[at] = {};
      break;
    }
    joined[at].value += dims[at].value;
  }
  return joined;
}

size_t LoadTimeAxes(const ProgramOp& op, OrtShapeInferContext* context) {
  if (!op.spec.has_axes) return 0;
  int64_t axes = 1;
  size_t size = 0;
  const OrtOpAttr* given = nullptr;
  OrtStatus* status = ort::ShapeInferContext_GetAttribute(op.api)(context, "axes", &given);
  if (status == nullptr) {
    status = ort::ReadOpAttr(op.api)(given, kOrtAttributeInt, &axes, sizeof(axes), &size);
  }
  if (status != nullptr) ort::ReleaseStatus(op.api)(status);
  return static_cast<size_t>(std::clamp<int64_t>(axes, 1, 64));
}

void InferOutputs(const ProgramOp& op, OrtShapeInferContext* context) {
  const Program program = Program::Parse(ReadLoadTimeString(op.api, context, "program"));
  std::vector<Dims> inputs;
  for (size_t i = 0; i < program.GivenCount(); ++i) {
    inputs.push_back(ReadLoadTimeInput(op.api, context, i).dims);
    // The runtime shows a scalar and a tensor of which it knows nothing alike.
    if (inputs.back().empty()) return;
  }
  for (const Join& join : program.joins) inputs.push_back(Joined(join, inputs));
  const size_t axes = LoadTimeAxes(op, context);
  const std::vector<bool> is_row = program.IsRowShaped();
  for (size_t i = 0; i < program.results.size(); ++i) {
    const int value = program.results[i];
    Dims dims = Broadcast(program, inputs, axes);
    if (is_row[static_cast<size_t>(value)])
      std::fill(dims.end() - static_cast<ptrdiff_t>(axes), dims.end(), Dim{1, ""});
    SetLoadTimeOutput(op.api, context, i, static_cast<OrtElementType>(program.TypeOf(value)), dims);
  }
}

OrtStatus* ORT_CALL InferShapes(const OrtCustomOp* custom, OrtShapeInferContext* context) {
  const ProgramOp& op = Self(custom);
  // What is wrong with a node is said when its kernel is made.
  OrtStatus* status = Guard(op.api, [&] { InferOutputs(op, context); });
  if (status != nullptr) ort::ReleaseStatus(op.api)(status);
  return nullptr;
}

// Every result may be written over every input: the plan minds who reads what when.
size_t MayInplace(int** inputs, int** outputs) {
  constexpr int kInputs = 16, kOutputs = 4;
  static std::array<int, kInputs * kOutputs> all_inputs, all_outputs;
  for (int i = 0; i < kInputs * kOutputs; ++i) {
    all_inputs[static_cast<size_t>(i)] = i % kInputs;
    all_outputs[static_cast<size_t>(i)] = i / kInputs;
  }
  *inputs = all_inputs.data();
  *outputs = all_outputs.data();
  return all_inputs.size();
}

}  // namespace

std::string ReadProgramText(const OrtApi* api, const OrtKernelInfo* info) {
  size_t size = 0;
  OrtStatus* status = ort::KernelInfoGetAttribute_string(api)(info, "program", nullptr, &size);
  if (status != nullptr) {
    ort::ReleaseStatus(api)(status);
    throw std::runtime_error("the attribute 'program' must be a string");
  }
  std::string text(size, '\0');
  Check(ort::KernelInfoGetAttribute_string(api)(info, "program", text.data(), &size));
  text.resize(size - 1);
  return text;
}

int64_t ReadAxes(const ProgramOp& op, const OrtKernelInfo* info) {
  if (!op.spec.has_axes) return 0;
  int64_t axes = 1;
  OrtStatus* absent = ort::KernelInfoGetAttribute_int64(op.api)(info, "axes", &axes);
  if (absent != nullptr) ort::ReleaseStatus(op.api)(absent);
  constexpr int64_t kMostAxes = 64;
  if (axes < 1 || axes > kMostAxes) {
    throw std::runtime_error("attribute 'axes' must be from 1 to 64; got " + std::to_string(axes));
  }
  return axes;
}

RegisterProgramOp::RegisterProgramOp(ProgramOpSpec spec) { MutableProgramOps().push_back(std::move(spec)); }

const std::vector<ProgramOpSpec>& AllProgramOps() { return MutableProgramOps(); }

ProgramOp::ProgramOp(const ProgramOpSpec& op, int variant, const OrtApi* runtime, bool can_lend_sizes)
    : OrtCustomOp{}, spec(op), name(op.name + (variant > 1 ? "_" + std::to_string(variant) : "")), api(runtime),
      lends_sizes(can_lend_sizes) {
  version = kOrtApiVersion;
  GetName = [](const OrtCustomOp* self) { return Self(self).name.c_str(); };
  GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
  GetInputTypeCount = [](const OrtCustomOp*) { return size_t{1}; };
  GetOutputTypeCount = [](const OrtCustomOp*) { return size_t{1}; };
  GetInputType = [](const OrtCustomOp*, size_t) { return kOrtUndefined; };
  GetOutputType = [](const OrtCustomOp*, size_t) { return kOrtUndefined; };
  GetInputCharacteristic = [](const OrtCustomOp*, size_t) { return kOrtVariadic; };
  GetOutputCharacteristic = [](const OrtCustomOp*, size_t) { return kOrtVariadic; };
  GetVariadicInputMinArity = [](const OrtCustomOp*) { return 1; };
  GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 1; };
  GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 0; };
  GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 0; };
  GetInputMemoryType = [](const OrtCustomOp*, size_t) { return kOrtMemTypeDefault; };
  CreateKernelV2 = &MakeKernel;
  KernelComputeV2 = &RunKernel;
  KernelDestroy = [](void* kernel) { delete static_cast<ProgramNode*>(kernel); };
  InferOutputShapeFn = &InferShapes;
  GetStartVersion = [](const OrtCustomOp*) { return 1; };
  GetEndVersion = [](const OrtCustomOp*) { return 1; };
  GetMayInplace = &MayInplace;
  ReleaseMayInplace = [](int*, int*) {};
}

}  // namespace onnxfuse
