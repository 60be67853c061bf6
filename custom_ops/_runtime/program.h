// A generated program: typed values in single-assignment form, as the attribute `program` of FusedElementwise and
// FusedReduction spells it. What runs it (program_cpu.h) and what turns it into CUDA text both start here.
//
//   x0:float x1:bool x2:float/row
//   v0:float = Const(0.5)
//   v1:float = Mul(x0, v0)
//   v2:float = Where(x1, v1, x0)
//   -> v2
//
// First line: the inputs; one marked /row has one element a row. Last line: the results, any values, inputs too.
// Between them one value a line. Names are letters, digits and _; each is defined once and before its use. Shapes are
// not in the text: inputs broadcast to one shape when the program runs. `v1:int64 = Dim(x0, -1)` is a size of an input,
// and `v2:float = Concat(x0, x1, -1)` inputs one behind the other along an axis, which then stand for one input; an
// input that only such values read takes no part in the broadcast.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "custom_ops/_runtime/op.h"

namespace onnxfuse {

// What the arguments of a primitive must be, and what it gives.
enum class Rule {
  kConst,       // none
  kDim,         // an input and an axis; gives int64
  kCast,        // any type to any type
  kAny,         // T -> T
  kReal,        // T -> T for floating-point T
  kNumber,      // T -> T for all but bool
  kWhole,       // T -> T for integers
  kUnsigned,    // T -> T for unsigned integers
  kBool,        // bool -> bool
  kTest,        // floating-point T -> bool
  kCompare,     // all but bool T -> bool
  kCompareAny,  // T -> bool
  kWhere,       // (bool, T, T) -> T
};

// X(name, number of arguments, Rule). Meanings are those of the ONNX op of that name in ONNX Runtime's CPU kernels,
// but for: GeluTanh (Gelu with approximate = "tanh"), IsInf (either sign), Mod (integers, sign of the divisor), FMod
// (fmod = 1, sign of the dividend), PRelu (the slope is any value), ShiftLeft and ShiftRight (BitShift).
#define ONNXFUSE_PRIMITIVES(X)                                                                                        \
  X(Const, 0, kConst) X(Dim, 1, kDim) X(Cast, 1, kCast) X(Identity, 1, kAny)                                                          \
  X(Sqrt, 1, kReal) X(Reciprocal, 1, kReal) X(Exp, 1, kReal) X(Log, 1, kReal) X(Sigmoid, 1, kReal) X(Tanh, 1, kReal)  \
  X(Erf, 1, kReal) X(Sin, 1, kReal) X(Cos, 1, kReal) X(Tan, 1, kReal) X(Asin, 1, kReal) X(Acos, 1, kReal)             \
  X(Atan, 1, kReal) X(Sinh, 1, kReal) X(Cosh, 1, kReal) X(Asinh, 1, kReal) X(Acosh, 1, kReal) X(Atanh, 1, kReal)      \
  X(Floor, 1, kReal) X(Ceil, 1, kReal) X(Round, 1, kReal) X(Softplus, 1, kReal) X(Softsign, 1, kReal)                 \
  X(Gelu, 1, kReal) X(GeluTanh, 1, kReal)                                                                             \
  X(Neg, 1, kNumber) X(Abs, 1, kNumber) X(Sign, 1, kNumber) X(Relu, 1, kNumber)                                       \
  X(Not, 1, kBool) X(BitwiseNot, 1, kWhole) X(IsNaN, 1, kTest) X(IsInf, 1, kTest)                                     \
  X(Add, 2, kNumber) X(Sub, 2, kNumber) X(Mul, 2, kNumber) X(Div, 2, kNumber) X(Max, 2, kNumber) X(Min, 2, kNumber)   \
  X(Pow, 2, kNumber) X(FMod, 2, kNumber) X(PRelu, 2, kNumber) X(Mod, 2, kWhole)                                       \
  X(And, 2, kBool) X(Or, 2, kBool) X(Xor, 2, kBool)                                                                   \
  X(BitwiseAnd, 2, kWhole) X(BitwiseOr, 2, kWhole) X(BitwiseXor, 2, kWhole)                                           \
  X(ShiftLeft, 2, kUnsigned) X(ShiftRight, 2, kUnsigned)                                                              \
  X(Equal, 2, kCompareAny) X(Less, 2, kCompare) X(LessOrEqual, 2, kCompare) X(Greater, 2, kCompare)                   \
  X(GreaterOrEqual, 2, kCompare)                                                                                      \
  X(Where, 3, kWhere) X(Clip, 3, kNumber)                                                                             \
  X(ReduceSum, 1, kNumber) X(ReduceMean, 1, kNumber) X(ReduceMax, 1, kNumber) X(ReduceMin, 1, kNumber)                \
  X(ReduceProd, 1, kNumber) X(ReduceSumSquare, 1, kNumber) X(ReduceL1, 1, kNumber) X(ReduceL2, 1, kReal)              \
  X(ReduceLogSumExp, 1, kReal)

enum class Primitive : int {
#define ONNXFUSE_ENUMERATOR(name, arity, rule) k##name,
  ONNXFUSE_PRIMITIVES(ONNXFUSE_ENUMERATOR)
#undef ONNXFUSE_ENUMERATOR
};

const char* NameOf(Primitive primitive);
inline bool IsReduction(Primitive primitive) { return primitive >= Primitive::kReduceSum; }

// "float", "int64", ...; a type that programs do not have is "?".
const char* NameOf(Type type);
// Bytes of one element.
int64_t SizeOf(Type type);
bool IsReal(Type type);  // floating-point
bool IsUnsigned(Type type);

// A value is an input or a step. It goes by its number: inputs first, then steps, in the order of the text.
struct Step {
  Primitive primitive = Primitive::kConst;
  Type type = Type::kNone;
  std::vector<int> arguments;
  // Of a Const: the value of a floating-point one, or the value of another as 64 bits in two's complement.
  double real = 0;
  int64_t whole = 0;  // of a Dim: the axis, counted from the end where it is negative
};

// Given inputs that lie one behind the other along an axis, counted from the end: -1 is the last.
struct Join {
  std::vector<int> pieces;
  int64_t axis = -1;
};

struct Program {
  std::vector<Type> inputs;  // those that are given, then one for each join
  std::vector<bool> is_row_input;
  std::vector<Join> joins;
  std::vector<Step> steps;
  std::vector<int> results;

  static constexpr size_t kMostInputs = 32, kMostPieces = 8, kMostResults = 16, kMostSteps = 512;

  // Throws std::invalid_argument, which says which line is wrong and what must stand there.
  static Program Parse(std::string_view text);

  size_t GivenCount() const { return inputs.size() - joins.size(); }
  int InputCount() const { return static_cast<int>(inputs.size()); }
  int ValueCount() const { return InputCount() + static_cast<int>(steps.size()); }
  bool IsInput(int value) const { return value < InputCount(); }
  bool IsJoin(size_t input) const { return input >= GivenCount(); }
  const Step& StepOf(int value) const { return steps[static_cast<size_t>(value - InputCount())]; }
  Type TypeOf(int value) const { return IsInput(value) ? inputs[static_cast<size_t>(value)] : StepOf(value).type; }
  bool HasReduction() const;
  // For each value whether it has one element a row: a reduction, an input marked /row, and what comes of these and
  // constants alone.
  std::vector<bool> IsRowShaped() const;
  // For each input whether it takes part in the broadcast.
  std::vector<bool> Broadcasts() const;
};

}  // namespace onnxfuse
