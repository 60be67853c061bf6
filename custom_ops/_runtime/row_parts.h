// Walking a range of a matrix's elements row by row. For kernel_cpu.cc files.
#pragma once

#include "custom_ops/_runtime/half.h"

namespace onnxfuse {

// Splits elements begin to end of a row-major matrix at row ends: calls body(row, column, count) for each part.
template <typename Body>
ONNXFUSE_INLINE void ForEachRowPart(int64_t begin, int64_t end, int64_t columns, Body&& body) {
  int64_t row = begin / columns, column = begin % columns;
  while (begin < end) {
    const int64_t count = columns - column < end - begin ? columns - column : end - begin;
    body(row, column, count);
    begin += count;
    ++row;
    column = 0;
  }
}

}  // namespace onnxfuse
