// The library's one exported function, and the list of ops behind it.

#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "custom_ops/_runtime/adapter.h"
#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/cuda/program_gpu.h"
#include "custom_ops/_runtime/ort_abi.h"
#include "custom_ops/_runtime/program_op.h"
#include "custom_ops/_runtime/providers.h"

#if defined(_WIN32)
#define ONNXFUSE_EXPORT __declspec(dllexport)
#else
#define ONNXFUSE_EXPORT __attribute__((visibility("default")))
#endif

namespace onnxfuse {
namespace {

constexpr const char* kDomain = "ai.onnxfuse";

std::vector<OpSpec>& MutableOps() {
  static std::vector<OpSpec> ops;
  return ops;
}

// The ops of a session for one target, as one runtime sees them. It lives as long as the process: sessions keep
// pointers into it.
struct Domain {
  const OrtApi* api;
  const Target target;
  OrtCustomOpDomain* handle = nullptr;
  std::vector<std::unique_ptr<Signature>> signatures;
  std::vector<std::unique_ptr<CustomOp>> ops;
  std::vector<std::unique_ptr<ProgramOp>> program_ops;
  std::map<std::string, std::string> without_kernel;  // reason: names

  Domain(const OrtApi* runtime, const Target& chosen, const Abilities& abilities) : api(runtime), target(chosen) {
    Check(ort::CreateCustomOpDomain(api)(kDomain, &handle));
    for (const OpSpec& spec : AllOps()) {
      if (target.IsCuda() && !HasKernel(Signature::Parse(spec.signature).name)) continue;
      for (int variant = 1; variant <= spec.variants; ++variant) Add(spec, variant, abilities);
    }
    for (const ProgramOpSpec& spec : AllProgramOps()) {
      if (target.IsCuda() && !HasKernel(spec.name)) continue;
      for (int variant = 1; variant <= spec.variants; ++variant) {
        Add(std::make_unique<ProgramOp>(spec, variant, api, abilities.lends_sizes));
        if (target.IsCuda()) Add(std::make_unique<cuda::ProgramOpOnGpu>(spec, variant, api));
      }
    }
    for (const auto& [reason, names] : without_kernel) {
      WarnOnce("on " + cuda::Device::Of(target.device).name() + " (sm_" + std::to_string(target.arch) +
               ") these operators run by their function bodies: " + names + ". " + reason);
    }
  }

  bool HasKernel(const std::string& name) {
    const cuda::Form* form = cuda::FormOf(name);
    std::string why = "They have no CUDA kernel in this version";
    if (form != nullptr && form->exists(cuda::Device::Of(target.device), &why)) return true;
    std::string& names = without_kernel[why];
    names += (names.empty() ? "" : ", ") + name;
    return false;
  }

  void Add(const OpSpec& spec, int variant, const Abilities& abilities) {
    signatures.push_back(std::make_unique<Signature>(Signature::Parse(spec.signature)));
    const cuda::Form* form = target.IsCuda() ? cuda::FormOf(signatures.back()->name) : nullptr;
    if (variant > 1) signatures.back()->name += "_" + std::to_string(variant);
    Add(CustomOpsOf(spec, *signatures.back(), api, abilities));
    if (form != nullptr) Add(CustomOpsOf(spec, *signatures.back(), api, abilities, form));
  }

  void Add(std::unique_ptr<ProgramOp> op) {
    Check(ort::CustomOpDomain_Add(api)(handle, op.get()));
    program_ops.push_back(std::move(op));
  }

  void Add(std::vector<std::unique_ptr<CustomOp>> more) {
    for (auto& op : more) {
      Check(ort::CustomOpDomain_Add(api)(handle, op.get()));
      ops.push_back(std::move(op));
    }
  }
};

Abilities AbilitiesOf(const OrtApiBase* base) {
  int major = 0, minor = 0;
  const bool has_version = std::sscanf(base->GetVersionString(), "%d.%d", &major, &minor) == 2;
  // Before 1.24 a runtime that prepares a shape inference follows the null pointer of an input that is not given, and
  // has no function that lends sizes. (Asking for a version that a runtime has not makes it complain on stderr.)
  const bool has_both = has_version && (major > 1 || minor >= 24);
  return {.has_safe_inference = has_both, .lends_sizes = has_both};
}

// One domain for each runtime in the process (as a rule there is one) and each target, made at its first session.
const Domain& DomainOf(const OrtApi* api, const OrtApiBase* base, const Target& target) {
  static std::mutex mutex;
  static auto* domains = new std::vector<std::unique_ptr<Domain>>;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const auto& domain : *domains) {
    if (domain->api == api && domain->target.arch == target.arch) return *domain;
  }
  domains->push_back(std::make_unique<Domain>(api, target, AbilitiesOf(base)));
  return *domains->back();
}

}  // namespace

const std::vector<OpSpec>& AllOps() { return MutableOps(); }

Register::Register(OpSpec spec) { MutableOps().push_back(std::move(spec)); }

}  // namespace onnxfuse

extern "C" ONNXFUSE_EXPORT OrtStatus* ORT_CALL RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  const OrtApi* api = base->GetApi(kOrtApiVersion);
  if (api == nullptr) {
    // Too old for kOrtApiVersion; CreateStatus is in the same slot of every version.
    const OrtApi* oldest = base->GetApi(1);
    return onnxfuse::ort::CreateStatus(oldest)(kOrtFail, "onnxfuse: ONNX Runtime 1.18 or newer is needed");
  }
  return onnxfuse::Guard(api, [&] {
    const onnxfuse::Target target = onnxfuse::TargetOf(api, options);
    onnxfuse::Check(onnxfuse::ort::AddCustomOpDomain(api)(options, onnxfuse::DomainOf(api, base, target).handle));
  });
}
