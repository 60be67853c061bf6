#include "custom_ops/_runtime/attributes.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace onnxfuse {
namespace {

class Reader {
 public:
  Reader(const OrtApi* api, const OrtKernelInfo* info) : api_(api), info_(info) {}

  AttributeValue Read(const Attribute& attribute) const {
    switch (attribute.kind) {
      case Attribute::Kind::kInt: return ReadInt(attribute);
      case Attribute::Kind::kFloat: return ReadFloat(attribute);
      case Attribute::Kind::kChoice: break;
    }
    return ReadChoice(attribute);
  }

 private:
  AttributeValue ReadInt(const Attribute& attribute) const {
    int64_t value = attribute.int_default;
    if (!Get(ort::KernelInfoGetAttribute_int64(api_), attribute.name, &value)) RequireAbsent(attribute, "an int");
    if (value < attribute.int_min || value > attribute.int_max) {
      Fail(attribute, "be " + Range(attribute), std::to_string(value));
    }
    return {.i = value};
  }

  AttributeValue ReadFloat(const Attribute& attribute) const {
    float value = attribute.float_default;
    if (!Get(ort::KernelInfoGetAttribute_float(api_), attribute.name, &value)) RequireAbsent(attribute, "a float");
    if (attribute.can_be_infinite) {
      if (std::isnan(value)) Fail(attribute, "not be NaN", "NaN");
    } else if (!std::isfinite(value) || value < attribute.float_min) {
      const bool is_bounded = attribute.float_min > std::numeric_limits<float>::lowest();
      Fail(attribute, is_bounded ? "be finite and at least " + std::to_string(attribute.float_min) : "be finite",
           std::to_string(value));
    }
    return {.f = value};
  }

  AttributeValue ReadChoice(const Attribute& attribute) const {
    std::string text;
    if (!GetString(attribute.name, &text)) {
      RequireAbsent(attribute, "a string");
      return {.i = 0};
    }
    std::string allowed;
    for (size_t i = 0; i < attribute.choices.size(); ++i) {
      if (attribute.choices[i] == text) return {.i = static_cast<int64_t>(i)};
      allowed += (i > 0 ? " or '" : "'") + attribute.choices[i] + "'";
    }
    Fail(attribute, "be " + allowed, "'" + text + "'");
  }

  // The runtime says only that it found no attribute of that name and type. It is absent if nothing else finds it; the
  // last of these minds the name only.
  void RequireAbsent(const Attribute& attribute, const std::string& type) const {
    int64_t whole;
    float real;
    size_t size = 0;
    const char* name = attribute.name.c_str();
    const bool is_there = Get(ort::KernelInfoGetAttribute_int64(api_), name, &whole) ||
                          Get(ort::KernelInfoGetAttribute_float(api_), name, &real) ||
                          Get(ort::KernelInfoGetAttribute_string(api_), name, nullptr, &size) ||
                          Get(ort::KernelInfoGetAttributeArray_int64(api_), name, nullptr, &(size = 0));
    if (is_there) Fail(attribute, "be " + type, "an attribute of another type");
  }

  bool GetString(const std::string& name, std::string* text) const {
    size_t size = 0;
    if (!Get(ort::KernelInfoGetAttribute_string(api_), name, nullptr, &size)) return false;
    text->resize(size);
    if (!Get(ort::KernelInfoGetAttribute_string(api_), name, text->data(), &size)) return false;
    text->resize(size - 1);  // without the closing 0
    return true;
  }

  template <typename Function, typename... Out>
  bool Get(Function function, const std::string& name, Out... out) const {
    OrtStatus* status = function(info_, name.c_str(), out...);
    if (status != nullptr) ort::ReleaseStatus(api_)(status);
    return status == nullptr;
  }

  static std::string Range(const Attribute& attribute) {
    const std::string least = std::to_string(attribute.int_min), most = std::to_string(attribute.int_max);
    return attribute.int_max == std::numeric_limits<int64_t>::max() ? "at least " + least
                                                                    : "from " + least + " to " + most;
  }

  [[noreturn]] static void Fail(const Attribute& attribute, const std::string& must, const std::string& got) {
    throw std::runtime_error("attribute '" + attribute.name + "' must " + must + "; got " + got);
  }

  const OrtApi* api_;
  const OrtKernelInfo* info_;
};

class LoadTimeReader {
 public:
  LoadTimeReader(const OrtApi* api, const OrtShapeInferContext* context) : api_(api), context_(context) {}

  AttributeValue Read(const Attribute& attribute) const {
    AttributeValue value{.i = attribute.int_default, .f = attribute.float_default};
    const OrtOpAttr* given = nullptr;
    if (!Is(ort::ShapeInferContext_GetAttribute(api_)(context_, attribute.name.c_str(), &given))) return value;
    size_t size = 0;
    switch (attribute.kind) {
      case Attribute::Kind::kInt:
        Is(ort::ReadOpAttr(api_)(given, kOrtAttributeInt, &value.i, sizeof(value.i), &size));
        if (value.i < attribute.int_min || value.i > attribute.int_max) value.i = attribute.int_default;
        break;
      case Attribute::Kind::kFloat:
        Is(ort::ReadOpAttr(api_)(given, kOrtAttributeFloat, &value.f, sizeof(value.f), &size));
        break;
      case Attribute::Kind::kChoice: value.i = ReadChoice(attribute, given);
    }
    return value;
  }

 private:
  int64_t ReadChoice(const Attribute& attribute, const OrtOpAttr* given) const {
    char text[64] = "";  // longer than any choice
    size_t size = 0;
    if (!Is(ort::ReadOpAttr(api_)(given, kOrtAttributeString, text, sizeof(text) - 1, &size))) return 0;
    const auto found = std::find(attribute.choices.begin(), attribute.choices.end(), text);
    return found == attribute.choices.end() ? 0 : found - attribute.choices.begin();
  }

  bool Is(OrtStatus* status) const {
    if (status != nullptr) ort::ReleaseStatus(api_)(status);
    return status == nullptr;
  }

  const OrtApi* api_;
  const OrtShapeInferContext* context_;
};

}  // namespace

Attribute Int(std::string name, int64_t value, int64_t min, int64_t max) {
  return {.name = std::move(name), .kind = Attribute::Kind::kInt, .int_default = value, .int_min = min, .int_max = max};
}

Attribute Float(std::string name, float value, float min) {
  return {.name = std::move(name), .kind = Attribute::Kind::kFloat, .float_default = value, .float_min = min};
}

Attribute AnyFloat(std::string name, float value) {
  return {.name = std::move(name), .kind = Attribute::Kind::kFloat, .float_default = value, .can_be_infinite = true};
}

Attribute Choice(std::string name, std::vector<std::string> choices) {
  return {.name = std::move(name), .kind = Attribute::Kind::kChoice, .choices = std::move(choices)};
}

std::vector<AttributeValue> ReadAttributes(const std::vector<Attribute>& attributes, const OrtApi* api,
                                           const OrtKernelInfo* info) {
  const Reader reader(api, info);
  std::vector<AttributeValue> values;
  for (const Attribute& attribute : attributes) values.push_back(reader.Read(attribute));
  return values;
}

std::vector<AttributeValue> ReadAttributes(const std::vector<Attribute>& attributes, const OrtApi* api,
                                           const OrtShapeInferContext* context) {
  const LoadTimeReader reader(api, context);
  std::vector<AttributeValue> values;
  for (const Attribute& attribute : attributes) values.push_back(reader.Read(attribute));
  return values;
}

}  // namespace onnxfuse
