// A node that runs on a GPU: between a form and ONNX Runtime.
#pragma once

#include <memory>

#include "custom_ops/_runtime/call.h"
#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/cuda/ort_gpu.h"

namespace onnxfuse::cuda {

// The device of the provider that runs a node: that of its allocator.
const Device& DeviceOf(const OrtApi* api, const OrtKernelInfo* info);

// The inputs of a node as the model declares them, in memory that must not be touched; not given where the node leaves one out or nothing
// is known of it. Sizes that the model leaves open are guessed, alike where they have one symbol.
std::vector<Tensor> DeclaredInputs(const OrtApi* api, const OrtKernelInfo* info);

// What a running node asks of its session. Scratch memory goes back when this does: the session's allocator gives it to
// work that comes later on the same stream.
class RuntimeSession final : public Session {
 public:
  RuntimeSession(const OrtApi* api, OrtKernelContext* context) : api_(api), context_(context) {}
  RuntimeSession(const RuntimeSession&) = delete;
  ~RuntimeSession();
  Stream stream() const override;
  void* Scratch(size_t bytes) const override;

 private:
  const OrtMemoryInfo* Memory() const;

  const OrtApi* api_;
  OrtKernelContext* context_;
  mutable std::vector<void*> scratch_;
};

class NodeOnGpu {
 public:
  // Makes the kernels that the node will start as far as the model tells: sizes that it does not know are guessed, and
  // kernels that other sizes ask for are made when they are first met. Throws DeviceError where one cannot be made.
  static std::unique_ptr<NodeOnGpu> Make(const NodeFacts& node, const OrtKernelInfo* info);

  // Puts the node's kernels on the session's stream and returns.
  void Run(const NodeFacts& node, OrtKernelContext* context) const;

 private:
  explicit NodeOnGpu(const Device& device) : device_(device) {}

  const Device& device_;
  mutable NodeKernels kernels_;
};

}  // namespace onnxfuse::cuda
