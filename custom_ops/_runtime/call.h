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
Tensor ReadInput(const OrtApi* api, OrtKernelContext* context, size_t index);
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

std::vector<int64_t> SizesOf(const OrtApi* api, const OrtTensorTypeAndShapeInfo* info);
Dims ToDims(const std::vector<int64_t>& sizes);

// The outputs' sizes from the inputs'; an output whose sizes cannot be told gets none and false.
struct OutputShapes {
  OutputShapes(const CustomOp& op, const Node& node, const Binding& binding, const std::vector<Dims>& inputs);
  std::vector<Dims> dims;
  std::vector<bool> is_known;
};

const AttributeValue& ValueOf(const std::vector<Attribute>& attributes, const std::vector<AttributeValue>& values,
                              const char* name);

// A node that the runtime will run: what is known once the model is loaded.
struct NodeFacts {
  const CustomOp& op;
  std::string name;  // the node's
  std::vector<AttributeValue> attributes;
  std::unique_ptr<Keeper> keeper;
};

// A call whose inputs have been checked against the signature.
class NodeCall : public Call {
 public:
  const Tensor& Input(size_t index) const override { return inputs_.at(index); }
  const void* Kept(size_t bytes, const std::function<void(void*)>& fill) const override;

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

  std::vector<Tensor> inputs_;
  std::vector<Dims> outputs_;
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
