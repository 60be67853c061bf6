// CUDA C++ text to machine code, by NVRTC, kept on disk.
//
// The cache: `$ONNXFUSE_CUDA_CACHE` (empty: none), else `$XDG_CACHE_HOME/onnxfuse/cuda`, else `~/.cache/onnxfuse/cuda`.
// A file is named by the SHA-256 of text, options, architecture and compiler, and holds a checksum of its content: one
// that is cut short or changed is compiled anew. Files are written beside and renamed, so processes may share a folder.
#pragma once

#include <string>

namespace onnxfuse::cuda {

// Whether text can be compiled for a device of compute capability arch / 10 (90: 9.0); if not, `*why` says why.
bool CanCompile(int arch, std::string* why);

// A cubin for `arch`, or PTX where the device is newer than the compiler. Throws DeviceError with the compiler's
// log. For any number of threads.
std::string Compile(const std::string& source, int arch);

}  // namespace onnxfuse::cuda
