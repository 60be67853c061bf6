#include "custom_ops/_runtime/cuda/json.h"

#include <charconv>
#include <locale>
#include <sstream>
#include <stdexcept>

namespace onnxfuse::cuda {

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  Json ReadAll() {
    Json value = ReadValue(0);
    SkipSpace();
    if (at_ != text_.size()) Fail("its end");
    return value;
  }

 private:
  static constexpr int kMostDepth = 8;

  [[noreturn]] void Fail(const std::string& wanted) const {
    throw std::invalid_argument("byte " + std::to_string(at_) + " must be " + wanted);
  }

  char Next() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void SkipSpace() {
    while (at_ < text_.size() && std::string_view(" \n\r\t").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool Take(char wanted) {
    SkipSpace();
    if (Next() != wanted) return false;
    return ++at_, true;
  }

  void Need(char wanted) {
    if (!Take(wanted)) Fail(std::string("'") + wanted + "'");
  }

  Json ReadValue(int depth) {
    if (depth > kMostDepth) Fail("no deeper than 8 values in one another");
    SkipSpace();
    if (Next() == '{') return ReadObject(depth);
    if (Next() == '[') return ReadArray(depth);
    Json value;
    const bool is_string = Next() == '"', is_word = Next() >= 'a' && Next() <= 'z';
    value.kind_ = is_string ? Json::Kind::kString : is_word ? Json::Kind::kWord : Json::Kind::kNumber;
    value.text_ = is_string ? ReadString() : is_word ? ReadWord() : ReadNumber();
    return value;
  }

  Json ReadObject(int depth) {
    Json object;
    object.kind_ = Json::Kind::kObject;
    Need('{');
    if (Take('}')) return object;
    do {
      SkipSpace();
      const std::string name = ReadString();
      Need(':');
      if (!object.members_.emplace(name, ReadValue(depth + 1)).second) Fail("behind a name that is not there already");
    } while (Take(','));
    Need('}');
    return object;
  }

  Json ReadArray(int depth) {
    Json array;
    array.kind_ = Json::Kind::kArray;
    Need('[');
    if (Take(']')) return array;
    do array.items_.push_back(ReadValue(depth + 1));
    while (Take(','));
    Need(']');
    return array;
  }

  std::string ReadString() {
    static constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    if (Next() != '"') Fail("'\"'");
    std::string made;
    for (++at_; Next() != '"'; ++at_) {
      if (static_cast<unsigned char>(Next()) < 0x20) Fail("inside a string that ends");
      if (Next() != '\\') {
        made += Next();
        continue;
      }
      ++at_;
      const size_t escape = kEscapes.find(Next());
      if (Next() == '\0' || escape == std::string_view::npos) Fail("an escape other than \\u");
      made += kMeant[escape];
    }
    ++at_;
    return made;
  }

  std::string ReadWord() {
    for (const std::string_view word : {"true", "false", "null"}) {
      if (text_.substr(at_, word.size()) == word) return at_ += word.size(), std::string(word);
    }
    Fail("a value");
  }

  void SkipDigits() {
    if (Next() < '0' || Next() > '9') Fail("a digit");
    while (Next() >= '0' && Next() <= '9') ++at_;
  }

  std::string ReadNumber() {
    const size_t begin = at_;
    if (Next() == '-') ++at_;
    SkipDigits();
    if (Next() == '.') ++at_, SkipDigits();
    if (Next() == 'e' || Next() == 'E') {
      ++at_;
      if (Next() == '-' || Next() == '+') ++at_;
      SkipDigits();
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  const std::string_view text_;
  size_t at_ = 0;
};

Json Json::Parse(std::string_view text) { return JsonReader(text).ReadAll(); }

void Json::Refuse(const std::string& wanted) const {
  static constexpr const char* kNames[] = {"an object", "an array", "a string", "the number", "the word"};
  throw std::invalid_argument("must be " + wanted + ", got " + kNames[static_cast<int>(kind_)] +
                              (text_.empty() ? "" : " " + Printable(text_)));
}

const Json& Json::At(const std::string& name) const {
  const auto found = Members().find(name);
  if (found == members_.end()) throw std::invalid_argument("'" + name + "' must be there");
  return found->second;
}

const std::map<std::string, Json>& Json::Members() const {
  if (kind_ != Kind::kObject) Refuse("an object");
  return members_;
}

const std::vector<Json>& Json::Items() const {
  if (kind_ != Kind::kArray) Refuse("an array");
  return items_;
}

const std::string& Json::Text() const {
  if (kind_ != Kind::kString) Refuse("a string");
  return text_;
}

double Json::Real() const {
  if (kind_ != Kind::kNumber) Refuse("a number");
  std::istringstream text(text_);
  text.imbue(std::locale::classic());
  double value = 0;
  if (!(text >> value)) Refuse("a number that a double holds");
  return value;
}

int64_t Json::Whole(int64_t least, int64_t most) const {
  int64_t value = 0;
  const char* end = text_.data() + text_.size();
  const bool is_whole = kind_ == Kind::kNumber && std::from_chars(text_.data(), end, value).ptr == end;
  if (!is_whole || value < least || value > most) {
    Refuse("a number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

std::string Printable(const std::string& text) {
  constexpr size_t kMost = 40;
  std::string shown = text.substr(0, kMost);
  for (char& letter : shown) letter = letter >= ' ' && letter <= '~' ? letter : '?';
  return shown + (text.size() > kMost ? "..." : "");
}

}  // namespace onnxfuse::cuda
