// ReduceLogSumExp as reductions that can be put together from parts.
#include "custom_ops/_runtime/cuda/generate.h"

namespace onnxfuse::cuda {
namespace {

class Lowering {
 public:
  explicit Lowering(const Program& program) : from_(program) {
    to_.inputs = program.inputs;
    to_.is_row_input = program.is_row_input;
    for (int value = 0; value < program.InputCount(); ++value) now_.push_back(value);
  }

  Program Run() {
    for (const Step& step : from_.steps) {
      Step copy = step;
      for (int& argument : copy.arguments) argument = now_[static_cast<size_t>(argument)];
      now_.push_back(step.primitive == Primitive::kReduceLogSumExp ? LogSumExp(copy) : Add(copy));
    }
    for (const int result : from_.results) to_.results.push_back(now_[static_cast<size_t>(result)]);
    return to_;
  }

 private:
  int Add(Step step) {
    to_.steps.push_back(std::move(step));
    return to_.ValueCount() - 1;
  }

  int Add(Primitive primitive, Type type, std::vector<int> arguments) {
    return Add(Step{primitive, type, std::move(arguments), 0, 0});
  }

  // log(sum(exp(x - m))) + m with m the greatest x, or 0 where that is infinite; in float for 16-bit floats.
  int LogSumExp(const Step& step) {
    const Type type = step.type == Type::kDouble ? Type::kDouble : Type::kFloat;
    const int x = Add(Primitive::kCast, type, {step.arguments[0]});
    const int greatest = Add(Primitive::kReduceMax, type, {x});
    const int zero = Add(Primitive::kConst, type, {});
    const int m = Add(Primitive::kWhere, type, {Add(Primitive::kIsInf, Type::kBool, {greatest}), zero, greatest});
    const int power = Add(Primitive::kExp, type, {Add(Primitive::kSub, type, {x, m})});
    const int log = Add(Primitive::kLog, type, {Add(Primitive::kReduceSum, type, {power})});
    return Add(Primitive::kCast, step.type, {Add(Primitive::kAdd, type, {log, m})});
  }

  const Program& from_;
  Program to_;
  std::vector<int> now_;  // by the number of a value in from_
};

}  // namespace

Program Lowered(const Program& program) { return Lowering(program).Run(); }

}  // namespace onnxfuse::cuda
