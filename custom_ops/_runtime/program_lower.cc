// Lower: ReduceLogSumExp in other primitives; values without readers left out; constant squares and cubes.
#include <cmath>
#include <limits>

#include "custom_ops/_runtime/program_plan.h"

namespace onnxfuse {
namespace {

class Lowering {
 public:
  explicit Lowering(const Program& source) : source_(source) {
    result_.inputs = source.inputs;
    result_.is_row_input = source.is_row_input;
    result_.joins = source.joins;
    for (int i = 0; i < source.InputCount(); ++i) new_value_.push_back(i);
  }

  Program Run() {
    const std::vector<bool> is_read = ReadValues();
    for (int value = source_.InputCount(); value < source_.ValueCount(); ++value) {
      new_value_.push_back(is_read[static_cast<size_t>(value)] ? Copy(source_.StepOf(value)) : -1);
    }
    for (const int value : source_.results) result_.results.push_back(New(value));
    return std::move(result_);
  }

 private:
  std::vector<bool> ReadValues() const {
    std::vector<bool> is_read(static_cast<size_t>(source_.ValueCount()), false);
    for (const int value : source_.results) is_read[static_cast<size_t>(value)] = true;
    for (int value = source_.ValueCount() - 1; value >= source_.InputCount(); --value) {
      if (!is_read[static_cast<size_t>(value)]) continue;
      for (const int argument : source_.StepOf(value).arguments) is_read[static_cast<size_t>(argument)] = true;
    }
    return is_read;
  }

  int New(int value) const { return new_value_[static_cast<size_t>(value)]; }

  int Copy(const Step& step) {
    Step copy = step;
    for (int& argument : copy.arguments) argument = New(argument);
    if (step.primitive == Primitive::kReduceLogSumExp) return LogSumExp(step.type, copy.arguments[0]);
    return Add(std::move(copy));
  }

  int Add(Step step) {
    result_.steps.push_back(std::move(step));
    return result_.ValueCount() - 1;
  }

  int Add(Primitive primitive, Type type, std::vector<int> arguments) {
    return Add(Step{primitive, type, std::move(arguments), 0, 0});
  }

  // max + log(sum(exp(x - max))), with 0 for a max that is infinite; 16-bit types are rounded at the end only.
  int LogSumExp(Type type, int x) {
    const Type wide = type == Type::kDouble ? Type::kDouble : Type::kFloat;
    if (wide != type) x = Add(Primitive::kCast, wide, {x});
    const int max = Add(Primitive::kReduceMax, wide, {x});
    const int is_infinite = Add(Primitive::kIsInf, Type::kBool, {max});
    const int zero = Add(Primitive::kConst, wide, {});
    const int shift = Add(Primitive::kWhere, wide, {is_infinite, zero, max});
    const int power = Add(Primitive::kExp, wide, {Add(Primitive::kSub, wide, {x, shift})});
    const int log = Add(Primitive::kLog, wide, {Add(Primitive::kReduceSum, wide, {power})});
    const int sum = Add(Primitive::kAdd, wide, {log, shift});
    return wide == type ? sum : Add(Primitive::kCast, type, {sum});
  }

  const Program& source_;
  Program result_;
  std::vector<int> new_value_;  // by the source's number
};

}  // namespace

Program Lower(const Program& program) { return Lowering(program).Run(); }

}  // namespace onnxfuse
