#include "custom_ops/_runtime/program_shape.h"

#include <algorithm>
#include <stdexcept>

namespace onnxfuse {
namespace {

// Shorter rows are taken together: gathering an input costs less than many short blocks.
constexpr int64_t kShortRow = 256;

// The size of a shape along axis `axis` of a shape of rank `rank`; 1 in front of its first axis.
int64_t SizeAt(const Shape& shape, size_t axis, size_t rank) {
  const size_t missing = rank - shape.size();
  return axis < missing ? 1 : shape[axis - missing];
}

void CheckRowInput(const Shape& shape, size_t index, int64_t axes) {
  const size_t first = shape.size() - std::min(shape.size(), static_cast<size_t>(axes));
  const bool is_row =
      std::all_of(shape.begin() + static_cast<ptrdiff_t>(first), shape.end(), [](int64_t size) { return size == 1; });
  if (!is_row) {
    throw std::invalid_argument("input " + std::to_string(index) + " must have size 1 along the last " +
                                std::to_string(axes) + " axes, as the program marks it /row; got " + Show(shape));
  }
}

void CheckDims(const Program& program, const std::vector<Shape>& inputs) {
  for (const Step& step : program.steps) {
    if (step.primitive != Primitive::kDim) continue;
    const auto input = static_cast<size_t>(step.arguments[0]);
    const auto rank = static_cast<int64_t>(inputs[input].size());
    if (step.whole >= -rank && step.whole < rank) continue;
    throw std::invalid_argument("the program asks for axis " + std::to_string(step.whole) + " of input " +
                                std::to_string(input) + "; got " + Show(inputs[input]));
  }
}

// Makes `joined` longer by a piece along an axis that is counted from the end.
void Append(const Shape& piece, int64_t axis, Shape* joined) {
  const auto rank = static_cast<int64_t>(piece.size());
  if (rank + axis < 0) {
    throw std::invalid_argument("the inputs of a Concat must have the axis " + std::to_string(axis) + "; got " +
                                Show(piece));
  }
  if (joined->empty()) {
    *joined = piece;
    return;
  }
  const auto at = static_cast<size_t>(rank + axis);
  bool fits = piece.size() == joined->size();
  for (size_t i = 0; fits && i < piece.size(); ++i) fits = i == at || piece[i] == (*joined)[i];
  if (!fits) {
    throw std::invalid_argument("the inputs of a Concat must be alike but for axis " + std::to_string(axis) + "; got " +
                                Show(*joined) + " and " + Show(piece));
  }
  (*joined)[at] += piece[at];
}

// Strides of every input along an axis of the common shape; 0 where it does not grow.
Axis AxisAt(size_t axis, const Shape& common, const std::vector<Shape>& inputs) {
  Axis result{common[axis], {}};
  for (const Shape& shape : inputs) {
    int64_t stride = 1;
    for (size_t later = axis + 1; later < common.size(); ++later) stride *= SizeAt(shape, later, common.size());
    result.strides.push_back(SizeAt(shape, axis, common.size()) == 1 ? 0 : stride);
  }
  return result;
}

// Adds an axis in front of `axes`, or merges it with the first of them.
void Prepend(Axis axis, std::vector<Axis>* axes) {
  if (axis.size == 1) return;
  if (!axes->empty()) {
    Axis& next = axes->front();
    bool merges = true;
    for (size_t i = 0; i < axis.strides.size(); ++i) {
      merges = merges && axis.strides[i] == next.strides[i] * next.size;
    }
    if (merges) {
      next.size *= axis.size;
      return;
    }
  }
  axes->insert(axes->begin(), std::move(axis));
}

int64_t SizeOf(const std::vector<Axis>& axes) {
  int64_t size = 1;
  for (const Axis& axis : axes) size *= axis.size;
  return size;
}

}  // namespace

int64_t ShareOf(const Shape& piece, int64_t axis) {
  int64_t share = 1;
  for (; axis < 0; ++axis) share *= piece[piece.size() - static_cast<size_t>(-axis)];
  return share;
}

std::vector<Shape> WithJoins(const Program& program, std::vector<Shape> given) {
  for (const Join& join : program.joins) {
    Shape joined;
    for (const int piece : join.pieces) Append(given[static_cast<size_t>(piece)], join.axis, &joined);
    given.push_back(std::move(joined));
  }
  return given;
}

Shape CommonShape(const Program& program, const std::vector<Shape>& inputs, int64_t axes) {
  CheckDims(program, inputs);
  const std::vector<bool> broadcasts = program.Broadcasts();
  Shape common(static_cast<size_t>(axes), 1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (program.is_row_input[i]) CheckRowInput(inputs[i], i, axes);
    if (!broadcasts[i]) continue;
    if (inputs[i].size() > common.size()) common.insert(common.begin(), inputs[i].size() - common.size(), 1);
    for (size_t axis = 0; axis < common.size(); ++axis) {
      const int64_t size = SizeAt(inputs[i], axis, common.size());
      if (size == common[axis] || size == 1) continue;
      if (common[axis] != 1) {
        throw std::invalid_argument("inputs must broadcast to one shape; input " + std::to_string(i) + " is " +
                                    Show(inputs[i]) + ", those before it " + Show(common));
      }
      common[axis] = size;
    }
  }
  return common;
}

Shape ResultShape(const Shape& common, bool is_row, int64_t axes) {
  Shape shape = common;
  if (is_row) std::fill(shape.end() - static_cast<ptrdiff_t>(axes), shape.end(), 1);
  return shape;
}

Space MakeSpace(const Program& program, const Shape& common, const std::vector<Shape>& inputs, int64_t axes) {
  const std::vector<bool> broadcasts = program.Broadcasts();
  std::vector<Shape> shapes = inputs;
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!broadcasts[i]) shapes[i].clear();
  }
  Space space;
  const size_t boundary = axes == 0 ? 0 : common.size() - static_cast<size_t>(axes);
  for (size_t axis = common.size(); axis-- > 0;) {
    Prepend(AxisAt(axis, common, shapes), axis >= boundary ? &space.inner : &space.outer);
  }
  while (axes == 0 && space.inner.size() > 1) {
    std::vector<Axis> rest(space.inner.begin() + 1, space.inner.end());
    if (SizeOf(rest) < kShortRow) break;
    space.outer.push_back(space.inner.front());
    space.inner = std::move(rest);
  }
  if (space.inner.empty()) space.inner.push_back({1, std::vector<int64_t>(inputs.size(), 0)});
  space.rows = SizeOf(space.outer);
  space.row_size = SizeOf(space.inner);
  return space;
}

Reach Space::ReachOf(size_t input) const {
  auto is_still = [&](const Axis& axis) { return axis.strides[input] == 0; };
  if (!std::all_of(inner.begin(), inner.end(), is_still)) return Reach::kElement;
  return std::all_of(outer.begin(), outer.end(), is_still) ? Reach::kOnce : Reach::kRow;
}

bool Space::IsGathered(size_t input) const {
  if (ReachOf(input) != Reach::kElement) return false;
  int64_t size = 1;
  for (size_t i = inner.size(); i-- > 0; size *= inner[i].size) {
    if (inner[i].strides[input] != size) return true;
  }
  return false;
}

}  // namespace onnxfuse
