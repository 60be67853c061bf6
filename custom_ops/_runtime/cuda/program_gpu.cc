#include "custom_ops/_runtime/cuda/program_gpu.h"

#include <memory>
#include <stdexcept>

#include "custom_ops/_runtime/call.h"
#include "custom_ops/_runtime/cuda/node.h"
#include "custom_ops/_runtime/cuda/program_run.h"
#include "custom_ops/_runtime/providers.h"

namespace onnxfuse::cuda {
namespace {

const ProgramOpOnGpu& Self(const OrtCustomOp* op) { return *static_cast<const ProgramOpOnGpu*>(op); }

struct ProgramNode {
  const OrtApi* api;
  const std::string headline;
  const std::string text;
  const int64_t axes;
  const Program program;
  const Device& device;
  NodeKernels kernels = {};
};

size_t Bytes(const Tensor& tensor) { return static_cast<size_t>(tensor.Count() * SizeOf(tensor.type)); }

template <typename Body>
OrtStatus* GuardNode(const OrtApi* api, const std::string& headline, Body&& body) {
  return Guard(api, [&] {
    try {
      body();
    } catch (const std::exception& error) {
      throw std::runtime_error(headline + error.what());
    }
  });
}

OrtStatus* ORT_CALL MakeKernel(const OrtCustomOp* custom, const OrtApi*, const OrtKernelInfo* info, void** result) {
  const ProgramOpOnGpu& op = Self(custom);
  std::string headline;
  OrtStatus* unnamed = Guard(op.api, [&] { headline = "onnxfuse " + op.name + " '" + NodeName(op.api, info) + "': "; });
  if (unnamed != nullptr) return unnamed;
  return GuardNode(op.api, headline, [&] {
    const std::string text = ReadProgramText(op.api, info);
    auto node = std::unique_ptr<ProgramNode>(
        new ProgramNode{op.api, headline, text, ReadAxes(op, info), Program::Parse(text), DeviceOf(op.api, info)});
    try {
      Queue rehearsal(&node->device, &node->kernels, nullptr);
      RunProgram(
          node->program, text, node->axes, DeclaredInputs(op.api, info),
          [](size_t, const Tensor& expected) { return expected; }, &rehearsal);
    } catch (const DeviceError&) {
      throw;
    } catch (const std::exception&) {
      // Guessed sizes may not fit one another. What does not fit is said when the node runs.
    }
    *result = node.release();
  });
}

OrtStatus* ORT_CALL RunKernel(void* state, OrtKernelContext* context) {
  auto& node = *static_cast<ProgramNode*>(state);
  return GuardNode(node.api, node.headline, [&] {
    const RuntimeSession session(node.api, context);
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < node.program.GivenCount(); ++i) inputs.push_back(ReadInput(node.api, context, i));
    // The program computes every result; one that the node does not name needs memory all the same.
    const auto make_output = [&](size_t index, const Tensor& expected) {
      Tensor made = MakeOutput(node.api, context, index, expected);
      if (!made.is_given && Bytes(made) > 0) made.data = session.Scratch(Bytes(made));
      return made;
    };
    Queue queue(&node.device, &node.kernels, &session);
    RunProgram(node.program, node.text, node.axes, inputs, make_output, &queue);
  });
}

}  // namespace

ProgramOpOnGpu::ProgramOpOnGpu(const ProgramOpSpec& op, int variant, const OrtApi* runtime)
    : ProgramOp(op, variant, runtime) {
  GetExecutionProviderType = [](const OrtCustomOp*) { return kCudaProvider; };
  CreateKernelV2 = &MakeKernel;
  KernelComputeV2 = &RunKernel;
  KernelDestroy = [](void* node) { delete static_cast<ProgramNode*>(node); };
}

}  // namespace onnxfuse::cuda
