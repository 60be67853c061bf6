// Values and steps of a program as CUDA C++; the functions it calls are those of prelude.h.
#pragma once

#include <string>

#include "custom_ops/_runtime/program.h"

namespace onnxfuse::cuda {

// The type of an element in memory.
const char* StorageOf(Type type);
// The type of a value: 16-bit floats are floats, rounded after each step.
const char* ValueTypeOf(Type type);
// The function that makes an element of a 16-bit float type from a float; null for other types.
const char* NarrowingTo(Type type);

// The letter and the number of a value in the text: x0, v0.
std::string NameOfValue(const Program& program, int value);
// What a step computes, of the names of its arguments, before it is rounded to 16 bits. Neither a reduction nor a size.
std::string ExpressionOf(const Program& program, int value);

// How a reduction is put together: the prelude's operation for the parts of threads, what a part starts with, the part
// `r` with the element `x` added, and the result from the whole `r`.
struct Reduction {
  const char* operation;
  std::string start;
  std::string next;
  std::string finish;
  const char* type;  // of a part
};

Reduction ReductionOf(const Step& step);
// A formula of a Reduction with the names of the part and of the element in it.
std::string With(const std::string& formula, const std::string& part, const std::string& element);

}  // namespace onnxfuse::cuda
