#include "custom_ops/_runtime/cuda/formula.h"

#include <cmath>
#include <cstdio>

#include "custom_ops/_runtime/program.h"

namespace onnxfuse::cuda {

Term Formula::NextInput(const std::string& type) {
  const Term name = "x" + std::to_string(input_count_++);
  inputs_ += (inputs_.empty() ? "" : " ") + name + ":" + type;
  return name;
}

Term Formula::Let(const std::string& type, const std::string& expression) {
  const Term name = "v" + std::to_string(step_count_++);
  steps_ += name + ":" + type + " = " + expression + "\n";
  return name;
}

Term Formula::Input(const Tensor& tensor) {
  if (!tensor.is_given) return "";
  const Term name = NextInput(NameOf(tensor.type));
  return tensor.type == Type::kFloat ? name : Let("float", "Cast(" + name + ")");
}

Term Formula::BoolInput() { return NextInput("bool"); }

Term Formula::Number(float value) {
  if (std::isinf(value)) return Let("float", value < 0 ? "Const(-inf)" : "Const(inf)");
  char text[32];
  std::snprintf(text, sizeof(text), "Const(%.9g)", static_cast<double>(value));
  return Let("float", text);
}

Term Formula::Silu(const Term& x, float alpha) {
  return (*this)("Mul", x, (*this)("Sigmoid", alpha == 1.0f ? x : (*this)("Mul", x, Number(alpha))));
}

Term Formula::UnitRootMeanSquare(const Term& x, float epsilon) {
  const Term mean = (*this)("ReduceMean", (*this)("Mul", x, x));
  return (*this)("Mul", x, (*this)("Reciprocal", (*this)("Sqrt", (*this)("Add", mean, Number(epsilon)))));
}

Term Formula::UnitVariance(const Term& x, float epsilon) {
  return UnitRootMeanSquare((*this)("Sub", x, (*this)("ReduceMean", x)), epsilon);
}

Term Formula::Output(const Term& value, const Tensor& tensor) {
  return tensor.type == Type::kFloat ? value : Let(NameOf(tensor.type), "Cast(" + value + ")");
}

std::string Formula::Text(const std::vector<Term>& results) const {
  std::string text = inputs_ + "\n" + steps_ + "-> ";
  for (size_t i = 0; i < results.size(); ++i) text += (i > 0 ? ", " : "") + results[i];
  return text;
}

}  // namespace onnxfuse::cuda
