// How the operands of a program lie: broadcast to one shape, with axes that all of them walk alike made one.
#pragma once

#include <cstdint>
#include <vector>

#include "custom_ops/_runtime/cuda/form.h"

namespace onnxfuse::cuda {

// What an operand does along a row's innermost axis.
enum class Walk : int {
  kRow,     // nothing along any axis of the row: one element for all of it
  kSplat,   // the same element, another one farther out
  kVector,  // neighbouring elements
  kGather,  // elements at some distance
};

struct Walked {
  Type type = Type::kNone;
  void* data = nullptr;
  std::vector<int64_t> steps;  // for each of Layout::sizes
  Walk walk = Walk::kRow;
};

// Rows, and the columns in a row; both are counted by several axes, row-major. Where there are no reductions it is all
// one row.
struct Layout {
  size_t row_axes = 1;         // at least 1; the others, at least 1, are those of the columns
  std::vector<int64_t> sizes;  // of all axes
  int64_t rows = 1, columns = 1;
  std::vector<Walked> operands;  // inputs, then outputs
  bool is_wide = false;          // some index needs 64 bits

  // The last `axes` axes of the common shape are the row; all of them where is_flat. Throws std::invalid_argument where
  // the operands do not broadcast.
  static Layout Of(size_t axes, bool is_flat, const std::vector<View>& inputs, const std::vector<View>& outputs);

  size_t column_axes() const { return sizes.size() - row_axes; }
};

// The most elements, a power of two, that each operand can load at once with at most 16 bytes an instruction.
int VectorWidth(const Layout& layout);

}  // namespace onnxfuse::cuda
