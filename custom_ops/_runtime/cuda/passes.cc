#include "custom_ops/_runtime/cuda/passes.h"

#include <algorithm>

namespace onnxfuse::cuda {
namespace {

// The values whose elements a step reads.
std::vector<int> ReadBy(const Step& step) {
  return step.primitive == Primitive::kDim ? std::vector<int>() : step.arguments;
}

}  // namespace

Passes::Passes(const Program& program, const std::vector<Walk>& walks) : program_(program) {
  const auto input_count = static_cast<size_t>(program.InputCount());
  of.assign(static_cast<size_t>(program.ValueCount()), 0);
  is_once.assign(of.size(), false);
  for (size_t i = 0; i < input_count; ++i) is_once[i] = walks[i] == Walk::kRow;
  for (size_t i = input_count; i < of.size(); ++i) {
    const Step& step = program.StepOf(static_cast<int>(i));
    bool once = true;
    for (const int argument : ReadBy(step)) {
      of[i] = std::max(of[i], of[static_cast<size_t>(argument)]);
      once = once && is_once[static_cast<size_t>(argument)];
    }
    if (IsReduction(step.primitive)) ++of[i];
    is_once[i] = once || IsReduction(step.primitive);
  }
  for (size_t i = 0; i < program.results.size(); ++i) {
    if (walks[input_count + i] != Walk::kRow) results_.push_back(program.results[i]);
  }
  is_read.assign(of.size(), false);
  for (const int result : program.results) is_read[static_cast<size_t>(result)] = true;
  for (size_t i = of.size(); i-- > input_count;) {
    if (!is_read[i]) continue;
    for (const int argument : ReadBy(program.StepOf(static_cast<int>(i))))
      is_read[static_cast<size_t>(argument)] = true;
  }
  for (size_t i = 0; i < of.size(); ++i) count = is_read[i] ? std::max(count, of[i] + 1) : count;
  last_used.assign(of.size(), -1);
  before_.emplace_back(of.size(), false);
  for (int pass = 0; pass < count; ++pass) {
    before_.push_back(before_.back());
    for (const int value : ElementsIn(pass, true)) before_.back()[static_cast<size_t>(value)] = true;
    for (const int value : WantedIn(pass)) last_used[static_cast<size_t>(value)] = pass;
    for (const int value : ElementsIn(pass, true)) {
      if (program.IsInput(value)) continue;
      for (const int argument : program.StepOf(value).arguments) last_used[static_cast<size_t>(argument)] = pass;
    }
  }
}

std::vector<int> Passes::ReductionsIn(int pass) const {
  std::vector<int> found;
  for (int value = program_.InputCount(); value < program_.ValueCount(); ++value) {
    const auto at = static_cast<size_t>(value);
    if (IsReduction(program_.StepOf(value).primitive) && is_read[at] && of[at] == pass + 1) {
      found.push_back(value);
    }
  }
  return found;
}

std::vector<int> Passes::WantedIn(int pass) const {
  std::vector<int> wanted;
  for (const int reduction : ReductionsIn(pass)) wanted.push_back(program_.StepOf(reduction).arguments[0]);
  if (pass + 1 == count) wanted.insert(wanted.end(), results_.begin(), results_.end());
  return wanted;
}

std::vector<int> Passes::Needed(int pass, const std::vector<bool>& is_there) const {
  std::vector<bool> is_needed(of.size(), false);
  for (const int value : WantedIn(pass)) is_needed[static_cast<size_t>(value)] = true;
  for (size_t i = of.size(); i-- > 0;) {
    is_needed[i] = is_needed[i] && !is_once[i] && !is_there[i];
    if (!is_needed[i] || program_.IsInput(static_cast<int>(i))) continue;
    for (const int argument : program_.StepOf(static_cast<int>(i)).arguments) {
      is_needed[static_cast<size_t>(argument)] = true;
    }
  }
  std::vector<int> values;
  for (size_t i = 0; i < of.size(); ++i) {
    if (is_needed[i]) values.push_back(static_cast<int>(i));
  }
  return values;
}

std::vector<int> Passes::KeptAfter(int pass) const {
  std::vector<int> kept;
  for (const int value : ElementsIn(pass, true)) {
    if (last_used[static_cast<size_t>(value)] > pass) kept.push_back(value);
  }
  return kept;
}

}  // namespace onnxfuse::cuda
