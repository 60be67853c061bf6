// Writing programs in C++: what a form asks a Queue to run.
//
//   Formula f;
//   const Term v = f.Sum(f.Input(x), f.Input(bias));
//   queue.Run(f.Text({f.Output(f("Mul", v, f("Sigmoid", v)), y)}), 0, {View::Of(x), View::Of(bias)}, {View::Of(y)});
//
// Inputs are widened to float, outputs narrowed once, as in the bodies of our ops.
#pragma once

#include <string>
#include <vector>

#include "custom_ops/_runtime/op.h"

namespace onnxfuse::cuda {

using Term = std::string;  // the name of a value; empty where an optional input is not given

class Formula {
 public:
  // The next input, as float; the views given to the queue come in the same order.
  Term Input(const Tensor& tensor);
  Term BoolInput();

  // A primitive of floats.
  template <typename... Terms>
  Term operator()(const char* primitive, const Term& first, const Terms&... rest) {
    std::string arguments = first;
    ((arguments += ", " + rest), ...);
    return Let("float", std::string(primitive) + "(" + arguments + ")");
  }
  Term Number(float value);
  Term IsNaN(const Term& value) { return Let("bool", "IsNaN(" + value + ")"); }

  // left + right, or left alone where there is no right; the same for products.
  Term Sum(const Term& left, const Term& right) { return right.empty() ? left : (*this)("Add", left, right); }
  Term Product(const Term& left, const Term& right) { return right.empty() ? left : (*this)("Mul", left, right); }

  Term Silu(const Term& x, float alpha);
  Term Gelu(const Term& x, bool is_tanh) { return (*this)(is_tanh ? "GeluTanh" : "Gelu", x); }
  // x / sqrt(mean(x^2) + epsilon) over the row; of x - mean(x).
  Term UnitRootMeanSquare(const Term& x, float epsilon);
  Term UnitVariance(const Term& x, float epsilon);

  // A value as the tensor's type holds it.
  Term Output(const Term& value, const Tensor& tensor);
  std::string Text(const std::vector<Term>& results) const;

 private:
  Term Let(const std::string& type, const std::string& expression);
  Term NextInput(const std::string& type);

  std::string inputs_, steps_;
  int input_count_ = 0, step_count_ = 0;
};

}  // namespace onnxfuse::cuda
