#include "custom_ops/_runtime/cuda/expression.h"

#include <cctype>
#include <cmath>
#include <cstdio>

#include "custom_ops/_runtime/half.h"

namespace onnxfuse::cuda {
namespace {

std::string Real(double value, bool is_double) {
  if (std::isnan(value)) return is_double ? "(double)NotANumber()" : "NotANumber()";
  if (std::isinf(value)) return std::string(value < 0 ? "-" : "") + (is_double ? "(double)Infinity()" : "Infinity()");
  char text[64];
  std::snprintf(text, sizeof(text), is_double ? "%.17g" : "%.9g", value);
  const std::string digits = text;
  const bool is_whole = digits.find_first_of(".e") == std::string::npos;
  return digits + (is_whole ? ".0" : "") + (is_double ? "" : "f");
}

std::string ConstantText(const Step& step) {
  switch (step.type) {
    case Type::kFloat: return Real(static_cast<float>(step.real), false);
    case Type::kFloat16: return Real(ToFloat(FromFloat<Half>(static_cast<float>(step.real))), false);
    case Type::kBFloat16: return Real(ToFloat(FromFloat<BFloat16>(static_cast<float>(step.real))), false);
    case Type::kDouble: return Real(step.real, true);
    case Type::kBool: return step.whole != 0 ? "true" : "false";
    default:
      return std::string("(") + StorageOf(step.type) + ")" + std::to_string(static_cast<uint64_t>(step.whole)) + "ull";
  }
}

std::string Least(Type type) {
  if (IsReal(type)) return type == Type::kDouble ? "-(double)Infinity()" : "-Infinity()";
  if (IsUnsigned(type)) return "0";
  return std::string("(") + StorageOf(type) + ")(1ull << " + std::to_string(8 * SizeOf(type) - 1) + ")";
}

std::string Most(Type type) {
  if (IsReal(type)) return type == Type::kDouble ? "(double)Infinity()" : "Infinity()";
  const std::string all = std::string("(") + StorageOf(type) + ")~0ull";
  if (IsUnsigned(type)) return all;
  return std::string("(") + StorageOf(type) + ")((1ull << " + std::to_string(8 * SizeOf(type) - 1) + ") - 1)";
}

}  // namespace

const char* StorageOf(Type type) {
  switch (type) {
    case Type::kFloat16: return "Half";
    case Type::kBFloat16: return "BFloat16";
    case Type::kBool: return "uint8";
    case Type::kInt32: return "int";
    case Type::kInt16: return "short";
    default: return NameOf(type);
  }
}

const char* ValueTypeOf(Type type) {
  if (type == Type::kFloat16 || type == Type::kBFloat16) return "float";
  return type == Type::kBool ? "bool" : StorageOf(type);
}

const char* NarrowingTo(Type type) {
  return type == Type::kFloat16 ? "ToHalf" : type == Type::kBFloat16 ? "ToBFloat16" : nullptr;
}

std::string NameOfValue(const Program& program, int value) {
  return program.IsInput(value) ? "x" + std::to_string(value) : "v" + std::to_string(value - program.InputCount());
}

std::string ExpressionOf(const Program& program, int value) {
  const Step& step = program.StepOf(value);
  if (step.primitive == Primitive::kConst) return ConstantText(step);
  std::string arguments;
  for (const int argument : step.arguments) {
    arguments += (arguments.empty() ? "" : ", ") + NameOfValue(program, argument);
  }
  if (step.primitive == Primitive::kCast) {
    return std::string("CastTo<") + ValueTypeOf(step.type) + ">::Of(" + arguments + ")";
  }
  const bool is_half_sign = step.primitive == Primitive::kSign && NarrowingTo(step.type) != nullptr;
  return std::string(is_half_sign ? "SignOrZero" : NameOf(step.primitive)) + "(" + arguments + ")";
}

Reduction ReductionOf(const Step& step) {
  const char* type = ValueTypeOf(step.type);
  const std::string first = "column + e == 0";
  switch (step.primitive) {
    case Primitive::kReduceMean:  // 0 where there are no elements, as ONNX Runtime has it
      return {"Sum", "0", "Add(r, x)", std::string("(p.columns == 0 ? r : Div(r, (") + type + ")p.columns))", type};
    case Primitive::kReduceMax: return {"Greatest", Least(step.type), "NextGreatest(" + first + ", r, x)", "r", type};
    case Primitive::kReduceMin: return {"Least", Most(step.type), "NextLeast(" + first + ", r, x)", "r", type};
    case Primitive::kReduceProd:
      if (IsReal(step.type)) return {"Product", "1", "Mul(r, (double)x)", std::string("(") + type + ")r", "double"};
      return {"Product", "1", "Mul(r, x)", "r", type};
    case Primitive::kReduceSumSquare: return {"Sum", "0", "Add(r, Mul(x, x))", "r", type};
    case Primitive::kReduceL1: return {"Sum", "0", "Add(r, Abs(x))", "r", type};
    case Primitive::kReduceL2: return {"Sum", "0", "Add(r, Mul(x, x))", "Sqrt(r)", type};
    default: return {"Sum", "0", "Add(r, x)", "r", type};
  }
}

std::string With(const std::string& formula, const std::string& part, const std::string& element) {
  std::string text;
  for (size_t i = 0; i < formula.size(); ++i) {
    const auto is_word = [&](size_t at) {
      return at < formula.size() && std::isalnum(static_cast<unsigned char>(formula[at]));
    };
    const bool is_alone = (i == 0 || !is_word(i - 1)) && !is_word(i + 1);
    text += is_alone && formula[i] == 'r' ? part : is_alone && formula[i] == 'x' ? element : std::string(1, formula[i]);
  }
  return text;
}

}  // namespace onnxfuse::cuda
