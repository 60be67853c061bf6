#include "custom_ops/_runtime/cuda/node.h"

#include <map>
#include <stdexcept>

namespace onnxfuse::cuda {
namespace {

// Sizes for dims that the model leaves open: the same for the same symbol, and no two alike.
class Guesses {
 public:
  int64_t Of(const std::string& symbol) {
    const std::string name = symbol.empty() ? std::to_string(guesses_.size()) : symbol;
    const auto [found, is_new] = guesses_.emplace("_" + name, 0);
    if (is_new) found->second = 256 + 32 * static_cast<int64_t>(guesses_.size());
    return found->second;
  }

 private:
  std::map<std::string, int64_t> guesses_;
};

// An input as the model declares it; not given where the node leaves it out or nothing is known.
Tensor Declared(const OrtApi* api, const OrtKernelInfo* info, size_t index, Guesses* guesses) {
  Tensor tensor;
  OrtTypeInfo* type = nullptr;
  OrtStatus* absent = ort::KernelInfo_GetInputTypeInfo(api)(info, index, &type);
  if (absent != nullptr) return ort::ReleaseStatus(api)(absent), tensor;
  const OrtTensorTypeAndShapeInfo* shape = nullptr;  // part of `type`
  OrtElementType element = kOrtUndefined;
  OrtStatus* status = ort::CastTypeInfoToTensorInfo(api)(type, &shape);
  if (status == nullptr && shape != nullptr) {
    tensor.shape = SizesOf(api, shape);
    std::vector<const char*> symbols(tensor.shape.size(), "");
    Check(ort::GetSymbolicDimensions(api)(shape, symbols.data(), symbols.size()));
    for (size_t i = 0; i < symbols.size(); ++i) {
      if (tensor.shape[i] < 0) tensor.shape[i] = guesses->Of(symbols[i]);
    }
    status = ort::GetTensorElementType(api)(shape, &element);
    tensor.type = static_cast<Type>(element);
    tensor.is_given = true;
    tensor.data = Nowhere(index);
  }
  ort::ReleaseTypeInfo(api)(type);
  Check(status);
  return tensor;
}

// A call with sizes and no memory.
class RehearsedCall final : public NodeCall {
 public:
  RehearsedCall(const NodeFacts& node, const OrtKernelInfo* info) : NodeCall(node) {
    Check(ort::KernelInfo_GetOutputCount(node.op.api)(info, &output_count_));
    std::vector<Tensor> inputs = DeclaredInputs(node.op.api, info);
    inputs.resize(node.op.signature.inputs.size());
    Bind(std::move(inputs));
  }

  Tensor Output(size_t index) const override {
    Tensor tensor = Expected(index);
    tensor.is_given = index < output_count_;
    if (tensor.is_given) tensor.data = Nowhere(node_.op.signature.inputs.size() + index);
    return tensor;
  }

  const ParallelFor& Parallel() const override { return serial_; }

 private:
  size_t output_count_ = 0;
  const ParallelFor serial_ = SerialFor();
};

}  // namespace

const Device& DeviceOf(const OrtApi* api, const OrtKernelInfo* info) {
  OrtAllocator* allocator = nullptr;
  Check(ort::KernelInfoGetAllocator(api)(info, kOrtMemTypeDefault, &allocator));
  const OrtMemoryInfo* memory = nullptr;
  int device = 0;
  OrtStatus* status = ort::AllocatorGetInfo(api)(allocator, &memory);
  if (status == nullptr) status = ort::MemoryInfoGetId(api)(memory, &device);
  ort::ReleaseAllocator(api)(allocator);
  Check(status);
  return Device::Of(device);
}

std::vector<Tensor> DeclaredInputs(const OrtApi* api, const OrtKernelInfo* info) {
  Guesses guesses;
  size_t count = 0;
  Check(ort::KernelInfo_GetInputCount(api)(info, &count));
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < count; ++i) inputs.push_back(Declared(api, info, i, &guesses));
  return inputs;
}

Stream RuntimeSession::stream() const {
  void* stream = nullptr;
  Check(ort::KernelContext_GetGPUComputeStream(api_)(context_, &stream));
  return static_cast<Stream>(stream);
}

const OrtMemoryInfo* RuntimeSession::Memory() const {
  const OrtValue* value = nullptr;
  const OrtMemoryInfo* memory = nullptr;
  Check(ort::KernelContext_GetInput(api_)(context_, 0, &value));
  Check(ort::GetTensorMemoryInfo(api_)(value, &memory));
  return memory;
}

void* RuntimeSession::Scratch(size_t bytes) const {
  void* scratch = nullptr;
  Check(ort::KernelContext_GetScratchBuffer(api_)(context_, Memory(), bytes, &scratch));
  scratch_.push_back(scratch);
  return scratch;
}

RuntimeSession::~RuntimeSession() {
  if (scratch_.empty()) return;
  OrtAllocator* allocator = nullptr;
  // It was there when the memory was taken from it; a failure to give it back has nobody to be told to.
  OrtStatus* status = Guard(api_, [&] {
    Check(ort::KernelContext_GetAllocator(api_)(context_, Memory(), &allocator));
    for (void* scratch : scratch_) Check(ort::AllocatorFree(api_)(allocator, scratch));
  });
  if (allocator != nullptr) ort::ReleaseAllocator(api_)(allocator);
  if (status != nullptr) ort::ReleaseStatus(api_)(status);
}

std::unique_ptr<NodeOnGpu> NodeOnGpu::Make(const NodeFacts& node, const OrtKernelInfo* info) {
  std::unique_ptr<NodeOnGpu> made(new NodeOnGpu(DeviceOf(node.op.api, info)));
  try {
    Queue rehearsal(&made->device_, &made->kernels_, nullptr);
    const RehearsedCall call(node, info);
    if (node.op.spec.check != nullptr) node.op.spec.check(call);
    node.op.form->run(call, rehearsal);
  } catch (const DeviceError&) {
    throw;
  } catch (const std::exception&) {
    // Guessed sizes may not fit one another. What does not fit is said when the node runs.
  }
  return made;
}

void NodeOnGpu::Run(const NodeFacts& node, OrtKernelContext* context) const {
  const RuntimeSession session(node.op.api, context);
  Queue queue(&device_, &kernels_, &session);
  const RuntimeCall call(node, context);
  if (node.op.spec.check != nullptr) node.op.spec.check(call);
  node.op.form->run(call, queue);
}

}  // namespace onnxfuse::cuda
