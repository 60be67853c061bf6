#include "custom_ops/_runtime/program_plan.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <utility>

namespace onnxfuse {
namespace {

// A step or two that one kernel does.
struct Op {
  KernelKey key;
  Type type = Type::kNone;  // of the result
  std::vector<int> arguments;
  bool is_gone = false;  // done by another
};

bool IsReduced(const Op& op) { return IsReduction(op.key.primitive); }

bool IsIn(Primitive primitive, std::initializer_list<Primitive> these) {
  return std::find(these.begin(), these.end(), primitive) != these.end();
}

bool IsVecType(Type type) { return type == Type::kFloat || type == Type::kFloat16 || type == Type::kBFloat16; }

// About how long an element takes, in nanoseconds.
double CostOf(Primitive primitive, Type type) {
  using P = Primitive;
  if (IsIn(primitive, {P::kTan, P::kAsin, P::kAcos, P::kAtan, P::kSinh, P::kCosh, P::kAsinh, P::kAcosh, P::kAtanh,
                       P::kPow, P::kFMod, P::kMod})) {
    return 8;
  }
  const bool is_function = IsIn(primitive, {P::kExp, P::kLog, P::kSigmoid, P::kTanh, P::kErf, P::kSin, P::kCos,
                                            P::kSoftplus, P::kGelu, P::kGeluTanh});
  if (is_function) return type == Type::kDouble ? 8 : 0.5;
  return type == Type::kFloat ? 0.1 : 0.2;
}

class Planner {
 public:
  Planner(const Program& program, const std::vector<bool>& is_row_result, const PlanLayout& layout)
      : program_(program), is_row_result_(is_row_result), layout_(layout) {
    first_register_ = program.InputCount() + static_cast<int>(program.results.size());
  }

  Plan Run() {
    MakeOps();
    FindReaches();
    FusePairs();
    places_.assign(Count(), Place{});
    has_place_.assign(Count(), false);
    FindLastPass();
    plan_.passes.resize(static_cast<size_t>(last_pass_) + 1);
    PlaceSplats();
    if (layout_.is_whole_row) {
      EmitPass(0, /*all=*/true);
    } else {
      for (int pass = 0; pass <= last_pass_; ++pass) EmitPass(pass, /*all=*/false);
    }
    StoreRowResults();
    plan_.first_register = first_register_;
    AddUp();
    return std::move(plan_);
  }

 private:
  size_t Count() const { return static_cast<size_t>(program_.ValueCount()); }
  Op& OpOf(int value) { return ops_[static_cast<size_t>(value)]; }
  Reach ReachOf(int value) const { return reach_[static_cast<size_t>(value)]; }
  int PassOf(int value) const { return pass_[static_cast<size_t>(value)]; }
  int64_t SizeOfValue(int value) const { return SizeOf(program_.TypeOf(value)); }

  void MakeOps() {
    ops_.resize(Count());
    for (int value = program_.InputCount(); value < program_.ValueCount(); ++value) {
      const Step& step = program_.StepOf(value);
      Op& op = OpOf(value);
      op.type = step.type;
      op.arguments = step.arguments;
      op.key.primitive = step.primitive;
      op.key.to = step.type;
      if (!op.arguments.empty()) op.key.type = program_.TypeOf(op.arguments.back());
    }
  }

  // How often each value is new, and how many reductions, one after the other, must have ended before.
  void FindReaches() {
    reach_ = layout_.inputs;
    reach_.resize(Count(), Reach::kOnce);
    pass_.assign(Count(), 0);
    for (int value = program_.InputCount(); value < program_.ValueCount(); ++value) {
      const Op& op = OpOf(value);
      if (op.key.primitive == Primitive::kDim) continue;
      Reach reach = Reach::kOnce;
      int pass = 0;
      for (const int argument : op.arguments) {
        reach = std::max(reach, ReachOf(argument));
        pass = std::max(pass, PassOf(argument));
      }
      reach_[static_cast<size_t>(value)] = IsReduced(op) ? Reach::kRow : reach;
      pass_[static_cast<size_t>(value)] = pass + (IsReduced(op) ? 1 : 0);
    }
  }

  // Two steps in one kernel, where nobody else reads the first's result.
  void FusePairs() {
    std::vector<int> readers(Count(), 0);
    for (const Op& op : ops_) {
      for (const int argument : op.arguments) ++readers[static_cast<size_t>(argument)];
    }
    for (const int result : program_.results) readers[static_cast<size_t>(result)] += 2;
    for (int value = program_.InputCount(); value < program_.ValueCount(); ++value) {
      Op& op = OpOf(value);
      if (op.arguments.size() != 2 || !IsVecType(op.type)) continue;
      for (const size_t side : {size_t{0}, size_t{1}}) {
        const int first = op.arguments[side];
        if (!program_.IsInput(first) && readers[static_cast<size_t>(first)] == 1 && Fuse(first, value, side == 1)) {
          break;
        }
      }
    }
  }

  bool Fuse(int first, int second, bool is_swapped) {
    const Op before = OpOf(first);
    Op& op = OpOf(second);
    if (before.key.second != Primitive::kIdentity || IsReduced(before) || before.arguments.empty()) return false;
    if (ReachOf(first) != ReachOf(second) || PassOf(first) != PassOf(second)) return false;
    const int other = op.arguments[is_swapped ? 0 : 1];
    KernelKey key = before.key;
    key.second = op.key.primitive;
    key.is_swapped = is_swapped;
    if (FindKernel(key) == nullptr) return false;
    op.key = key;
    op.arguments = {before.arguments[0], before.arguments.back(), other};
    OpOf(first).is_gone = true;
    return true;
  }

  void FindLastPass() {
    if (layout_.is_whole_row) return;
    for (size_t value = 0; value < Count(); ++value) last_pass_ = std::max(last_pass_, pass_[value]);
  }

  int NewRegister(int element_size) {
    plan_.registers.push_back({element_size});
    return first_register_ + static_cast<int>(plan_.registers.size()) - 1;
  }

  // Constants, single elements of inputs, and what follows from them, outside of the blocks.
  void PlaceSplats() {
    for (int value = 0; value < program_.ValueCount(); ++value) {
      const bool is_early = ReachOf(value) != Reach::kElement && PassOf(value) == 0;
      if (!is_early || (!program_.IsInput(value) && OpOf(value).is_gone)) continue;
      if (program_.IsInput(value) && !IsReadByKernel(value)) continue;
      std::vector<Instruction>& list = ReachOf(value) == Reach::kOnce ? plan_.once : plan_.passes[0].before;
      if (program_.IsInput(value)) {
        PlaceInputSplat(value, &list);
      } else if (IsIn(OpOf(value).key.primitive, {Primitive::kConst, Primitive::kDim})) {
        PlacePreset(value);
      } else {
        EmitSplat(value, &list);
      }
    }
  }

  bool IsReadByKernel(int value) const {
    if (std::find(program_.results.begin(), program_.results.end(), value) != program_.results.end()) return true;
    for (const Op& op : ops_) {
      if (op.is_gone || op.key.primitive == Primitive::kDim) continue;
      if (std::find(op.arguments.begin(), op.arguments.end(), value) != op.arguments.end()) return true;
    }
    return false;
  }

  void SetPlace(int value, Place place) {
    places_[static_cast<size_t>(value)] = place;
    has_place_[static_cast<size_t>(value)] = true;
  }

  void PlaceInputSplat(int value, std::vector<Instruction>* list) {
    Instruction load;
    load.action = Instruction::Action::kSplat;
    load.y = {NewRegister(0), 0};
    load.x[0] = {value, 0};
    load.argument_count = 1;
    load.element_size = static_cast<int>(SizeOfValue(value));
    SetPlace(value, load.y);
    list->push_back(load);
  }

  void PlacePreset(int value) {
    const Step& step = program_.StepOf(value);
    Preset preset{NewRegister(0), step.type, step.real, step.whole, -1};
    if (step.primitive == Primitive::kDim) preset.dim_input = step.arguments[0];
    SetPlace(value, {preset.base, 0});
    plan_.presets.push_back(preset);
  }

  void EmitSplat(int value, std::vector<Instruction>* list) {
    Instruction run = RunOf(value);
    run.extent = Instruction::Extent::kSplat;
    run.y = {NewRegister(0), 0};
    SetPlace(value, run.y);
    list->push_back(run);
  }

  // The instruction of a value, but for where the result goes.
  Instruction RunOf(int value) {
    const Op& op = OpOf(value);
    Instruction run;
    run.kernel = FindKernel(op.key);
    if (run.kernel == nullptr) {
      throw std::invalid_argument(std::string("program: no kernel for ") + NameOf(op.key.primitive) + " of " +
                                  NameOf(op.key.type));
    }
    run.argument_count = static_cast<int>(op.arguments.size());
    for (size_t i = 0; i < op.arguments.size(); ++i) run.x[i] = places_[static_cast<size_t>(op.arguments[i])];
    return run;
  }

  // A pass over the blocks of a row. all: the only one, in which reductions begin and end as they come.
  void EmitPass(int pass, bool all) {
    PlanPass& lists = plan_.passes[static_cast<size_t>(pass)];
    const bool is_last = pass == last_pass_;
    if (!all && pass > 0) EmitRowValues(pass, &lists.before);
    const std::vector<bool> needed = NeededIn(pass, all, is_last);
    StartBlocks(needed, is_last);
    for (int value = program_.InputCount(); value < program_.ValueCount(); ++value) {
      if (!needed[static_cast<size_t>(value)]) continue;
      if (IsReduced(OpOf(value))) {
        EmitReduction(value, all ? &lists.block : &lists.before, &lists.block, all ? &lists.block : &lists.after);
      } else if (ReachOf(value) == Reach::kElement) {
        EmitElement(value, &lists.block);
      } else {
        EmitSplat(value, &lists.block);
      }
      FreeDead(value);
    }
    if (is_last) StoreResults(&lists.block);
  }

  // Row values that the reductions of the pass before made possible.
  void EmitRowValues(int pass, std::vector<Instruction>* list) {
    for (int value = program_.InputCount(); value < program_.ValueCount(); ++value) {
      const Op& op = OpOf(value);
      if (!op.is_gone && !IsReduced(op) && ReachOf(value) != Reach::kElement && PassOf(value) == pass) {
        EmitSplat(value, list);
      }
    }
  }

  // The values that a pass computes in its blocks.
  std::vector<bool> NeededIn(int pass, bool all, bool is_last) {
    std::vector<bool> needed(Count(), false);
    for (int value = program_.InputCount(); value < program_.ValueCount(); ++value) {
      const Op& op = OpOf(value);
      const bool reduces_now = IsReduced(op) && (all || PassOf(value) == pass + 1);
      const bool is_late_splat = all && ReachOf(value) != Reach::kElement && PassOf(value) > 0;
      needed[static_cast<size_t>(value)] = !op.is_gone && (reduces_now || is_late_splat);
    }
    for (const int result : program_.results) {
      if (is_last && ReachOf(result) == Reach::kElement) needed[static_cast<size_t>(result)] = true;
    }
    for (int value = program_.ValueCount() - 1; value >= program_.InputCount(); --value) {
      if (!needed[static_cast<size_t>(value)]) continue;
      for (const int argument : OpOf(value).arguments) {
        if (ReachOf(argument) == Reach::kElement) needed[static_cast<size_t>(argument)] = true;
      }
    }
    return needed;
  }

  // Forgets where elements were and says who reads what last, and which result is written where it is computed.
  void StartBlocks(const std::vector<bool>& needed, bool is_last) {
    last_reader_.assign(Count(), -1);
    for (int value = 0; value < program_.ValueCount(); ++value) {
      if (ReachOf(value) == Reach::kElement) has_place_[static_cast<size_t>(value)] = false;
      if (program_.IsInput(value) || !needed[static_cast<size_t>(value)]) continue;
      for (const int argument : OpOf(value).arguments) last_reader_[static_cast<size_t>(argument)] = value;
    }
    direct_result_.assign(Count(), -1);
    free_.clear();
    for (size_t i = 0; i < plan_.registers.size(); ++i) {
      if (plan_.registers[i].element_size != 0) free_.push_back(first_register_ + static_cast<int>(i));
    }
    if (!is_last) return;
    for (size_t i = 0; i < program_.results.size(); ++i) {
      const int value = program_.results[i];
      last_reader_[static_cast<size_t>(value)] = program_.ValueCount();
      if (IsDirect(i)) direct_result_[static_cast<size_t>(value)] = static_cast<int>(i);
    }
  }

  // Whether a result's memory can be written the moment the value is computed.
  bool IsDirect(size_t result) {
    const int value = program_.results[result];
    const bool is_computed = !program_.IsInput(value) && ReachOf(value) == Reach::kElement;
    if (!is_computed || layout_.is_streamed[result] || direct_result_[static_cast<size_t>(value)] >= 0) return false;
    const int aliased = layout_.aliased_input[result];
    if (aliased < 0) return true;
    if (ReachOf(aliased) != Reach::kElement || layout_.is_gathered[static_cast<size_t>(aliased)]) return false;
    return last_reader_[static_cast<size_t>(aliased)] <= value && SizeOfValue(aliased) == SizeOfValue(value);
  }

  int TakeRegister(int element_size) {
    for (auto at = free_.begin(); at != free_.end(); ++at) {
      if (plan_.registers[static_cast<size_t>(*at - first_register_)].element_size != element_size) continue;
      const int found = *at;
      free_.erase(at);
      return found;
    }
    return NewRegister(element_size);
  }

  void PlaceElementInput(int value, std::vector<Instruction>* list) {
    if (!layout_.is_gathered[static_cast<size_t>(value)]) return SetPlace(value, {value, 1});
    Instruction gather;
    gather.action = Instruction::Action::kGather;
    gather.element_size = static_cast<int>(SizeOfValue(value));
    gather.y = {TakeRegister(gather.element_size), 1};
    gather.x[0] = {value, 1};
    gather.argument_count = 1;
    list->push_back(gather);
    SetPlace(value, gather.y);
  }

  void PlaceArguments(int value, std::vector<Instruction>* list) {
    for (const int argument : OpOf(value).arguments) {
      const bool is_missing = !has_place_[static_cast<size_t>(argument)];
      if (is_missing && program_.IsInput(argument)) PlaceElementInput(argument, list);
    }
  }

  void EmitElement(int value, std::vector<Instruction>* list) {
    PlaceArguments(value, list);
    Instruction run = RunOf(value);
    const int direct = direct_result_[static_cast<size_t>(value)];
    FreeArguments(value);  // before the result is placed: it may take the place of an argument of its size
    run.y = {direct >= 0 ? program_.InputCount() + direct : TakeRegister(static_cast<int>(SizeOfValue(value))), 1};
    SetPlace(value, run.y);
    list->push_back(run);
  }

  void EmitReduction(int value, std::vector<Instruction>* before, std::vector<Instruction>* block,
                     std::vector<Instruction>* after) {
    PlaceArguments(value, block);
    KernelKey key = OpOf(value).key;
    const Place accumulator = {NewRegister(0), 0};
    Instruction run;
    auto emit = [&](KernelKey::Part part, Place y, Place x, Instruction::Extent extent, std::vector<Instruction>* to) {
      key.part = part;
      run.kernel = FindKernel(key);
      run.y = y;
      run.x[0] = x;
      run.argument_count = 1;
      run.extent = extent;
      to->push_back(run);
    };
    const Place argument = places_[static_cast<size_t>(OpOf(value).arguments[0])];
    const Place result = {NewRegister(0), 0};
    emit(KernelKey::Part::kBegin, accumulator, accumulator, Instruction::Extent::kBlock, before);
    emit(KernelKey::Part::kReduce, accumulator, argument, Instruction::Extent::kBlock, block);
    emit(KernelKey::Part::kFinish, result, accumulator, Instruction::Extent::kRow, after);
    FreeArguments(value);
    SetPlace(value, result);
  }

  void Free(int value) {
    const Place place = places_[static_cast<size_t>(value)];
    const int index = place.base - first_register_;
    if (index < 0 || plan_.registers[static_cast<size_t>(index)].element_size == 0) return;
    if (std::find(free_.begin(), free_.end(), place.base) == free_.end()) free_.push_back(place.base);
  }

  void FreeArguments(int value) {
    for (const int argument : OpOf(value).arguments) {
      const bool has_place = has_place_[static_cast<size_t>(argument)];
      if (has_place && last_reader_[static_cast<size_t>(argument)] == value) Free(argument);
    }
  }

  // A value that nobody reads in this pass (its reader is another pass's).
  void FreeDead(int value) {
    if (ReachOf(value) == Reach::kElement && last_reader_[static_cast<size_t>(value)] < 0) Free(value);
  }

  // Results that were not written where they were computed; copies at the end of each block.
  void StoreResults(std::vector<Instruction>* block) {
    for (size_t i = 0; i < program_.results.size(); ++i) {
      const int value = program_.results[i];
      if (is_row_result_[i] || direct_result_[static_cast<size_t>(value)] == static_cast<int>(i)) continue;
      if (!has_place_[static_cast<size_t>(value)]) PlaceElementInput(value, block);
      Instruction copy;
      copy.kernel = FindKernel({.type = program_.TypeOf(value)});
      copy.action = layout_.is_streamed[i] && places_[static_cast<size_t>(value)].step != 0
                        ? Instruction::Action::kStream
                        : Instruction::Action::kRun;
      copy.element_size = static_cast<int>(SizeOfValue(value));
      copy.y = {program_.InputCount() + static_cast<int>(i), 1};
      copy.x[0] = places_[static_cast<size_t>(value)];
      copy.argument_count = 1;
      block->push_back(copy);
    }
  }

  void StoreRowResults() {
    for (size_t i = 0; i < program_.results.size(); ++i) {
      const int value = program_.results[i];
      if (!is_row_result_[i]) continue;
      Instruction store;
      store.action = Instruction::Action::kStoreOne;
      store.element_size = static_cast<int>(SizeOfValue(value));
      store.y = {program_.InputCount() + static_cast<int>(i), 0};
      store.x[0] = places_[static_cast<size_t>(value)];
      store.argument_count = 1;
      plan_.passes.back().after.push_back(store);
    }
  }

  void AddUp() {
    for (const BlockRegister& one : plan_.registers) plan_.bytes_per_element += one.element_size;
    for (int i = 0; i < program_.InputCount(); ++i) {
      if (ReachOf(i) == Reach::kElement) plan_.bytes_per_element += SizeOfValue(i);
    }
    for (const int result : program_.results) plan_.bytes_per_element += SizeOfValue(result);
    for (int value = program_.InputCount(); value < program_.ValueCount(); ++value) {
      if (ReachOf(value) != Reach::kElement && !IsReduced(OpOf(value))) continue;
      plan_.nanoseconds_per_element += CostOf(program_.StepOf(value).primitive, program_.TypeOf(value));
    }
  }

  const Program& program_;
  const std::vector<bool>& is_row_result_;
  const PlanLayout& layout_;
  Plan plan_;
  int first_register_ = 0, last_pass_ = 0;
  // By value.
  std::vector<Op> ops_;
  std::vector<Reach> reach_;
  std::vector<int> pass_;
  std::vector<Place> places_;
  std::vector<bool> has_place_;
  std::vector<int> last_reader_;    // in the pass at hand: a value, or past all values for the end of the block
  std::vector<int> direct_result_;  // which result's memory the value is computed into, or -1
  std::vector<int> free_;           // block registers, by base
};

}  // namespace

ProgramKernel FindKernel(const KernelKey& key) {
  ProgramKernel found = nullptr;
  if (key.second != Primitive::kIdentity) {
    FindPairKernel(key, &found);
  } else if (key.primitive == Primitive::kCast) {
    FindCastKernel(key, &found);
  } else if (IsReduction(key.primitive)) {
    FindReductionKernel(key, &found);
  } else if (IsVecType(key.type) && !IsIn(key.primitive, {Primitive::kIdentity})) {
    FindRealKernel(key, &found);
  } else {
    FindPlainKernel(key, &found);
  }
  return found;
}

Plan MakePlan(const Program& program, const std::vector<bool>& is_row_result, const PlanLayout& layout) {
  return Planner(program, is_row_result, layout).Run();
}

}  // namespace onnxfuse
