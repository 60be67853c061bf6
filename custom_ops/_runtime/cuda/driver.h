// The CUDA driver and NVRTC, found when they are first needed: no header of CUDA, no link to it.
//
// The declarations are those of the driver API (version 11 and later) and of NVRTC; handles are opaque pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace onnxfuse::cuda {

// What the driver or the compiler refuses.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Result = int;  // 0: done
using Context = struct ContextHandle*;
using Module = struct ModuleHandle*;
using Function = struct FunctionHandle*;
using Stream = struct StreamHandle*;  // a CUstream and a cudaStream_t alike
using DevicePointer = uint64_t;
using NvrtcProgram = struct NvrtcProgramHandle*;

// Attributes of devices and functions, by the driver's numbers.
enum DeviceAttribute : int {
  kMultiprocessorCount = 16,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedMemoryPerBlockOptIn = 97,
};
enum FunctionAttribute : int { kLocalSizeBytes = 3, kNumRegs = 4, kMaxDynamicSharedSizeBytes = 8 };
enum CaptureMode : int { kCaptureRelaxed = 2 };

// X(result, name as exported, member, parameters)
#define ONNXFUSE_CUDA_DRIVER(X)                                                                                      \
  X(Result, cuInit, Init, (unsigned))                                                                                \
  X(Result, cuDriverGetVersion, DriverGetVersion, (int*))                                                            \
  X(Result, cuDeviceGetCount, DeviceGetCount, (int*))                                                                \
  X(Result, cuDeviceGet, DeviceGet, (int*, int))                                                                     \
  X(Result, cuDeviceGetName, DeviceGetName, (char*, int, int))                                                       \
  X(Result, cuDeviceGetAttribute, DeviceGetAttribute, (int*, int, int))                                              \
  X(Result, cuDevicePrimaryCtxRetain, DevicePrimaryCtxRetain, (Context*, int))                                       \
  X(Result, cuCtxGetCurrent, CtxGetCurrent, (Context*))                                                              \
  X(Result, cuCtxPushCurrent_v2, CtxPushCurrent, (Context))                                                          \
  X(Result, cuCtxPopCurrent_v2, CtxPopCurrent, (Context*))                                                           \
  X(Result, cuModuleLoadData, ModuleLoadData, (Module*, const void*))                                                \
  X(Result, cuModuleGetFunction, ModuleGetFunction, (Function*, Module, const char*))                                \
  X(Result, cuFuncGetAttribute, FuncGetAttribute, (int*, int, Function))                                             \
  X(Result, cuFuncSetAttribute, FuncSetAttribute, (Function, int, int))                                              \
  X(Result, cuLaunchKernel, LaunchKernel,                                                                            \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void**, void**))        \
  X(Result, cuThreadExchangeStreamCaptureMode, ThreadExchangeStreamCaptureMode, (int*))                              \
  X(Result, cuGetErrorName, GetErrorName, (Result, const char**))                                                    \
  X(Result, cuGetErrorString, GetErrorString, (Result, const char**))

#define ONNXFUSE_CUDA_NVRTC(X)                                                                                       \
  X(Result, nvrtcVersion, Version, (int*, int*))                                                                     \
  X(Result, nvrtcGetNumSupportedArchs, GetNumSupportedArchs, (int*))                                                 \
  X(Result, nvrtcGetSupportedArchs, GetSupportedArchs, (int*))                                                       \
  X(Result, nvrtcCreateProgram, CreateProgram,                                                                       \
    (NvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*))                          \
  X(Result, nvrtcCompileProgram, CompileProgram, (NvrtcProgram, int, const char* const*))                            \
  X(Result, nvrtcGetProgramLogSize, GetProgramLogSize, (NvrtcProgram, size_t*))                                      \
  X(Result, nvrtcGetProgramLog, GetProgramLog, (NvrtcProgram, char*))                                                \
  X(Result, nvrtcGetCUBINSize, GetCUBINSize, (NvrtcProgram, size_t*))                                                \
  X(Result, nvrtcGetCUBIN, GetCUBIN, (NvrtcProgram, char*))                                                          \
  X(Result, nvrtcGetPTXSize, GetPTXSize, (NvrtcProgram, size_t*))                                                    \
  X(Result, nvrtcGetPTX, GetPTX, (NvrtcProgram, char*))                                                              \
  X(Result, nvrtcDestroyProgram, DestroyProgram, (NvrtcProgram*))                                                    \
  X(const char*, nvrtcGetErrorString, GetErrorString, (Result))

#define ONNXFUSE_CUDA_MEMBER(result, symbol, name, parameters) result(*name) parameters = nullptr;

struct Driver {
  ONNXFUSE_CUDA_DRIVER(ONNXFUSE_CUDA_MEMBER)
  int version = 0;  // 12080 for CUDA 12.8
  int device_count = 0;

  // Throws DeviceError, with what was tried and the driver's own words, where `result` is an error.
  void Check(Result result, const char* what) const;
};

struct Nvrtc {
  ONNXFUSE_CUDA_NVRTC(ONNXFUSE_CUDA_MEMBER)
  int major = 0, minor = 0;
  std::vector<int> archs;  // 75, 80, ...: what it compiles for
  std::string path;
};

#undef ONNXFUSE_CUDA_MEMBER

// Loaded once for the process. Null where there is none that works, or no device: `*why` then says so in words that
// end a sentence.
const Driver* FindDriver(std::string* why);
const Nvrtc* FindNvrtc(std::string* why);

}  // namespace onnxfuse::cuda
