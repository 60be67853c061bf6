// How the inputs of a program lie in the common shape they broadcast to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "custom_ops/_runtime/program.h"
#include "custom_ops/_runtime/program_plan.h"

namespace onnxfuse {

using Shape = std::vector<int64_t>;

// The product of the sizes from `axis`, counted from the end, on: the share of a piece in each turn of what is joined.
int64_t ShareOf(const Shape& piece, int64_t axis);

// The shapes of all inputs of a program: those that are given, then of what is joined of them. Throws
// std::invalid_argument where these cannot be joined.
std::vector<Shape> WithJoins(const Program& program, std::vector<Shape> given);

// Below, `inputs` are the shapes of all inputs.

// The common shape of the inputs. Throws std::invalid_argument where they have none, or where an input marked /row has
// more than one element in a row. axes: how many trailing axes form a row; 0 for a program without reductions.
Shape CommonShape(const Program& program, const std::vector<Shape>& inputs, int64_t axes);

// The common shape, or for a row result the same with 1 along the last `axes` axes.
Shape ResultShape(const Shape& common, bool is_row, int64_t axes);

// An axis of the space, and how far each input goes in its memory for one step along it, in elements.
struct Axis {
  int64_t size = 1;
  std::vector<int64_t> strides;
};

// The elements as rows: outer axes by inner axes, neighbours merged where all inputs allow.
struct Space {
  std::vector<Axis> outer, inner;
  int64_t rows = 1, row_size = 1;

  Reach ReachOf(size_t input) const;
  bool IsGathered(size_t input) const;
};

// axes as above. Without reductions, inner is what a row needs to be long enough for vectors.
Space MakeSpace(const Program& program, const Shape& common, const std::vector<Shape>& inputs, int64_t axes);

}  // namespace onnxfuse
