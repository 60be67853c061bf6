// The part of the ONNX Runtime C ABI that this library speaks, version 18 (ONNX Runtime 1.18).
//
// The runtime hands a custom-op library a table of functions (OrtApi). The table only ever grows at its end, so a
// function is known by its slot; the numbers below are those slots, and every runtime since serves them. All slots but
// the last, which is of version 24, are of version 17 or older; version 18 is asked for because from it on a runtime
// reads GetMayInplace.
// Nothing here needs the runtime's headers, and the library links no runtime.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(_WIN32)
#define ORT_CALL __stdcall
#else
#define ORT_CALL
#endif

extern "C" {

constexpr uint32_t kOrtApiVersion = 18;

// Only ever seen through pointers.
struct OrtApi;
struct OrtStatus;
struct OrtSessionOptions;
struct OrtCustomOpDomain;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtShapeInferContext;
struct OrtOpAttr;
struct OrtValue;
struct OrtTensorTypeAndShapeInfo;

struct OrtApiBase {
  const OrtApi*(ORT_CALL* GetApi)(uint32_t version);  // null when the runtime is older than `version`
  const char*(ORT_CALL* GetVersionString)();
};

enum OrtErrorCode : int { kOrtFail = 1, kOrtInvalidArgument = 2 };
enum OrtAttributeType : int { kOrtAttributeInt = 1, kOrtAttributeFloat = 3, kOrtAttributeString = 5 };
enum OrtMemType : int { kOrtMemTypeDefault = 0 };
enum OrtCharacteristic : int { kOrtRequired = 0, kOrtOptional = 1, kOrtVariadic = 2 };

// The element types of ONNX, by the numbers that the runtime shares with TensorProto.
enum OrtElementType : int {
  kOrtUndefined = 0,
  kOrtFloat = 1,
  kOrtInt32 = 6,
  kOrtInt64 = 7,
  kOrtBool = 9,
  kOrtFloat16 = 10,
  kOrtDouble = 11,
  kOrtBFloat16 = 16,
};

// What the runtime asks of an op.
struct OrtCustomOp {
  uint32_t version;
  void*(ORT_CALL* CreateKernel)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*);
  const char*(ORT_CALL* GetName)(const OrtCustomOp*);
  const char*(ORT_CALL* GetExecutionProviderType)(const OrtCustomOp*);  // null: the CPU
  OrtElementType(ORT_CALL* GetInputType)(const OrtCustomOp*, size_t);
  size_t(ORT_CALL* GetInputTypeCount)(const OrtCustomOp*);
  OrtElementType(ORT_CALL* GetOutputType)(const OrtCustomOp*, size_t);
  size_t(ORT_CALL* GetOutputTypeCount)(const OrtCustomOp*);
  void(ORT_CALL* KernelCompute)(void* kernel, OrtKernelContext*);
  void(ORT_CALL* KernelDestroy)(void* kernel);
  OrtCharacteristic(ORT_CALL* GetInputCharacteristic)(const OrtCustomOp*, size_t);
  OrtCharacteristic(ORT_CALL* GetOutputCharacteristic)(const OrtCustomOp*, size_t);
  OrtMemType(ORT_CALL* GetInputMemoryType)(const OrtCustomOp*, size_t);
  int(ORT_CALL* GetVariadicInputMinArity)(const OrtCustomOp*);
  int(ORT_CALL* GetVariadicInputHomogeneity)(const OrtCustomOp*);
  int(ORT_CALL* GetVariadicOutputMinArity)(const OrtCustomOp*);
  int(ORT_CALL* GetVariadicOutputHomogeneity)(const OrtCustomOp*);
  OrtStatus*(ORT_CALL* CreateKernelV2)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void** kernel);
  OrtStatus*(ORT_CALL* KernelComputeV2)(void* kernel, OrtKernelContext*);
  OrtStatus*(ORT_CALL* InferOutputShapeFn)(const OrtCustomOp*, OrtShapeInferContext*);
  int(ORT_CALL* GetStartVersion)(const OrtCustomOp*);
  int(ORT_CALL* GetEndVersion)(const OrtCustomOp*);
  size_t(ORT_CALL* GetMayInplace)(int** inputs, int** outputs);
  void(ORT_CALL* ReleaseMayInplace)(int* inputs, int* outputs);
  size_t(ORT_CALL* GetAliasMap)(int** inputs, int** outputs);
  void(ORT_CALL* ReleaseAliasMap)(int* inputs, int* outputs);
};

}  // extern "C"

namespace onnxfuse::ort {

// X(slot, result, name, parameters after the table)
#define ONNXFUSE_ORT_SLOTS(X)                                                                                   \
  X(0, OrtStatus*, CreateStatus, (OrtErrorCode, const char*))                                                   \
  X(26, OrtStatus*, CreateCustomOpDomain, (const char*, OrtCustomOpDomain**))                                   \
  X(27, OrtStatus*, CustomOpDomain_Add, (OrtCustomOpDomain*, const OrtCustomOp*))                               \
  X(28, OrtStatus*, AddCustomOpDomain, (OrtSessionOptions*, OrtCustomOpDomain*))                                \
  X(51, OrtStatus*, GetTensorMutableData, (OrtValue*, void**))                                                  \
  X(57, OrtStatus*, CreateTensorTypeAndShapeInfo, (OrtTensorTypeAndShapeInfo**))                                \
  X(58, OrtStatus*, SetTensorElementType, (OrtTensorTypeAndShapeInfo*, OrtElementType))                         \
  X(59, OrtStatus*, SetDimensions, (OrtTensorTypeAndShapeInfo*, const int64_t*, size_t))                        \
  X(60, OrtStatus*, GetTensorElementType, (const OrtTensorTypeAndShapeInfo*, OrtElementType*))                  \
  X(61, OrtStatus*, GetDimensionsCount, (const OrtTensorTypeAndShapeInfo*, size_t*))                            \
  X(62, OrtStatus*, GetDimensions, (const OrtTensorTypeAndShapeInfo*, int64_t*, size_t))                        \
  X(63, OrtStatus*, GetSymbolicDimensions, (const OrtTensorTypeAndShapeInfo*, const char**, size_t))            \
  X(65, OrtStatus*, GetTensorTypeAndShape, (const OrtValue*, OrtTensorTypeAndShapeInfo**))                      \
  X(85, OrtStatus*, KernelInfoGetAttribute_float, (const OrtKernelInfo*, const char*, float*))                  \
  X(86, OrtStatus*, KernelInfoGetAttribute_int64, (const OrtKernelInfo*, const char*, int64_t*))                \
  X(87, OrtStatus*, KernelInfoGetAttribute_string, (const OrtKernelInfo*, const char*, char*, size_t*))         \
  X(90, OrtStatus*, KernelContext_GetInput, (const OrtKernelContext*, size_t, const OrtValue**))                \
  X(91, OrtStatus*, KernelContext_GetOutput, (OrtKernelContext*, size_t, const int64_t*, size_t, OrtValue**))   \
  X(93, void, ReleaseStatus, (OrtStatus*))                                                                      \
  X(99, void, ReleaseTensorTypeAndShapeInfo, (OrtTensorTypeAndShapeInfo*))                                      \
  X(125, OrtStatus*, GetAvailableProviders, (char***, int*))                                                    \
  X(126, OrtStatus*, ReleaseAvailableProviders, (char**, int))                                                  \
  X(163, OrtStatus*, KernelInfoGetAttributeArray_int64, (const OrtKernelInfo*, const char*, int64_t*, size_t*)) \
  X(230, OrtStatus*, KernelInfo_GetInputCount, (const OrtKernelInfo*, size_t*))                                 \
  X(231, OrtStatus*, KernelInfo_GetOutputCount, (const OrtKernelInfo*, size_t*))                                \
  X(237, OrtStatus*, HasSessionConfigEntry, (const OrtSessionOptions*, const char*, int*))                      \
  X(238, OrtStatus*, GetSessionConfigEntry, (const OrtSessionOptions*, const char*, char*, size_t*))            \
  X(244, OrtStatus*, KernelInfo_GetNodeName, (const OrtKernelInfo*, char*, size_t*))                            \
  X(249, OrtStatus*, KernelInfoGetConstantInput_tensor, (const OrtKernelInfo*, size_t, int*, const OrtValue**)) \
  X(267, OrtStatus*, ShapeInferContext_GetInputCount, (const OrtShapeInferContext*, size_t*))                   \
  X(268, OrtStatus*, ShapeInferContext_GetInputTypeShape,                                                       \
    (const OrtShapeInferContext*, size_t, OrtTensorTypeAndShapeInfo**))                                         \
  X(269, OrtStatus*, ShapeInferContext_GetAttribute,                                                            \
    (const OrtShapeInferContext*, const char*, const OrtOpAttr**))                                              \
  X(270, OrtStatus*, ShapeInferContext_SetOutputTypeShape,                                                      \
    (const OrtShapeInferContext*, size_t, const OrtTensorTypeAndShapeInfo*))                                    \
  X(271, OrtStatus*, SetSymbolicDimensions, (OrtTensorTypeAndShapeInfo*, const char**, size_t))                 \
  X(272, OrtStatus*, ReadOpAttr, (const OrtOpAttr*, OrtAttributeType, void*, size_t, size_t*))                  \
  X(274, OrtStatus*, KernelContext_ParallelFor,                                                                 \
    (const OrtKernelContext*, void (*)(void*, size_t), size_t, size_t, void*))                                  \
  X(414, OrtStatus*, GetTensorElementTypeAndShapeDataReference,                                                 \
    (const OrtValue*, OrtElementType*, const int64_t**, size_t*))

// ort::CreateStatus(api)(code, message) and so on: the table's function in that slot.
#define ONNXFUSE_ORT_ACCESSOR(slot, result, name, parameters) \
  inline auto name(const OrtApi* api) {                       \
    using Function = result(ORT_CALL*) parameters;            \
    return reinterpret_cast<Function const*>(api)[slot];      \
  }
ONNXFUSE_ORT_SLOTS(ONNXFUSE_ORT_ACCESSOR)
#undef ONNXFUSE_ORT_ACCESSOR

}  // namespace onnxfuse::ort
