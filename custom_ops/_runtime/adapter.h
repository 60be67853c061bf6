// Between OpSpec and ONNX Runtime: one CustomOp for each op and each choice of its types.
#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "custom_ops/_runtime/op.h"
#include "custom_ops/_runtime/ort_abi.h"

namespace onnxfuse::cuda { struct Form; }

namespace onnxfuse {

// The ops registered by static `Register`s, in no particular order.
const std::vector<OpSpec>& AllOps();

// What some of the runtimes can do.
struct Abilities {
  // Infer shapes of a node whose optional inputs are not given. Where the runtime cannot, an op with optional inputs has
  // no inference, and its outputs have the shapes that the model's value_info gives them.
  bool has_safe_inference = false;
  bool lends_sizes = false;  // let the sizes of a tensor be read where they are
};

// The runtime's view of `spec` for one assignment of its type variables.
//
// form: null for the CPU's; what the op is on a GPU for the one of the CUDA provider, under the same name.
struct CustomOp : OrtCustomOp {
  CustomOp(const OpSpec& spec, const Signature& signature, std::vector<Type> types, const OrtApi* api,
           const Abilities& abilities, const cuda::Form* form);

  // The element type of a parameter: that of its type variable, or the ONNX type it names.
  Type TypeOf(const Param& param) const;

  const OpSpec& spec;
  const Signature& signature;
  std::vector<Type> types;  // in the order of spec.types
  const OrtApi* api;
  const bool lends_sizes;
  const cuda::Form* form;
};

// The CustomOps of `spec`, one for each combination of its types.
std::vector<std::unique_ptr<CustomOp>> CustomOpsOf(const OpSpec& spec, const Signature& signature, const OrtApi* api,
                                                   const Abilities& abilities, const cuda::Form* form = nullptr);

// An error of the runtime itself, on its way back to the runtime.
struct RuntimeError {
  OrtStatus* status;
};

// Throws RuntimeError where `status` is an error.
inline void Check(OrtStatus* status) {
  if (status != nullptr) throw RuntimeError{status};
}

// Runs body; what it throws becomes a status. std::exception is for what the caller did wrong.
template <typename Body>
OrtStatus* Guard(const OrtApi* api, Body&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const RuntimeError& error) {
    return error.status;
  } catch (const std::exception& error) {
    return ort::CreateStatus(api)(kOrtInvalidArgument, error.what());
  } catch (...) {
    return ort::CreateStatus(api)(kOrtFail, "onnxfuse: unknown error");
  }
}

}  // namespace onnxfuse
