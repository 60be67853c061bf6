#include "custom_ops/_runtime/program.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <limits>
#include <map>
#include <stdexcept>

namespace onnxfuse {
namespace {

struct PrimitiveTraits {
  const char* name;
  size_t arity;
  Rule rule;
};

constexpr PrimitiveTraits kTraits[] = {
#define ONNXFUSE_TRAITS(name, arity, rule) {#name, arity, Rule::rule},
    ONNXFUSE_PRIMITIVES(ONNXFUSE_TRAITS)
#undef ONNXFUSE_TRAITS
};

struct TypeTraits {
  Type type;
  const char* name;
  int size;
};

constexpr TypeTraits kTypes[] = {
    {Type::kFloat, "float", 4},   {Type::kFloat16, "float16", 2}, {Type::kBFloat16, "bfloat16", 2},
    {Type::kDouble, "double", 8}, {Type::kInt8, "int8", 1},       {Type::kUInt8, "uint8", 1},
    {Type::kInt16, "int16", 2},   {Type::kUInt16, "uint16", 2},   {Type::kInt32, "int32", 4},
    {Type::kUInt32, "uint32", 4}, {Type::kInt64, "int64", 8},     {Type::kUInt64, "uint64", 8},
    {Type::kBool, "bool", 1},
};

const TypeTraits* FindType(Type type) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return t.type == type; });
  return found == std::end(kTypes) ? nullptr : found;
}

const PrimitiveTraits& TraitsOf(Primitive primitive) { return kTraits[static_cast<size_t>(primitive)]; }

constexpr std::string_view kConcat = "Concat";

bool IsWhole(Type type) { return !IsReal(type) && type != Type::kBool; }

// Whether the arguments' types, all `type` (of a Where: the two that are chosen from), suit the rule.
bool Suits(Rule rule, Type type) {
  switch (rule) {
    case Rule::kReal:
    case Rule::kTest: return IsReal(type);
    case Rule::kNumber:
    case Rule::kCompare: return type != Type::kBool;
    case Rule::kWhole: return IsWhole(type);
    case Rule::kUnsigned: return IsUnsigned(type);
    case Rule::kBool: return type == Type::kBool;
    default: return true;
  }
}

const char* Wanted(Rule rule) {
  switch (rule) {
    case Rule::kReal:
    case Rule::kTest: return "a floating-point type";
    case Rule::kNumber:
    case Rule::kCompare: return "a number type";
    case Rule::kWhole: return "an integer type";
    case Rule::kUnsigned: return "an unsigned integer type";
    default: return "bool";
  }
}

bool GivesBool(Rule rule) { return rule == Rule::kTest || rule == Rule::kCompare || rule == Rule::kCompareAny; }

// The least and the greatest value of an integer type, as 64 bits each.
struct Range {
  int64_t least;
  uint64_t most;
};

Range RangeOf(Type type) {
  if (type == Type::kBool) return {0, 1};
  const int bits = 8 * static_cast<int>(SizeOf(type));
  const uint64_t all = std::numeric_limits<uint64_t>::max() >> (64 - bits);
  if (IsUnsigned(type)) return {0, all};
  return {-static_cast<int64_t>(all >> 1) - 1, all >> 1};
}

template <typename T>
bool ParseWhole(std::string_view text, T* value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && stop == text.data() + text.size();
}

// Decimal, hexadecimal (0x1.8p+1), inf or nan, with a sign or without; whatever the locale.
bool ParseReal(std::string_view text, double* value) {
  const bool is_negative = !text.empty() && text.front() == '-';
  if (is_negative) text.remove_prefix(1);
  const bool is_hex = text.substr(0, 2) == "0x";
  if (is_hex) text.remove_prefix(2);
  const auto format = is_hex ? std::chars_format::hex : std::chars_format::general;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), *value, format);
  if (is_negative) *value = -*value;
  return error == std::errc() && stop == text.data() + text.size();
}

// Reads one line.
class Line {
 public:
  Line(std::string_view text, size_t number) : text_(text), number_(number) {}

  bool AtEnd() {
    SkipSpace();
    return at_ == text_.size();
  }

  bool Take(std::string_view token) {
    SkipSpace();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  void Expect(std::string_view token) {
    if (!Take(token)) Fail("'" + std::string(token) + "' must stand at '" + std::string(text_.substr(at_, 40)) + "'");
  }

  std::string Name() {
    SkipSpace();
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    if (at_ == begin) Fail("a name must stand at '" + std::string(text_.substr(at_, 40)) + "'");
    return std::string(text_.substr(begin, at_ - begin));
  }

  Type TypeName() {
    const std::string name = Name();
    for (const TypeTraits& type : kTypes) {
      if (type.name == name) return type.type;
    }
    Fail("'" + name + "' must be an element type: float, float16, bfloat16, double, int8 ... uint64 or bool");
  }

  // Whether a number stands next, which no name begins like.
  bool AtAxis() {
    SkipSpace();
    return at_ < text_.size() && (text_[at_] == '-' || std::isdigit(static_cast<unsigned char>(text_[at_])));
  }

  // Everything up to `end`, which stays.
  std::string Until(char end) {
    SkipSpace();
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != end) ++at_;
    std::string found(text_.substr(begin, at_ - begin));
    while (!found.empty() && found.back() == ' ') found.pop_back();
    return found;
  }

  [[noreturn]] void Fail(const std::string& what) const {
    throw std::invalid_argument("program, line " + std::to_string(number_) + ": " + what);
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  std::string_view text_;
  size_t number_;
  size_t at_ = 0;
};

class Parser {
 public:
  Program Run(std::string_view text) {
    std::vector<std::string_view> lines = Split(text);
    if (lines.size() < 2) Line(text, 1).Fail("a program has a line of inputs, its values, and a line of results");
    ReadInputs(Line(lines.front(), 1));
    // Inputs come before steps, and what is joined is an input.
    for (size_t i = 1; i + 1 < lines.size(); ++i) ReadJoin(Line(lines[i], i + 1));
    for (size_t i = 1; i + 1 < lines.size(); ++i) ReadStep(Line(lines[i], i + 1));
    ReadResults(Line(lines.back(), lines.size()));
    return std::move(program_);
  }

 private:
  static std::vector<std::string_view> Split(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      lines.push_back(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
  }

  void ReadInputs(Line line) {
    while (!line.AtEnd()) {
      const std::string name = line.Name();
      line.Expect(":");
      program_.inputs.push_back(line.TypeName());
      program_.is_row_input.push_back(line.Take("/row"));
      Define(name, line);
    }
    if (program_.inputs.empty() || program_.inputs.size() > Program::kMostInputs) {
      line.Fail("a program must have 1 to " + std::to_string(Program::kMostInputs) + " inputs; got " +
                std::to_string(program_.inputs.size()));
    }
  }

  // A line of a Concat; others are left alone.
  void ReadJoin(Line line) {
    const std::string name = line.Name();
    line.Expect(":");
    const Type type = line.TypeName();
    line.Expect("=");
    if (line.Name() != kConcat) return;
    line.Expect("(");
    Join join;
    while (!line.AtAxis()) {
      join.pieces.push_back(ValueNamed(line.Name(), line));
      line.Expect(",");
      const auto piece = static_cast<size_t>(join.pieces.back());
      if (program_.IsJoin(piece) || program_.inputs[piece] != type || program_.is_row_input[piece]) {
        line.Fail("Concat must be of inputs of its own type that are not marked /row");
      }
    }
    const std::string axis = line.Until(')');
    if (join.pieces.empty() || join.pieces.size() > Program::kMostPieces) {
      line.Fail("Concat must be of 1 to " + std::to_string(Program::kMostPieces) + " inputs; got " +
                std::to_string(join.pieces.size()));
    }
    if (!ParseWhole(std::string_view(axis), &join.axis) || join.axis >= 0) {
      line.Fail("the axis of a Concat must be a number below 0, counted from the end; got '" + axis + "'");
    }
    CloseStep(&line);
    program_.joins.push_back(std::move(join));
    program_.inputs.push_back(type);
    program_.is_row_input.push_back(false);
    Define(name, line);
  }

  static void CloseStep(Line* line) {
    line->Expect(")");
    if (!line->AtEnd()) line->Fail("nothing may stand behind the ')'");
  }

  void ReadStep(Line line) {
    Step step;
    const std::string name = line.Name();
    line.Expect(":");
    step.type = line.TypeName();
    line.Expect("=");
    const std::string primitive = line.Name();
    if (primitive == kConcat) return;
    step.primitive = PrimitiveNamed(primitive, line);
    line.Expect("(");
    if (step.primitive == Primitive::kConst) {
      ReadConstant(line.Until(')'), line, &step);
    } else if (step.primitive == Primitive::kDim) {
      ReadDim(&line, &step);
    } else {
      ReadArguments(&line, &step);
    }
    CloseStep(&line);
    if (program_.steps.size() == Program::kMostSteps) {
      line.Fail("a program must have at most " + std::to_string(Program::kMostSteps) + " values");
    }
    program_.steps.push_back(std::move(step));
    Define(name, line);
  }

  void ReadResults(Line line) {
    line.Expect("->");
    do {
      program_.results.push_back(ValueNamed(line.Name(), line));
    } while (line.Take(","));
    if (!line.AtEnd()) line.Fail("results must be names with ',' between them");
    if (program_.results.size() > Program::kMostResults) {
      line.Fail("a program must have at most " + std::to_string(Program::kMostResults) + " results; got " +
                std::to_string(program_.results.size()));
    }
  }

  static Primitive PrimitiveNamed(const std::string& name, const Line& line) {
    for (size_t i = 0; i < std::size(kTraits); ++i) {
      if (kTraits[i].name == name) return static_cast<Primitive>(i);
    }
    line.Fail("'" + name + "' is no primitive of programs");
  }

  void ReadDim(Line* line, Step* step) const {
    step->arguments.push_back(ValueNamed(line->Name(), *line));
    line->Expect(",");
    const std::string axis = line->Until(')');
    const bool is_axis = ParseWhole(std::string_view(axis), &step->whole);
    const auto input = static_cast<size_t>(step->arguments[0]);
    if (!is_axis || step->type != Type::kInt64 || input >= program_.GivenCount()) {
      line->Fail("Dim must be int64, of an input and a number; got axis '" + axis + "'");
    }
  }

  void ReadArguments(Line* line, Step* step) {
    const PrimitiveTraits& traits = TraitsOf(step->primitive);
    for (size_t i = 0; i < traits.arity; ++i) {
      if (i > 0) line->Expect(",");
      step->arguments.push_back(ValueNamed(line->Name(), *line));
    }
    CheckTypes(traits, *step, *line);
  }

  void CheckTypes(const PrimitiveTraits& traits, const Step& step, const Line& line) const {
    if (traits.rule == Rule::kCast) return;
    const size_t first = traits.rule == Rule::kWhere ? 1 : 0;
    const Type type = program_.TypeOf(step.arguments[first]);
    if (first == 1 && program_.TypeOf(step.arguments[0]) != Type::kBool) {
      line.Fail("the condition of Where must be bool; got " + std::string(NameOf(program_.TypeOf(step.arguments[0]))));
    }
    for (size_t i = first; i < step.arguments.size(); ++i) {
      const Type other = program_.TypeOf(step.arguments[i]);
      if (other != type) {
        line.Fail(std::string("arguments of ") + traits.name + " must have one type; got " + NameOf(type) + " and " +
                  NameOf(other));
      }
    }
    if (!Suits(traits.rule, type)) {
      line.Fail(std::string("arguments of ") + traits.name + " must have " + Wanted(traits.rule) + "; got " +
                NameOf(type));
    }
    const Type given = GivesBool(traits.rule) ? Type::kBool : type;
    if (step.type != given) {
      line.Fail(std::string("the type of ") + traits.name + " must be " + NameOf(given) + "; got " + NameOf(step.type));
    }
  }

  static void ReadConstant(const std::string& text, const Line& line, Step* step) {
    bool fits = false;
    if (step->type == Type::kBool) {
      fits = text == "true" || text == "false";
      step->whole = text == "true";
    } else if (IsReal(step->type)) {
      fits = ParseReal(text, &step->real);
    } else if (IsUnsigned(step->type)) {
      uint64_t bits = 0;
      fits = ParseWhole(text, &bits) && bits <= RangeOf(step->type).most;
      step->whole = static_cast<int64_t>(bits);
    } else {
      const Range range = RangeOf(step->type);
      fits = ParseWhole(text, &step->whole) && step->whole >= range.least &&
             step->whole <= static_cast<int64_t>(range.most);
    }
    if (!fits) line.Fail(std::string("Const must be a value that ") + NameOf(step->type) + " has; got '" + text + "'");
  }

  int ValueNamed(const std::string& name, const Line& line) const {
    const auto found = values_.find(name);
    if (found == values_.end()) line.Fail("'" + name + "' must be defined before it is used");
    return found->second;
  }

  void Define(const std::string& name, const Line& line) {
    if (!values_.emplace(name, program_.ValueCount() - 1).second) line.Fail("'" + name + "' is defined twice");
  }

  Program program_;
  std::map<std::string, int> values_;
};

}  // namespace

const char* NameOf(Primitive primitive) { return TraitsOf(primitive).name; }

const char* NameOf(Type type) {
  const TypeTraits* traits = FindType(type);
  return traits == nullptr ? "?" : traits->name;
}

int64_t SizeOf(Type type) {
  const TypeTraits* traits = FindType(type);
  return traits == nullptr ? 0 : traits->size;
}

bool IsReal(Type type) {
  return type == Type::kFloat || type == Type::kFloat16 || type == Type::kBFloat16 || type == Type::kDouble;
}

bool IsUnsigned(Type type) {
  return type == Type::kUInt8 || type == Type::kUInt16 || type == Type::kUInt32 || type == Type::kUInt64;
}

Program Program::Parse(std::string_view text) { return Parser().Run(text); }

bool Program::HasReduction() const {
  return std::any_of(steps.begin(), steps.end(), [](const Step& step) { return IsReduction(step.primitive); });
}

std::vector<bool> Program::IsRowShaped() const {
  std::vector<bool> is_row = is_row_input, is_constant(inputs.size(), false);
  for (const Step& step : steps) {
    bool constant = true, row_or_constant = true;
    for (const int argument : step.arguments) {
      const auto at = static_cast<size_t>(argument);
      constant = constant && is_constant[at];
      row_or_constant = row_or_constant && (is_constant[at] || is_row[at]);
    }
    constant = constant || step.primitive == Primitive::kDim;
    const bool reduces = IsReduction(step.primitive);
    is_constant.push_back(constant && !reduces);
    is_row.push_back(reduces || (row_or_constant && !constant));
  }
  return is_row;
}

std::vector<bool> Program::Broadcasts() const {
  std::vector<bool> measured(inputs.size(), false), read(inputs.size(), false);
  auto mark = [&](std::vector<bool>& marks, int value) {
    if (IsInput(value)) marks[static_cast<size_t>(value)] = true;
  };
  for (const Step& step : steps) {
    for (const int argument : step.arguments) mark(step.primitive == Primitive::kDim ? measured : read, argument);
  }
  for (const Join& join : joins) {
    for (const int piece : join.pieces) mark(measured, piece);
  }
  for (const int result : results) mark(read, result);
  for (size_t i = 0; i < inputs.size(); ++i) measured[i] = read[i] || !measured[i];
  return measured;
}

}  // namespace onnxfuse
