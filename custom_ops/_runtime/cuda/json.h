// The JSON that `onnxfuse kernels build` writes beside a compiled kernel.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace onnxfuse::cuda {

// A value. What it is asked for must be there: otherwise std::invalid_argument says what is missing or of another kind.
class Json {
 public:
  // Throws std::invalid_argument, which says at which byte the text is no JSON, or more than it may be here: \u in a
  // string, a name twice in an object, more than 8 values in one another.
  static Json Parse(std::string_view text);

  const Json& At(const std::string& name) const;
  bool Has(const std::string& name) const { return members_.count(name) != 0; }
  const std::map<std::string, Json>& Members() const;
  const std::vector<Json>& Items() const;
  const std::string& Text() const;
  double Real() const;
  // A whole number of these bounds.
  int64_t Whole(int64_t least = 0, int64_t most = INT32_MAX) const;

 private:
  friend class JsonReader;
  enum class Kind { kObject, kArray, kString, kNumber, kWord };

  [[noreturn]] void Refuse(const std::string& wanted) const;

  Kind kind_ = Kind::kWord;
  std::string text_;  // of a number or a word as it is written
  std::vector<Json> items_;
  std::map<std::string, Json> members_;
};

// The beginning of a text that may hold anything, fit for a message.
std::string Printable(const std::string& text);

}  // namespace onnxfuse::cuda
