// From a program and views to kernels and their arguments.
#include <algorithm>
#include <stdexcept>

#include "custom_ops/_runtime/cuda/form.h"
#include "custom_ops/_runtime/cuda/generate.h"
#include "custom_ops/_runtime/program_shape.h"

namespace onnxfuse::cuda {
namespace {

constexpr int kWarpThreads = 32;
constexpr int kMostKeptWords = 128;             // of a thread's registers
constexpr int64_t kMostRowsOfSplit = 65535;     // the driver's limit for the second axis of a grid
constexpr int64_t kLeastVectorsOfSplit = 2048;  // a row that is shorter is left to one block
constexpr int64_t kVectorsOfChunk = 4 * kBlockThreads;
constexpr int64_t kBlocksOfMultiprocessor = 8;
constexpr size_t kMostArgumentBytes = 4096;  // the driver's limit
constexpr size_t kSlotBytes = 8;
constexpr int kUsualMultiprocessors = 108;  // where a kernel is only shown

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The least power of two that is at least `value`.
int PowerOfTwo(int64_t value) {
  int power = 1;
  while (power < value) power *= 2;
  return power;
}

bool LiesOverAnInput(const Layout& layout, size_t input_count) {
  for (size_t output = input_count; output < layout.operands.size(); ++output) {
    for (size_t input = 0; input < input_count; ++input) {
      const Walked &a = layout.operands[output], &b = layout.operands[input];
      if (a.data == b.data && a.walk == Walk::kRow) return true;
    }
  }
  return false;
}

// Whether the next element of a row is far away in some operand, and the next row's near.
bool AreRowsSideBySide(const Layout& layout) {
  return std::any_of(layout.operands.begin(), layout.operands.end(), [&](const Walked& operand) {
    return operand.walk == Walk::kGather && operand.steps[layout.row_axes - 1] == 1;
  });
}

// A kernel for one layout: what its text depends on, and how a row is shared out.
struct Plan {
  Variant variant;
  int64_t chunks = 1, chunk = 0;  // of a split row: how many, and elements in each

  Plan(const Program& program, const Layout& layout, int multiprocessors) {
    variant.is_flat = !program.HasReduction();
    variant.row_axes = layout.row_axes;
    variant.column_axes = layout.column_axes();
    for (const Walked& operand : layout.operands) variant.walks.push_back(operand.walk);
    variant.is_wide = layout.is_wide;
    variant.vector = VectorWidth(layout);
    chunk = layout.columns;
    if (!variant.is_flat) ShareRow(program, layout, multiprocessors);
  }

  // Up to 256 vectors go to a warp or a part of it, more to a block; where rows lie side by side, a row goes to a thread.
  // Rows of which each thread can keep its share are read once.
  void ShareRow(const Program& program, const Layout& layout, int multiprocessors) {
    const int64_t vectors = CeilDiv(layout.columns, variant.vector);
    const bool is_short = vectors <= 8 * kWarpThreads;
    variant.threads = is_short ? std::min(PowerOfTwo(vectors), kWarpThreads) : kBlockThreads;
    if (AreRowsSideBySide(layout)) variant.threads = 1;
    const int each = PowerOfTwo(CeilDiv(vectors, variant.threads));
    const int words = KeptWords(program, variant.walks) * variant.vector;
    variant.kept = each * words <= kMostKeptWords && each <= 16 ? each : 0;
    if (variant.threads == 1 || variant.kept > 0 || vectors < kLeastVectorsOfSplit || layout.rows >= multiprocessors ||
        layout.rows > kMostRowsOfSplit || LiesOverAnInput(layout, program.inputs.size())) {
      return;
    }
    variant.is_split = true;
    chunks =
        std::min(CeilDiv(vectors, kVectorsOfChunk), CeilDiv(kBlocksOfMultiprocessor * multiprocessors, layout.rows));
    chunk = CeilDiv(vectors, chunks) * variant.vector;
    chunks = CeilDiv(layout.columns, chunk);
  }

  std::vector<std::string> KernelNames(const Program& program) const {
    if (!variant.is_split) return {"fused"};
    std::vector<std::string> names;
    for (int pass = 0; pass < PassCount(program); ++pass) names.push_back("fused_" + std::to_string(pass));
    return names;
  }

  Launch Grid(const Layout& layout) const {
    Launch launch;
    launch.threads = kBlockThreads;
    int64_t blocks = CeilDiv(layout.rows, kBlockThreads / variant.threads);
    if (variant.is_flat) blocks = CeilDiv(CeilDiv(layout.columns, variant.vector), kBlockThreads);
    if (variant.is_split) blocks = chunks;
    launch.grid_x = static_cast<unsigned>(blocks);
    launch.grid_y = variant.is_split ? static_cast<unsigned>(layout.rows) : 1;
    return launch;
  }
};

// The argument of a generated kernel, as WriteParameters in generate.cc declares it, without addresses. facts: Facts.
std::vector<uint64_t> Argument(const Layout& layout, const Plan& plan, const std::vector<int64_t>& facts) {
  std::vector<uint64_t> words;
  auto add = [&](int64_t word) { words.push_back(static_cast<uint64_t>(word)); };
  for (const int64_t word : {layout.rows, layout.columns, plan.chunks, plan.chunk}) add(word);
  for (const int64_t size : layout.sizes) add(size);
  for (const Walked& operand : layout.operands) {
    for (const int64_t step : operand.steps) add(step);
  }
  for (const int64_t fact : facts) add(fact);
  words.resize(words.size() + layout.operands.size() + 1, 0);
  if (words.size() * sizeof(uint64_t) > kMostArgumentBytes) {
    throw std::invalid_argument("operands that are broadcast in so many ways need " +
                                std::to_string(words.size() * sizeof(uint64_t)) +
                                " bytes of arguments; a kernel takes " + std::to_string(kMostArgumentBytes));
  }
  return words;
}

// The sizes of inputs that the program asks for; and for each join where in a turn its pieces start, and the turn ends.
std::vector<int64_t> Facts(const Program& program, const std::vector<View>& inputs) {
  std::vector<int64_t> sizes;
  for (const int value : DimsOf(program)) {
    const Step& step = program.StepOf(value);
    const std::vector<int64_t>& shape = inputs[static_cast<size_t>(step.arguments[0])].shape;
    sizes.push_back(
        shape.at(static_cast<size_t>(step.whole < 0 ? step.whole + static_cast<int64_t>(shape.size()) : step.whole)));
  }
  for (const Join& join : program.joins) {
    int64_t start = 0;
    for (size_t piece = 0; piece <= Program::kMostPieces; ++piece) {
      sizes.push_back(start);
      if (piece >= join.pieces.size()) continue;
      start += ShareOf(inputs[static_cast<size_t>(join.pieces[piece])].shape, join.axis);
    }
  }
  return sizes;
}

// The layout of a program's operands. What is joined is read an element at a time.
Layout LayoutOf(const Program& program, int axes, const std::vector<View>& inputs, const std::vector<View>& outputs) {
  Layout layout = Layout::Of(static_cast<size_t>(axes), !program.HasReduction(), inputs, outputs);
  for (size_t i = program.GivenCount(); i < program.inputs.size(); ++i) {
    if (layout.operands[i].walk == Walk::kVector) layout.operands[i].walk = Walk::kGather;
  }
  return layout;
}

// The inputs, without the sizes of those that do not take part in the broadcast.
std::vector<View> Broadcasting(const Program& program, const std::vector<View>& inputs) {
  const std::vector<bool> broadcasts = program.Broadcasts();
  std::vector<View> views = inputs;
  for (size_t i = 0; i < views.size(); ++i) {
    if (!broadcasts[i]) views[i].shape.clear(), views[i].steps.clear();
  }
  return views;
}

int ReductionCount(const Program& program) {
  return static_cast<int>(std::count_if(program.steps.begin(), program.steps.end(),
                                        [](const Step& step) { return IsReduction(step.primitive); }));
}

// What a run depends on beside addresses: the program, and how operands lie.
std::string KeyOf(const std::string& text, int axes, const std::vector<View>& inputs,
                  const std::vector<View>& outputs) {
  constexpr uintptr_t kAlignment = 16;
  std::vector<int64_t> facts = {axes};
  auto add = [&](const View& view) {
    facts.push_back(static_cast<int64_t>(view.shape.size()));
    facts.insert(facts.end(), view.shape.begin(), view.shape.end());
    facts.insert(facts.end(), view.steps.begin(), view.steps.end());
    facts.push_back(static_cast<int64_t>(reinterpret_cast<uintptr_t>(view.data) % kAlignment));
  };
  for (const View& view : inputs) add(view);
  for (const View& view : outputs) {
    add(view);
    facts.push_back(
        std::any_of(inputs.begin(), inputs.end(), [&](const View& input) { return input.data == view.data; }));
  }
  return text + std::string(reinterpret_cast<const char*>(facts.data()), facts.size() * sizeof(int64_t));
}

// A program over operands: the layout, and the plan for a device with so many multiprocessors.
struct Planned {
  const Program& program;
  Layout layout;
  Plan plan;

  Planned(const Program& what, int axes, int multiprocessors, const std::vector<View>& inputs,
          const std::vector<View>& outputs)
      : program(what), layout(LayoutOf(what, axes, Broadcasting(what, inputs), outputs)),
        plan(what, layout, multiprocessors) {}

  bool IsEmpty() const { return layout.rows == 0 || (!program.HasReduction() && layout.columns == 0); }
};

NodeKernels::Prepared Prepare(const Planned& planned, const std::vector<View>& inputs, const Device& device) {
  NodeKernels::Prepared prepared;
  if (planned.IsEmpty()) return prepared;
  const std::string source = Generate(planned.program, planned.plan.variant);
  for (const std::string& name : planned.plan.KernelNames(planned.program)) {
    prepared.kernels.push_back(device.CompiledKernel(source, name));
  }
  prepared.launch = planned.plan.Grid(planned.layout);
  prepared.argument = Argument(planned.layout, planned.plan, Facts(planned.program, inputs));
  prepared.first_address = prepared.argument.size() - planned.layout.operands.size() - 1;
  if (planned.plan.variant.is_split) {
    const int64_t slots = ReductionCount(planned.program) * planned.layout.rows * planned.plan.chunks;
    prepared.scratch_bytes = static_cast<size_t>(slots) * kSlotBytes;
  }
  return prepared;
}

}  // namespace

void Queue::Run(const std::string& text, int axes, const std::vector<View>& inputs, const std::vector<View>& outputs) {
  if (shown_ != nullptr) {
    const Planned planned(kernels_->ProgramOf(text), axes, kUsualMultiprocessors, inputs, outputs);
    if (planned.IsEmpty()) return;
    shown_->push_back({text, Generate(planned.program, planned.plan.variant), planned.plan.KernelNames(planned.program),
                       planned.plan.Grid(planned.layout)});
    return;
  }
  const auto prepared = kernels_->Get(KeyOf(text, axes, inputs, outputs), [&] {
    return Prepare(Planned(kernels_->ProgramOf(text), axes, device_->multiprocessors(), inputs, outputs), inputs,
                   *device_);
  });
  if (session_ == nullptr || prepared->kernels.empty()) return;
  std::vector<uint64_t> argument = prepared->argument;
  size_t at = prepared->first_address;
  for (const View& view : inputs) argument[at++] = reinterpret_cast<uintptr_t>(view.data);
  for (const View& view : outputs) argument[at++] = reinterpret_cast<uintptr_t>(view.data);
  if (prepared->scratch_bytes > 0)
    argument[at] = reinterpret_cast<uintptr_t>(session_->Scratch(prepared->scratch_bytes));
  void* arguments[] = {argument.data()};
  for (const Kernel& kernel : prepared->kernels)
    device_->Start(kernel, prepared->launch, session_->stream(), arguments);
}

}  // namespace onnxfuse::cuda
