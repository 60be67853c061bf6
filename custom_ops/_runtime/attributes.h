// Reading and checking the attributes of a node.
#pragma once

#include <vector>

#include "custom_ops/_runtime/op.h"
#include "custom_ops/_runtime/ort_abi.h"

namespace onnxfuse {

// The values of `attributes` in the node, in that order; the default where one is not given.
// Throws std::runtime_error where one has another type or a value that is not allowed.
std::vector<AttributeValue> ReadAttributes(const std::vector<Attribute>& attributes, const OrtApi* api,
                                           const OrtKernelInfo* info);

// The same while the model is loaded; the default too where what is given is not allowed, which is said later.
std::vector<AttributeValue> ReadAttributes(const std::vector<Attribute>& attributes, const OrtApi* api,
                                           const OrtShapeInferContext* context);

}  // namespace onnxfuse
