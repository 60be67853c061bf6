#include "custom_ops/_runtime/load_time.h"

#include <algorithm>
#include <memory>

#include "custom_ops/_runtime/adapter.h"

namespace onnxfuse {

LoadTimeInput ReadLoadTimeInput(const OrtApi* api, const OrtShapeInferContext* context, size_t index) {
  OrtTensorTypeAndShapeInfo* info = nullptr;  // owned by the context
  OrtStatus* absent = ort::ShapeInferContext_GetInputTypeShape(api)(context, index, &info);
  if (absent != nullptr) return ort::ReleaseStatus(api)(absent), LoadTimeInput{};
  LoadTimeInput input{true, kOrtUndefined, {}};
  Check(ort::GetTensorElementType(api)(info, &input.type));
  size_t rank = 0;
  Check(ort::GetDimensionsCount(api)(info, &rank));
  std::vector<int64_t> sizes(rank);
  std::vector<const char*> symbols(rank, "");
  Check(ort::GetDimensions(api)(info, sizes.data(), rank));
  Check(ort::GetSymbolicDimensions(api)(info, symbols.data(), rank));
  for (size_t i = 0; i < rank; ++i) input.dims.push_back({sizes[i], symbols[i]});
  return input;
}

std::string ReadLoadTimeString(const OrtApi* api, const OrtShapeInferContext* context, const char* name) {
  auto is_ok = [&](OrtStatus* status) {
    if (status != nullptr) ort::ReleaseStatus(api)(status);
    return status == nullptr;
  };
  const OrtOpAttr* given = nullptr;
  if (!is_ok(ort::ShapeInferContext_GetAttribute(api)(context, name, &given))) return "";
  // Asked with no room, the runtime fails and says how much it wants; whether that counts a closing 0 is its version's.
  char nothing = 0;
  size_t size = 0;
  if (!is_ok(ort::ReadOpAttr(api)(given, kOrtAttributeString, &nothing, 0, &size)) && size == 0) return "";
  std::string text(size + 1, '\0');
  if (!is_ok(ort::ReadOpAttr(api)(given, kOrtAttributeString, text.data(), text.size(), &size))) return "";
  text.resize(text.find('\0'));
  return text;
}

void SetLoadTimeOutput(const OrtApi* api, OrtShapeInferContext* context, size_t index, OrtElementType type,
                       const Dims& dims) {
  // The runtime would write a size that has neither value nor symbol as -1.
  if (!std::all_of(dims.begin(), dims.end(), [](const Dim& dim) { return dim.HasName(); })) return;
  std::vector<int64_t> sizes;
  std::vector<const char*> symbols;
  for (const Dim& dim : dims) sizes.push_back(dim.value), symbols.push_back(dim.symbol.c_str());
  OrtTensorTypeAndShapeInfo* made = nullptr;
  Check(ort::CreateTensorTypeAndShapeInfo(api)(&made));
  const auto release = [&](OrtTensorTypeAndShapeInfo* info) { ort::ReleaseTensorTypeAndShapeInfo(api)(info); };
  const std::unique_ptr<OrtTensorTypeAndShapeInfo, decltype(release)> info(made, release);
  Check(ort::SetTensorElementType(api)(made, type));
  Check(ort::SetDimensions(api)(made, sizes.data(), sizes.size()));
  Check(ort::SetSymbolicDimensions(api)(made, symbols.data(), symbols.size()));
  Check(ort::ShapeInferContext_SetOutputTypeShape(api)(context, index, made));
}

}  // namespace onnxfuse
