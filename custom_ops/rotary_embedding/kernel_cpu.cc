#include "custom_ops/_runtime/dispatch.h"
#include "custom_ops/_runtime/simd.h"
#include "custom_ops/rotary_embedding/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

// Walks the rows of x in order and knows where their rows of cos and sin begin.
class RowWalk {
 public:
  ONNXFUSE_INLINE RowWalk(const RotaryLayout& layout, int64_t row) : layout_(layout) {
    for (int axis = layout.axes - 1; axis >= 0; --axis) {
      index_[axis] = row % layout.sizes[axis];
      row /= layout.sizes[axis];
      cos_ += index_[axis] * layout.cos_steps[axis];
      sin_ += index_[axis] * layout.sin_steps[axis];
    }
  }

  ONNXFUSE_INLINE void Next() {
    for (int axis = layout_.axes - 1; axis >= 0; --axis) {
      cos_ += layout_.cos_steps[axis];
      sin_ += layout_.sin_steps[axis];
      if (++index_[axis] < layout_.sizes[axis]) return;
      cos_ -= layout_.sizes[axis] * layout_.cos_steps[axis];
      sin_ -= layout_.sizes[axis] * layout_.sin_steps[axis];
      index_[axis] = 0;
    }
  }

  ONNXFUSE_INLINE int64_t cos() const { return cos_; }
  ONNXFUSE_INLINE int64_t sin() const { return sin_; }

 private:
  const RotaryLayout& layout_;
  int64_t index_[kRotaryAxes];
  int64_t cos_ = 0, sin_ = 0;
};

// Pairs (i, i + half). Both are read before either is written, so y may be x.
template <typename T>
ONNXFUSE_INLINE void RotateHalves(const T* x, const T* cos, const T* sin, T* y, const RotaryLayout& layout) {
  const int64_t half = layout.rotary_dim / 2;
  const int64_t cos_half = layout.is_cos_full ? half : 0, sin_half = layout.is_sin_full ? half : 0;
  ForEachVec(half, [&](int64_t i, int lanes) {
    const Vec first = LoadAhead(x + i, lanes), second = LoadAhead(x + half + i, lanes);
    const Vec y_first = NegFma(second, LoadN(sin + i, lanes), first * LoadN(cos + i, lanes));
    const Vec y_second = Fma(first, LoadN(sin + sin_half + i, lanes), second * LoadN(cos + cos_half + i, lanes));
    StoreAhead(y + i, y_first, lanes);
    StoreAhead(y + half + i, y_second, lanes);
  });
}

constexpr int64_t kPairs = 32;  // worked on at a time, as floats on the stack

template <typename T>
ONNXFUSE_INLINE void ToFloats(const T* from, int64_t count, float* to) {
  ForEachVec(count, [&](int64_t i, int lanes) { StoreN(to + i, LoadAhead(from + i, lanes), lanes); });
}

// `count` pairs of a table that has one number for each element (is_full) or for each pair.
template <typename T>
ONNXFUSE_INLINE void TableToFloats(const T* table, int64_t pair, int64_t count, bool is_full, float* to) {
  if (is_full) return ToFloats(table + 2 * pair, 2 * count, to);
  float each[kPairs];
  ToFloats(table + pair, count, each);
  for (int64_t i = 0; i < count; ++i) to[2 * i] = to[2 * i + 1] = each[i];
}

// Pairs (2i, 2i + 1). A block is read before it is written, so y may be x.
template <typename T>
ONNXFUSE_INLINE void RotatePairs(const T* x, const T* cos, const T* sin, T* y, const RotaryLayout& layout) {
  const int64_t pairs = layout.rotary_dim / 2;
  for (int64_t begin = 0; begin < pairs; begin += kPairs) {
    const int64_t count = pairs - begin < kPairs ? pairs - begin : kPairs;
    float v[2 * kPairs], c[2 * kPairs], s[2 * kPairs], turned[2 * kPairs];
    ToFloats(x + 2 * begin, 2 * count, v);
    TableToFloats(cos, begin, count, layout.is_cos_full, c);
    TableToFloats(sin, begin, count, layout.is_sin_full, s);
    for (int64_t i = 0; i < 2 * count; i += 2) {
      turned[i] = v[i] * c[i] - v[i + 1] * s[i];
      turned[i + 1] = v[i + 1] * c[i + 1] + v[i] * s[i + 1];
    }
    ForEachVec(2 * count,
               [&](int64_t i, int lanes) { StoreAhead(y + 2 * begin + i, LoadN(turned + i, lanes), lanes); });
  }
}

template <typename T>
ONNXFUSE_INLINE void Rows(const T* x, const T* cos, const T* sin, T* y, const RotaryLayout& layout, int64_t begin,
                          int64_t end) {
  RowWalk walk(layout, begin);
  for (int64_t row = begin; row < end; ++row, walk.Next()) {
    const T* from = x + row * layout.row_size;
    T* to = y + row * layout.row_size;
    if (layout.is_interleaved) {
      RotatePairs(from, cos + walk.cos(), sin + walk.sin(), to, layout);
    } else {
      RotateHalves(from, cos + walk.cos(), sin + walk.sin(), to, layout);
    }
    for (int64_t i = layout.rotary_dim; i < layout.row_size; ++i) to[i] = from[i];
  }
}

// The order in which rows are worked on: blocks of rows whose part of cos and sin stays near, and each block for all
// indices of an axis that shares them (the heads, where positions are the last axis) before the next block.
struct RowOrder {
  int64_t repeats;  // of a block, one for each index of the axis
  int64_t length;   // rows to an index of that axis
  int64_t block;    // rows to a block
  int64_t blocks;   // to `length`

  ONNXFUSE_INLINE static RowOrder Of(const RotaryLayout& layout, int64_t rows, int64_t row_bytes) {
    constexpr int64_t kTableBytes = 16384;
    const int last = layout.axes - 1;
    const bool is_shared = last >= 1 && layout.cos_steps[last - 1] == 0 && layout.sin_steps[last - 1] == 0;
    const int64_t repeats = is_shared ? layout.sizes[last - 1] : 1, length = is_shared ? layout.sizes[last] : rows;
    const int64_t fitting = kTableBytes / (2 * row_bytes), block = fitting < 1        ? 1
                                                                   : fitting < length ? fitting
                                                                                      : length;
    return {repeats, length, block, (length + block - 1) / block};
  }

  // The first row of block i of all.
  ONNXFUSE_INLINE int64_t Start(int64_t i) const {
    return (i / repeats / blocks * repeats + i % repeats) * length + i / repeats % blocks * block;
  }

  ONNXFUSE_INLINE int64_t Size(int64_t i) const {
    const int64_t rest = length - i / repeats % blocks * block;
    return block < rest ? block : rest;
  }
};

template <typename T>
void RotaryEmbeddingCpu(const T* x, const T* cos, const T* sin, T* y, const RotaryLayout& layout,
                        const ParallelFor& parallel) {
  constexpr double kNanosecondsPerElement = 0.5;
  int64_t rows = 1;
  for (int axis = 0; axis < layout.axes; ++axis) rows *= layout.sizes[axis];
  if (rows == 0 || layout.row_size == 0) return;
  const RowOrder order = RowOrder::Of(layout, rows, layout.row_size * static_cast<int64_t>(sizeof(T)));
  const double cost = static_cast<double>(order.block * layout.row_size) * kNanosecondsPerElement;
  parallel(rows / order.length * order.blocks, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = order.Start(i);
      Rows(x, cos, sin, y, layout, first, first + order.Size(i));
    }
  });
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE

ONNXFUSE_DISPATCH_TEMPLATE(RotaryEmbeddingCpu,
                           (const T* x, const T* cos, const T* sin, T* y, const RotaryLayout& layout,
                            const ParallelFor& parallel),
                           (x, cos, sin, y, layout, parallel))
ONNXFUSE_INSTANTIATE(RotaryEmbeddingCpu, float)
ONNXFUSE_INSTANTIATE(RotaryEmbeddingCpu, Half)
ONNXFUSE_INSTANTIATE(RotaryEmbeddingCpu, BFloat16)
