// Elements of an input that do not lie one behind the other, brought together: what is broadcast, and what is joined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "custom_ops/_runtime/program.h"
#include "custom_ops/_runtime/program_shape.h"

namespace onnxfuse {

// Elements of an input, `stride` elements apart, one after the other to y.
inline void CopyElements(const char* x, int64_t stride, int64_t count, int64_t size, char* y) {
  auto copy = [&]<typename T>() {
    const T* from = reinterpret_cast<const T*>(x);
    T* to = reinterpret_cast<T*>(y);
    if (stride == 1) {
      for (int64_t i = 0; i < count; ++i) to[i] = from[i];
    } else if (stride == 0) {
      std::fill_n(to, count, *from);
    } else {
      for (int64_t i = 0; i < count; ++i) to[i] = from[i * stride];
    }
  };
  switch (size) {
    case 1: return copy.operator()<uint8_t>();
    case 2: return copy.operator()<uint16_t>();
    case 4: return copy.operator()<uint32_t>();
    default: return copy.operator()<uint64_t>();
  }
}

// What is joined, as if it lay in one piece: in each period, the share of one piece behind that of the other.
class JoinedMemory {
 public:
  JoinedMemory(const Join& join, Type type, const std::vector<const void*>& inputs, const std::vector<Shape>& shapes)
      : size_(SizeOf(type)) {
    for (const int piece : join.pieces) {
      const int64_t share = ShareOf(shapes[static_cast<size_t>(piece)], join.axis);
      data_.push_back(static_cast<const char*>(inputs[static_cast<size_t>(piece)]));
      starts_.push_back(starts_.back() + share);
    }
  }

  // Offsets count from here on; `first` from the first element of all.
  void StartRow(int64_t first) { row_ = first; }

  // The place of the element at `offset`; *left: how many more there are without a break, it included.
  const char* At(int64_t offset, int64_t* left) const {
    const int64_t period = starts_.back(), turn = (row_ + offset) / period, at = (row_ + offset) % period;
    size_t piece = 0;
    while (at >= starts_[piece + 1]) ++piece;
    *left = starts_[piece + 1] - at;
    return data_[piece] + (turn * (starts_[piece + 1] - starts_[piece]) + at - starts_[piece]) * size_;
  }

  void Copy(int64_t offset, int64_t stride, int64_t count, char* y) const {
    while (count > 0) {
      int64_t left = 0;
      const char* x = At(offset, &left);
      const int64_t run = stride == 0 ? count : std::min(count, (left + stride - 1) / stride);
      CopyElements(x, stride, run, size_, y);
      offset += run * stride;
      count -= run;
      y += run * size_;
    }
  }

 private:
  std::vector<const char*> data_;
  std::vector<int64_t> starts_ = {0};
  int64_t size_, row_ = 0;
};

// Calls copy(offset, stride, count, y) for the runs of an input that elements begin to end of a row are, with the offset
// from the row's first element. y: for the elements, one after the other.
template <typename Copy>
void Gather(const std::vector<Axis>& axes, size_t input, int64_t size, int64_t begin, int64_t end, char* y, Copy copy) {
  const Axis& last = axes.back();
  while (begin < end) {
    int64_t offset = 0, element = begin;
    for (size_t i = axes.size(); i-- > 0; element /= axes[i].size) {
      offset += element % axes[i].size * axes[i].strides[input];
    }
    const int64_t count = std::min(last.size - begin % last.size, end - begin);
    copy(offset, last.strides[input], count, y);
    begin += count;
    y += count * size;
  }
}

}  // namespace onnxfuse
