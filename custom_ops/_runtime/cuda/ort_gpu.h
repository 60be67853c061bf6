// The part of the ONNX Runtime C ABI that only kernels on a GPU speak; see ort_abi.h.
#pragma once

#include "custom_ops/_runtime/ort_abi.h"

extern "C" {
struct OrtAllocator;
struct OrtMemoryInfo;
struct OrtTypeInfo;
}

namespace onnxfuse::ort {

// X(slot, result, name, parameters after the table)
#define ONNXFUSE_ORT_GPU_SLOTS(X)                                                                                 \
  X(55, OrtStatus*, CastTypeInfoToTensorInfo, (const OrtTypeInfo*, const OrtTensorTypeAndShapeInfo**))            \
  X(72, OrtStatus*, MemoryInfoGetId, (const OrtMemoryInfo*, int*))                                                \
  X(76, OrtStatus*, AllocatorFree, (OrtAllocator*, void*))                                                        \
  X(77, OrtStatus*, AllocatorGetInfo, (const OrtAllocator*, const OrtMemoryInfo**))                               \
  X(98, void, ReleaseTypeInfo, (OrtTypeInfo*))                                                                    \
  X(132, void, ReleaseAllocator, (OrtAllocator*))                                                                 \
  X(193, OrtStatus*, KernelContext_GetGPUComputeStream, (const OrtKernelContext*, void**))                        \
  X(194, OrtStatus*, GetTensorMemoryInfo, (const OrtValue*, const OrtMemoryInfo**))                               \
  X(234, OrtStatus*, KernelInfo_GetInputTypeInfo, (const OrtKernelInfo*, size_t, OrtTypeInfo**))                  \
  X(253, OrtStatus*, KernelContext_GetAllocator,                                                                  \
    (const OrtKernelContext*, const OrtMemoryInfo*, OrtAllocator**))                                              \
  X(277, OrtStatus*, KernelContext_GetScratchBuffer,                                                              \
    (const OrtKernelContext*, const OrtMemoryInfo*, size_t, void**))                                              \
  X(278, OrtStatus*, KernelInfoGetAllocator, (const OrtKernelInfo*, OrtMemType, OrtAllocator**))

#define ONNXFUSE_ORT_ACCESSOR(slot, result, name, parameters) \
  inline auto name(const OrtApi* api) {                       \
    using Function = result(ORT_CALL*) parameters;            \
    return reinterpret_cast<Function const*>(api)[slot];      \
  }
ONNXFUSE_ORT_GPU_SLOTS(ONNXFUSE_ORT_ACCESSOR)
#undef ONNXFUSE_ORT_ACCESSOR

}  // namespace onnxfuse::ort
