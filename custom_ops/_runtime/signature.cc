#include "custom_ops/_runtime/signature.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>

namespace onnxfuse {
namespace {

constexpr std::string_view kRun = "...";

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Signature Run() {
    Signature result;
    result.name = Word();
    result.inputs = Params();
    Expect("->");
    result.outputs = Params();
    SkipSpace();
    if (at_ != text_.size()) Fail("the end");
    return result;
  }

 private:
  std::vector<Param> Params() {
    std::vector<Param> params;
    Expect("(");
    do {
      params.push_back(One());
    } while (Take(","));
    Expect(")");
    return params;
  }

  Param One() {
    Param param;
    param.name = Word();
    Expect(":");
    param.type = Word();
    param.has_dims = Take("[");
    while (param.has_dims && !Take("]")) {
      param.dims.push_back(Take(kRun) ? std::string(kRun) : Word());
      Take(",");
    }
    param.is_optional = Take("?");
    return param;
  }

  std::string Word() {
    SkipSpace();
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    if (at_ == begin) Fail("a name");
    return std::string(text_.substr(begin, at_ - begin));
  }

  bool Take(std::string_view token) {
    SkipSpace();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  void Expect(std::string_view token) {
    if (!Take(token)) Fail("'" + std::string(token) + "'");
  }

  void SkipSpace() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  [[noreturn]] void Fail(const std::string& what) const {
    throw std::invalid_argument("signature '" + std::string(text_) + "': " + what + " must stand at '" +
                                std::string(text_.substr(at_)) + "'");
  }

  std::string_view text_;
  size_t at_ = 0;
};

bool Differ(const Dim& a, const Dim& b) { return a.IsKnown() && b.IsKnown() && a.value != b.value; }

bool IsNumber(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

Signature Signature::Parse(std::string_view text) { return Parser(text).Run(); }

std::string Binding::Add(const Param& param, const Dims& dims) {
  if (!param.has_dims) return "";
  const bool has_run = std::find(param.dims.begin(), param.dims.end(), kRun) != param.dims.end();
  const size_t fixed = param.dims.size() - (has_run ? 1 : 0);
  if (dims.size() < fixed || (dims.size() > fixed && !has_run)) {
    return param.name + " must have rank " + std::to_string(fixed) + (has_run ? " or more" : "") + "; got " +
           Show(dims);
  }
  auto at = dims.begin();
  for (const std::string& name : param.dims) {
    const auto end = at + static_cast<ptrdiff_t>(name == kRun ? dims.size() - fixed : 1);
    const std::string problem = Bind(param, name, Dims(at, end));
    if (!problem.empty()) return problem + " in " + Show(dims);
    at = end;
  }
  return "";
}

std::string Binding::Bind(const Param& param, const std::string& name, const Dims& part) {
  if (Find(name) == nullptr) bound_.emplace_back(name, IsNumber(name) ? Dims{{std::stoll(name), ""}} : part);
  const Dims& before = *Find(name);
  if (std::equal(before.begin(), before.end(), part.begin(), part.end(),
                 [](const Dim& a, const Dim& b) { return !Differ(a, b); }))
    return "";
  return param.name + " must have " + name + " = " + Show(before) + "; got " + Show(part);
}

bool Binding::Resolve(const Param& param, Dims* dims) const {
  dims->clear();
  for (const std::string& name : param.dims) {
    const Dims* part = Find(name);
    if (part == nullptr) return false;
    dims->insert(dims->end(), part->begin(), part->end());
  }
  return param.has_dims;
}

const Dims* Binding::Find(const std::string& name) const {
  for (const auto& [key, part] : bound_) {
    if (key == name) return &part;
  }
  return nullptr;
}

std::string Show(const Dims& dims) {
  std::string text = "[";
  for (const Dim& dim : dims) {
    if (text.size() > 1) text += ",";
    text += dim.IsKnown() ? std::to_string(dim.value) : dim.symbol.empty() ? "?" : dim.symbol;
  }
  return text + "]";
}

std::string Show(const std::vector<int64_t>& shape) {
  Dims dims;
  for (const int64_t size : shape) dims.push_back({size, ""});
  return Show(dims);
}

}  // namespace onnxfuse
