// A node of a session, and one run of it: what of both no op has to know.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "custom_ops/_runtime/adapter.h"
#include "custom_ops/_runtime/op.h"
#include "custom_ops/_runtime/ort_abi.h"
#include "custom_ops/_runtime/pool.h"

namespace onnxfuse {

using Sizes = std::vector<int64_t>;

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

// An input of a running node, as it lies in the memory of the node's device; not given where the node leaves it out.
// lends_sizes: Abilities::lends_sizes.
Tensor ReadInput(const OrtApi* api, OrtKernelContext* context, size_t index, bool lends_sizes = false);
// Makes output `index`, of the sizes that `expected` has; not given where nobody reads it.
Tensor MakeOutput(const OrtApi* api, OrtKernelContext* context, size_t index, Tensor expected);

std::string NodeName(const OrtApi* api, const OrtKernelInfo* info);

// Memory of Call::Kept.
inline constexpr std::align_val_t kKeptAlignment{64};
struct KeptDelete {
  void operator()(void* memory) const { ::operator delete(memory, kKeptAlignment); }
};
using KeptMemory = std::unique_ptr<void, KeptDelete>;

// What all runs of a node share.
struct Keeper {
  std::mutex mutex;
  KeptMemory memory;
};

// A keeper where the op's kept_input is a constant of the model, else null.
std::unique_ptr<Keeper> KeeperOf(const CustomOp& op, const OrtKernelInfo* info);

Sizes SizesOf(const OrtApi* api, const OrtTensorTypeAndShapeInfo* info);
Dims ToDims(const Sizes& sizes);

// The outputs' sizes from the inputs'; an output whose sizes cannot be told gets none and false.
struct OutputShapes {
  OutputShapes(const CustomOp& op, const Node& node, const Binding& binding, const std::vector<Dims>& inputs);
  std::vector<Dims> dims;
  std::vector<bool> is_known;
};

const AttributeValue& ValueOf(const std::vector<Attribute>& attributes, const std::vector<AttributeValue>& values,
                              const char* name);

// The sizes that a node's inputs had last, and what was made of them: mostly they are the same again, and to work the
// outputs' out takes longer than a small kernel does.
class LastSizes {
 public:
  using Outputs = std::shared_ptr<const std::vector<Sizes>>;
  // Null where the inputs are others than last time.
  Outputs Recall(const std::vector<Tensor>& inputs);
  void Keep(const std::vector<Tensor>& inputs, Outputs outputs);

 private:
  std::mutex mutex_;
  std::vector<Tensor> inputs_;  // without their data
  Outputs outputs_;
};

// A node that the runtime will run: what is known once the model is loaded.
struct NodeFacts {
  const CustomOp& op;
  std::string name;  // the node's
  std::vector<AttributeValue> attributes;
  std::unique_ptr<Keeper> keeper;
  std::unique_ptr<LastSizes> last = std::make_unique<LastSizes>();
};

// A call whose inputs have been checked against the signature.
class NodeCall : public Call {
 public:
  const Tensor& Input(size_t index) const override { return inputs_.at(index); }
  const void* Kept(size_t bytes, const std::function<void(void*)>& fill) const override;

  // Whether the inputs have the sizes of the call for which KeepSizes was called last.
  bool HasLastSizes() const { return has_last_sizes_; }
  void KeepSizes() const { node_.last->Keep(inputs_, outputs_); }

 protected:
  explicit NodeCall(const NodeFacts& node) : node_(node) {}
  ~NodeCall() = default;

  // Takes the inputs, one for each of the signature. Fails where they do not fit.
  void Bind(std::vector<Tensor> inputs);
  // An output's sizes and type, without memory.
  Tensor Expected(size_t index) const;

  const NodeFacts& node_;

 private:
  const AttributeValue& Value(const char* name) const override {
    return ValueOf(node_.op.spec.attributes, node_.attributes, name);
  }

  std::vector<Sizes> SizesOfOutputs() const;

  std::vector<Tensor> inputs_;
  LastSizes::Outputs outputs_;
  bool has_last_sizes_ = false;
  mutable KeptMemory own_;  // of this call alone
};

// A call by the runtime, on the device whose memory it gives.
class RuntimeCall final : public NodeCall {
 public:
  RuntimeCall(const NodeFacts& node, OrtKernelContext* context);
  Tensor Output(size_t index) const override;
  const ParallelFor& Parallel() const override { return parallel_; }

 private:
  const OrtApi* api_;
  OrtKernelContext* context_;
  RuntimePool pool_;
  ParallelFor parallel_;
};

}  // namespace onnxfuse
