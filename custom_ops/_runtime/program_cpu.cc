#include "custom_ops/_runtime/program_cpu.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <stdexcept>

#include "custom_ops/_runtime/program_gather.h"
#include "custom_ops/_runtime/scratch.h"
#include "custom_ops/_runtime/stream_copy.h"

namespace onnxfuse {
namespace {

using Action = Instruction::Action;
using Extent = Instruction::Extent;

constexpr int64_t kCacheLine = 64;
// A block's registers, inputs and results together; about two thirds of an L1 cache of 48 KiB, all of one of 32.
constexpr int64_t kBlockBytes = 32 << 10;
constexpr int64_t kLeastBlock = 256, kMostBlock = 4096;
// A row this large is worked on whole: it spills into L2, which costs less than computing values twice.
constexpr int64_t kRowBytes = 192 << 10;
// Inputs of at least this many bytes in all come from memory, or from a cache that is slow.
constexpr int64_t kFetchBytes = 1 << 20;
// A result at least this large would only push others out of the caches.
constexpr int64_t kStreamBytes = 16 << 20;

int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Everything that threads share in one run.
struct Task {
  const Program& program;
  const Plan& plan;
  const Space& space;
  const std::vector<const void*>& inputs;  // null for those that are joined
  const std::vector<Shape>& shapes;        // of those that are given
  const std::vector<void*>& results;
  const std::vector<bool>& is_row_result;
  int64_t block;     // elements
  int64_t segments;  // blocks of a row that are shared out each on its own; 0 where rows are not divided
  std::atomic<bool> divides_by_zero{false}, lacks_memory{false};
};

template <typename T>
void Fill(void* y, T value) {
  std::fill_n(static_cast<T*>(y), kSplat, value);
}

// kSplat copies of the element at x.
void Splat(const void* x, void* y, int element_size) {
  auto fill = [&]<typename T>() {
    T value;
    std::memcpy(&value, x, sizeof(value));
    Fill(y, value);
  };
  switch (element_size) {
    case 1: return fill.operator()<uint8_t>();
    case 2: return fill.operator()<uint16_t>();
    case 4: return fill.operator()<uint32_t>();
    default: return fill.operator()<uint64_t>();
  }
}

void SplatConstant(Type type, double real, int64_t whole, void* y) {
  switch (type) {
    case Type::kFloat: return Fill(y, static_cast<float>(real));
    case Type::kDouble: return Fill(y, real);
    case Type::kFloat16: return Fill(y, FromFloat<Half>(static_cast<float>(real)));
    case Type::kBFloat16: return Fill(y, FromFloat<BFloat16>(static_cast<float>(real)));
    default: return Splat(&whole, y, static_cast<int>(SizeOf(type)));  // the low bytes of two's complement
  }
}

// One thread's work on a run.
class Worker {
 public:
  explicit Worker(Task& run)
      : run_(run), plan_(run.plan), bases_(static_cast<size_t>(plan_.first_register) + plan_.registers.size()),
        rows_(run.program.GivenCount()) {
    for (size_t i = 0; i < run.program.joins.size(); ++i) {
      const Type type = run.program.inputs[run.program.GivenCount() + i];
      joined_.emplace_back(run.program.joins[i], type, run.inputs, run.shapes);
    }
    PlaceRegisters();
    for (const Preset& preset : plan_.presets) {
      const int64_t whole = preset.dim_input < 0 ? preset.whole : Dim(preset);
      SplatConstant(preset.type, preset.real, whole, At(preset.base));
    }
    for (size_t i = 0; i < rows_.size(); ++i) rows_[i] = static_cast<const char*>(run_.inputs[i]);
    FindStreams();
    Execute(plan_.once, 0, 0);
  }

  ~Worker() {
    if (divides_by_zero_) run_.divides_by_zero = true;
    StreamFence();
  }

  void DoRows(int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      StartRow(row);
      DoRow();
    }
  }

  // Segments begin to end, counted over all rows.
  void DoSegments(int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t segment = unit % run_.segments;
      if (segment == 0 || unit == begin) StartRow(unit / run_.segments);
      const int64_t first = segment * run_.block;
      DoBlockAhead(plan_.passes[0].block, first, std::min(first + run_.block, run_.space.row_size));
    }
    Stream(1, 1);
  }

 private:
  char*& At(int base) { return bases_[static_cast<size_t>(base)]; }

  void PlaceRegisters() {
    std::vector<int64_t> offsets, spares;
    int64_t bytes = 0;
    for (const BlockRegister& one : plan_.registers) {
      offsets.push_back(bytes);
      bytes += one.element_size == 0 ? kSplatBytes : RoundUp(one.element_size * run_.block, kCacheLine);
    }
    for (const Instruction& instruction : plan_.passes[0].block) {
      const int base = instruction.x[0].base;
      const bool is_register = base >= plan_.first_register;
      if (instruction.action != Action::kStream || !is_register || SpareOf(base) != nullptr) continue;
      spares_.emplace_back(base, nullptr);
      spares.push_back(bytes);
      bytes += RoundUp(instruction.element_size * run_.block, kCacheLine);
    }
    char* memory = static_cast<char*>(Scratch(Slot::kThread, static_cast<size_t>(bytes)));
    for (size_t i = 0; i < offsets.size(); ++i) At(plan_.first_register + static_cast<int>(i)) = memory + offsets[i];
    for (size_t i = 0; i < spares.size(); ++i) spares_[i].second = memory + spares[i];
  }

  std::pair<int, char*>* SpareOf(int base) {
    for (auto& spare : spares_) {
      if (spare.first == base) return &spare;
    }
    return nullptr;
  }

  // Inputs that are new with every block: those that do not come back in the next row.
  void FindStreams() {
    const std::vector<Axis>& outer = run_.space.outer;
    const int64_t elements = run_.space.rows * run_.space.row_size;
    for (size_t i = 0; i < run_.program.GivenCount(); ++i) {
      if (elements * SizeOf(run_.program.inputs[i]) < kFetchBytes) continue;
      const bool is_new = outer.empty() || outer.back().strides[i] != 0;
      if (run_.space.ReachOf(i) != Reach::kElement || run_.space.IsGathered(i) || !is_new) continue;
      streams_.emplace_back(static_cast<int>(i), SizeOf(run_.program.inputs[i]));
    }
  }

  int64_t Dim(const Preset& preset) const {
    const Shape& shape = run_.shapes[static_cast<size_t>(preset.dim_input)];
    const auto rank = static_cast<int64_t>(shape.size());
    return shape[static_cast<size_t>(preset.whole < 0 ? preset.whole + rank : preset.whole)];
  }

  void StartRow(int64_t row) {
    row_ = row;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const int64_t size = SizeOf(run_.program.inputs[i]);
      rows_[i] = static_cast<const char*>(run_.inputs[i]) + RowOffset(i) * size;
    }
    for (size_t i = 0; i < joined_.size(); ++i) joined_[i].StartRow(RowOffset(rows_.size() + i));
    Execute(plan_.passes[0].before, 0, 0);
  }

  int64_t RowOffset(size_t input) const {
    int64_t offset = 0, rest = row_;
    for (size_t i = run_.space.outer.size(); i-- > 0;) {
      const Axis& axis = run_.space.outer[i];
      offset += rest % axis.size * axis.strides[input];
      rest /= axis.size;
    }
    return offset;
  }

  void DoRow() {
    for (size_t pass = 0; pass < plan_.passes.size(); ++pass) {
      const PlanPass& lists = plan_.passes[pass];
      if (pass > 0) Execute(lists.before, 0, 0);
      if (!lists.block.empty()) DoBlocks(lists.block);
      Execute(lists.after, 0, run_.space.row_size);
    }
  }

  // A row without elements is one block without elements: reductions of nothing have values.
  void DoBlocks(const std::vector<Instruction>& list) {
    int64_t begin = 0;
    do {
      const int64_t end = std::min(begin + run_.block, run_.space.row_size);
      DoBlock(list, begin, end);
      begin = end;
    } while (begin < run_.space.row_size);
  }

  void DoBlock(const std::vector<Instruction>& list, int64_t begin, int64_t end) {
    PlaceBlock(begin);
    Execute(list, begin, end);
  }

  // The same, while the next block's inputs come from memory and the last block's results go there, a share of them with
  // each instruction: else memory would rest while an instruction computes, and computing while an input is read.
  void DoBlockAhead(const std::vector<Instruction>& list, int64_t begin, int64_t end) {
    PlaceBlock(begin);
    const int64_t count = end - begin;
    const auto shares = static_cast<int64_t>(list.size());
    for (int64_t i = 0; i < shares; ++i) {
      const Instruction& instruction = list[static_cast<size_t>(i)];
      for (const auto& [base, size] : streams_) {
        const char* next = At(base) + count * size;
        Prefetch(next + count * size * i / shares, next + count * size * (i + 1) / shares);
      }
      Stream(i + 1, shares);
      if (instruction.action == Action::kStream) {
        ready_.push_back({At(instruction.x[0].base), At(instruction.y.base), count * instruction.element_size});
      } else {
        Do(instruction, begin, end);
      }
    }
    streamed_.swap(ready_);
    ready_.clear();
    for (auto& [base, spare] : spares_) std::swap(At(base), spare);
  }

  // Writes what is left of the first `part` of `parts` of the results that are on their way.
  void Stream(int64_t part, int64_t parts) {
    for (Streamed& one : streamed_) {
      const int64_t end = part == parts ? one.bytes : one.bytes * part / parts / kCacheLine * kCacheLine;
      StreamCopy(one.x + one.done, one.y + one.done, end - one.done);
      one.done = end;
    }
  }

  static void Prefetch(const char* begin, const char* end) {
#if defined(__GNUC__)
    for (; begin < end; begin += kCacheLine) __builtin_prefetch(begin);
#endif
  }

  void PlaceBlock(int64_t begin) {
    for (size_t i = 0; i < rows_.size(); ++i) {
      At(static_cast<int>(i)) = const_cast<char*>(rows_[i]) + begin * SizeOf(run_.program.inputs[i]);
    }
    for (size_t i = 0; i < run_.results.size(); ++i) {
      if (run_.is_row_result[i]) continue;
      const int64_t size = SizeOf(run_.program.TypeOf(run_.program.results[i]));
      At(run_.program.InputCount() + static_cast<int>(i)) =
          static_cast<char*>(run_.results[i]) + (row_ * run_.space.row_size + begin) * size;
    }
  }

  void Execute(const std::vector<Instruction>& list, int64_t begin, int64_t end) {
    for (const Instruction& instruction : list) Do(instruction, begin, end);
  }

  void Do(const Instruction& instruction, int64_t begin, int64_t end) {
    if (instruction.action == Action::kRun) {
      RunKernel(instruction, end - begin);
    } else {
      Move(instruction, begin, end);
    }
  }

  void RunKernel(const Instruction& instruction, int64_t count) {
    KernelArguments arguments;
    arguments.count = instruction.extent == Extent::kBlock   ? count
                      : instruction.extent == Extent::kSplat ? kSplat
                                                             : run_.space.row_size;
    arguments.y = At(instruction.y.base);
    for (int i = 0; i < instruction.argument_count; ++i) {
      arguments.x[i] = At(instruction.x[i].base);
      arguments.step[i] = instruction.x[i].step;
    }
    arguments.divides_by_zero = &divides_by_zero_;
    instruction.kernel(arguments);
  }

  void Move(const Instruction& instruction, int64_t begin, int64_t end) {
    const auto x = static_cast<size_t>(instruction.x[0].base);
    const int size = instruction.element_size;
    switch (instruction.action) {
      case Action::kSplat: return Splat(First(x), At(instruction.y.base), size);
      case Action::kGather: return GatherInput(x, size, begin, end, At(instruction.y.base));
      case Action::kStoreOne: {
        const auto result = static_cast<size_t>(instruction.y.base - run_.program.InputCount());
        std::memcpy(static_cast<char*>(run_.results[result]) + row_ * size, bases_[x], static_cast<size_t>(size));
        return;
      }
      default: return StreamCopy(bases_[x], At(instruction.y.base), (end - begin) * size);
    }
  }

  const JoinedMemory& JoinedInput(size_t input) const { return joined_[input - rows_.size()]; }

  // The first element that an input has for the row at hand.
  const char* First(size_t input) const {
    int64_t left = 0;
    return run_.program.IsJoin(input) ? JoinedInput(input).At(0, &left) : rows_[input];
  }

  void GatherInput(size_t input, int64_t size, int64_t begin, int64_t end, char* y) const {
    const std::vector<Axis>& axes = run_.space.inner;
    if (run_.program.IsJoin(input)) {
      return Gather(axes, input, size, begin, end, y, [&](int64_t offset, int64_t stride, int64_t count, char* to) {
        JoinedInput(input).Copy(offset, stride, count, to);
      });
    }
    Gather(axes, input, size, begin, end, y, [&](int64_t offset, int64_t stride, int64_t count, char* to) {
      CopyElements(rows_[input] + offset * size, stride, count, size, to);
    });
  }

  Task& run_;
  const Plan& plan_;
  std::vector<char*> bases_;       // inputs and results of the block at hand, then registers
  std::vector<const char*> rows_;  // inputs of the row at hand, but for those that are joined
  std::vector<JoinedMemory> joined_;
  std::vector<std::pair<int, int64_t>> streams_;  // inputs that are read once from end to end: base, element size
  // A block of a result that was computed and is on its way to memory.
  struct Streamed {
    const char* x;
    char* y;
    int64_t bytes, done = 0;
  };
  std::vector<Streamed> streamed_, ready_;     // of the last block, and of the one at hand
  std::vector<std::pair<int, char*>> spares_;  // what a register changes places with when its block is on its way
  int64_t row_ = 0;
  bool divides_by_zero_ = false;
};

// The input whose memory a result has, or -1.
int AliasOf(const void* result, const std::vector<const void*>& inputs) {
  const auto found = std::find(inputs.begin(), inputs.end(), result);
  return result == nullptr || found == inputs.end() ? -1 : static_cast<int>(found - inputs.begin());
}

bool HasAliases(const PlanLayout& layout, const std::vector<const void*>& inputs, const std::vector<void*>& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (layout.aliased_input[i] != AliasOf(results[i], inputs)) return false;
  }
  return true;
}

PlanLayout LayoutOf(const Space& space, const Program& program, const std::vector<const void*>& inputs,
                    const std::vector<void*>& results) {
  PlanLayout layout;
  for (size_t i = 0; i < inputs.size(); ++i) {
    layout.inputs.push_back(space.ReachOf(i));
    const bool is_joined = program.IsJoin(i) && layout.inputs[i] == Reach::kElement;
    layout.is_gathered.push_back(is_joined || space.IsGathered(i));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    layout.aliased_input.push_back(AliasOf(results[i], inputs));
    const int64_t bytes = space.rows * space.row_size * SizeOf(program.TypeOf(program.results[i]));
    layout.is_streamed.push_back(layout.aliased_input[i] < 0 && bytes >= kStreamBytes);
  }
  return layout;
}

// A block such that all that it takes fits, in even shares of a row.
int64_t BlockOf(const Plan& plan, int64_t row_size) {
  const int64_t most = std::clamp(kBlockBytes / std::max<int64_t>(plan.bytes_per_element, 1), kLeastBlock, kMostBlock);
  const int64_t blocks = std::max<int64_t>((row_size + most - 1) / most, 1);
  return RoundUp(std::max<int64_t>((row_size + blocks - 1) / blocks, 1), kCacheLine);
}

// Runs body(worker, begin, end) over `units` of `elements` elements each.
template <typename Body>
void InParallel(Task& run, int64_t units, int64_t elements, const ParallelFor& parallel, Body&& body) {
  constexpr double kUnitNanoseconds = 100;
  const double cost = kUnitNanoseconds + run.plan.nanoseconds_per_element * static_cast<double>(elements);
  parallel(units, cost, [&](int64_t begin, int64_t end) {
    try {
      Worker worker(run);
      body(worker, begin, end);
    } catch (const std::bad_alloc&) {
      run.lacks_memory = true;
    }
  });
  if (run.lacks_memory) throw std::bad_alloc();
  if (run.divides_by_zero) throw std::invalid_argument("an integer is divided by zero");
}

}  // namespace

// What the shapes of the inputs decide, and both ways to go over a row (without reductions there is one).
struct CpuProgram::Plans {
  std::vector<Shape> shapes, results;
  Space space;
  PlanLayout layout;
  Plan whole_row, blocks;
};

CpuProgram::CpuProgram(Program program, int64_t axes)
    : program_(std::move(program)), lowered_(Lower(program_)), axes_(axes) {
  if (axes < 0 || (axes == 0 && program_.HasReduction())) {
    throw std::invalid_argument("program: reductions need at least one axis");
  }
  const std::vector<bool> is_row = program_.IsRowShaped();
  for (const int result : program_.results) is_row_result_.push_back(is_row[static_cast<size_t>(result)]);
}

std::vector<Shape> CpuProgram::ResultShapes(const std::vector<Shape>& inputs) const {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (plans_ != nullptr && plans_->shapes == inputs) return plans_->results;
  }
  const Shape common = CommonShape(program_, WithJoins(program_, inputs), axes_);
  std::vector<Shape> shapes;
  for (const bool is_row : is_row_result_) shapes.push_back(ResultShape(common, is_row, axes_));
  return shapes;
}

std::shared_ptr<const CpuProgram::Plans> CpuProgram::PlansFor(const std::vector<Shape>& shapes,
                                                              const std::vector<const void*>& inputs,
                                                              const std::vector<void*>& results) const {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (plans_ != nullptr && plans_->shapes == shapes && HasAliases(plans_->layout, inputs, results)) return plans_;
  }
  auto plans = std::make_shared<Plans>();
  plans->shapes = shapes;
  plans->results = ResultShapes(shapes);
  const std::vector<Shape> all = WithJoins(program_, shapes);
  plans->space = MakeSpace(program_, CommonShape(program_, all, axes_), all, axes_);
  plans->layout = LayoutOf(plans->space, program_, inputs, results);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (plans_ != nullptr && plans_->layout == plans->layout) {
    plans->whole_row = plans_->whole_row;
    plans->blocks = plans_->blocks;
  } else {
    MakePlans(plans.get());
  }
  plans_ = plans;
  return plans;
}

void CpuProgram::MakePlans(Plans* plans) const {
  plans->whole_row = MakePlan(lowered_, is_row_result_, plans->layout);
  if (axes_ == 0) return;
  PlanLayout in_blocks = plans->layout;
  in_blocks.is_whole_row = false;
  plans->blocks = MakePlan(lowered_, is_row_result_, in_blocks);
}

void CpuProgram::Run(const std::vector<const void*>& given, const std::vector<Shape>& shapes,
                     const std::vector<void*>& results, const ParallelFor& parallel) const {
  std::vector<const void*> extended;
  if (!program_.joins.empty()) {
    extended = given;
    extended.resize(program_.inputs.size(), nullptr);
  }
  const std::vector<const void*>& inputs = program_.joins.empty() ? given : extended;
  const std::shared_ptr<const Plans> plans = PlansFor(shapes, inputs, results);
  const Space& space = plans->space;
  if (space.rows == 0 || (axes_ == 0 && space.row_size == 0)) return;
  const bool is_whole = axes_ == 0 || space.row_size * plans->whole_row.bytes_per_element <= kRowBytes;
  const Plan& plan = is_whole ? plans->whole_row : plans->blocks;
  const int64_t block =
      axes_ > 0 && is_whole ? RoundUp(std::max<int64_t>(space.row_size, 1), kCacheLine) : BlockOf(plan, space.row_size);
  const int64_t segments = axes_ > 0 ? 0 : (space.row_size + block - 1) / block;
  Task run{lowered_, plan, space, inputs, shapes, results, is_row_result_, block, segments};
  if (axes_ > 0) {
    InParallel(run, space.rows, space.row_size, parallel, [](Worker& w, int64_t b, int64_t e) { w.DoRows(b, e); });
  } else {
    InParallel(run, space.rows * segments, block, parallel,
               [](Worker& w, int64_t b, int64_t e) { w.DoSegments(b, e); });
  }
}

}  // namespace onnxfuse
