// What an op reads and writes while a model is loaded: types and shapes, as far as they are known then.
#pragma once

#include <string>
#include <vector>

#include "custom_ops/_runtime/ort_abi.h"
#include "custom_ops/_runtime/signature.h"

namespace onnxfuse {

struct LoadTimeInput {
  bool is_given = false;
  OrtElementType type = kOrtUndefined;
  Dims dims;  // none where not even the rank is known
};

LoadTimeInput ReadLoadTimeInput(const OrtApi* api, const OrtShapeInferContext* context, size_t index);

// A string attribute of any length; "" where it is not given.
std::string ReadLoadTimeString(const OrtApi* api, const OrtShapeInferContext* context, const char* name);

// Says what an output is. Does nothing where a size has neither value nor symbol.
void SetLoadTimeOutput(const OrtApi* api, OrtShapeInferContext* context, size_t index, OrtElementType type,
                       const Dims& dims);

}  // namespace onnxfuse
