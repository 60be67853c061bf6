// Which ops a session gets, and for which of its execution providers.
//
// A name that is registered has a schema, and then a node of it runs by a kernel or not at all: on a GPU a name that
// had a kernel for the CPU alone would drag the data to the host and back. So a session on a GPU gets the names that
// have a kernel for that GPU; nodes of the others run by their function bodies, on the GPU.
#pragma once

#include <string>

#include "custom_ops/_runtime/ort_abi.h"

namespace onnxfuse {

// The session config entry that names a session's providers, the first to be asked first, as in
// `CUDAExecutionProvider:1,CPUExecutionProvider` (the number is the device; 0 if not given). Set by onnxfuse.session.
inline constexpr const char* kProvidersEntry = "onnxfuse.providers";

inline constexpr const char* kCudaProvider = "CUDAExecutionProvider";

struct Target {
  int device = -1;  // a CUDA device by the driver's number; -1: the CPU only
  int arch = 0;     // its compute capability times 10

  bool IsCuda() const { return device >= 0; }
};

// Reads kProvidersEntry. Without it a session is taken for one on a GPU where the runtime has the CUDA provider and the
// machine a device. What was asked for and cannot be had is told once, as a warning.
Target TargetOf(const OrtApi* api, const OrtSessionOptions* options);

// Prints a warning to the standard error stream, each text once for the process.
void WarnOnce(const std::string& text);

}  // namespace onnxfuse
