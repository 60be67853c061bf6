#include "custom_ops/_runtime/cuda/layout.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "custom_ops/_runtime/program.h"

namespace onnxfuse::cuda {
namespace {

constexpr int64_t kLoadBytes = 16;
constexpr int64_t kMostLiveWords = 96;  // 32-bit registers for one vector of each operand

std::vector<int64_t> CommonShape(const std::vector<const View*>& operands) {
  size_t rank = 0;
  for (const View* view : operands) rank = std::max(rank, view->shape.size());
  std::vector<int64_t> common(rank, 1);
  for (const View* view : operands) {
    const size_t first = rank - view->shape.size();
    for (size_t axis = 0; axis < view->shape.size(); ++axis) {
      int64_t& size = common[first + axis];
      if (size == 1) size = view->shape[axis];
      if (view->shape[axis] != 1 && view->shape[axis] != size) {
        throw std::invalid_argument("inputs must broadcast to one shape; got " + Show(view->shape) + " beside " +
                                    Show(common));
      }
    }
  }
  return common;
}

// An output must have the common shape, or size 1 along the row.
void CheckOutput(const View& view, const std::vector<int64_t>& common, size_t axes) {
  std::vector<int64_t> row = common;
  std::fill(row.end() - static_cast<std::ptrdiff_t>(axes), row.end(), 1);
  if (view.shape == common || view.shape == row) return;
  throw std::invalid_argument("inputs must broadcast to the output's shape " + Show(view.shape) +
                              "; they broadcast to " + Show(common));
}

// Steps along the axes of the common shape; 0 where the operand is broadcast.
std::vector<int64_t> StepsIn(const View& view, const std::vector<int64_t>& common) {
  std::vector<int64_t> steps(common.size(), 0);
  const size_t first = common.size() - view.shape.size();
  for (size_t axis = 0; axis < view.shape.size(); ++axis) {
    if (view.shape[axis] != 1) steps[first + axis] = view.steps[axis];
  }
  return steps;
}

// Appends axis `axis` of the common shape to those of the layout from `first` on, or makes it part of the last one.
void AddAxis(const std::vector<std::vector<int64_t>>& steps, int64_t size, size_t axis, size_t first, Layout* layout) {
  if (size == 1) return;
  const auto operand_count = layout->operands.size();
  bool is_same = layout->sizes.size() > first;
  for (size_t i = 0; i < operand_count && is_same; ++i) {
    is_same = layout->operands[i].steps.back() == steps[i][axis] * size;
  }
  if (is_same) {
    layout->sizes.back() *= size;
    for (size_t i = 0; i < operand_count; ++i) layout->operands[i].steps.back() = steps[i][axis];
    return;
  }
  layout->sizes.push_back(size);
  for (size_t i = 0; i < operand_count; ++i) layout->operands[i].steps.push_back(steps[i][axis]);
}

void AddAxes(const std::vector<std::vector<int64_t>>& steps, const std::vector<int64_t>& common, size_t begin,
             size_t end, Layout* layout) {
  const size_t first = layout->sizes.size();
  for (size_t axis = begin; axis < end; ++axis) AddAxis(steps, common[axis], axis, first, layout);
  if (layout->sizes.size() > first) return;
  layout->sizes.push_back(1);
  for (Walked& operand : layout->operands) operand.steps.push_back(0);
}

Walk WalkOf(const Walked& operand, size_t row_axes) {
  const auto begin = operand.steps.begin() + static_cast<std::ptrdiff_t>(row_axes);
  if (std::all_of(begin, operand.steps.end(), [](int64_t step) { return step == 0; })) return Walk::kRow;
  if (operand.steps.back() == 0) return Walk::kSplat;
  return operand.steps.back() == 1 ? Walk::kVector : Walk::kGather;
}

bool NeedsWideIndex(const Layout& layout) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() - 256 * 16;  // with room for the last block's overhang
  if (layout.rows > kMost || layout.columns > kMost || layout.rows > kMost / std::max<int64_t>(layout.columns, 1)) {
    return true;
  }
  return std::any_of(layout.operands.begin(), layout.operands.end(), [&](const Walked& operand) {
    int64_t reach = 0;
    for (size_t i = 0; i < layout.sizes.size(); ++i) reach += layout.sizes[i] * operand.steps[i];
    return reach > kMost;
  });
}

bool IsAligned(const Walked& operand, int64_t width) {
  const int64_t size = SizeOf(operand.type), bytes = std::min(kLoadBytes, width * size);
  if (reinterpret_cast<uintptr_t>(operand.data) % static_cast<uintptr_t>(bytes) != 0) return false;
  return std::all_of(operand.steps.begin(), operand.steps.end() - 1,
                     [&](int64_t step) { return step * size % bytes == 0; });
}

}  // namespace

Layout Layout::Of(size_t axes, bool is_flat, const std::vector<View>& inputs, const std::vector<View>& outputs) {
  std::vector<const View*> views;
  for (const View& view : inputs) views.push_back(&view);
  for (const View& view : outputs) views.push_back(&view);
  const std::vector<int64_t> common = CommonShape(views);
  if (axes > common.size()) {
    throw std::invalid_argument("a row has " + std::to_string(axes) + " axes; the inputs have " + Show(common));
  }
  for (const View& view : outputs) CheckOutput(view, common, is_flat ? 0 : axes);
  Layout layout;
  std::vector<std::vector<int64_t>> steps;
  for (const View* view : views) {
    steps.push_back(StepsIn(*view, common));
    layout.operands.push_back({view->type, view->data, {}, Walk::kRow});
  }
  const size_t split = is_flat ? 0 : common.size() - axes;
  AddAxes(steps, common, 0, split, &layout);
  layout.row_axes = layout.sizes.size();
  AddAxes(steps, common, split, common.size(), &layout);
  for (size_t axis = 0; axis < layout.sizes.size(); ++axis) {
    (axis < layout.row_axes ? layout.rows : layout.columns) *= layout.sizes[axis];
  }
  for (Walked& operand : layout.operands) operand.walk = WalkOf(operand, layout.row_axes);
  layout.is_wide = NeedsWideIndex(layout);
  return layout;
}

int VectorWidth(const Layout& layout) {
  int64_t narrowest = 8, words = 0;
  for (const Walked& operand : layout.operands) {
    if (operand.walk == Walk::kGather) return 1;
    if (operand.walk != Walk::kVector) continue;
    narrowest = std::min(narrowest, std::max<int64_t>(SizeOf(operand.type), 2));
    words += std::max<int64_t>(SizeOf(operand.type) / 4, 1);
  }
  int64_t width = kLoadBytes / narrowest;
  auto fits = [&](int64_t w) {
    if (layout.sizes.back() % w != 0 || words * w > kMostLiveWords) return false;
    return std::all_of(layout.operands.begin(), layout.operands.end(),
                       [&](const Walked& operand) { return operand.walk != Walk::kVector || IsAligned(operand, w); });
  };
  while (width > 1 && !fits(width)) width /= 2;
  return static_cast<int>(width);
}

}  // namespace onnxfuse::cuda
