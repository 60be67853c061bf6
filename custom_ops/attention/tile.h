// What the attention kernels read: queries, keys, values and masks of one head, tile by tile, as floats.
#pragma once

#include "custom_ops/_runtime/simd.h"
#include "custom_ops/attention/kernel.h"

namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE {

ONNXFUSE_INLINE int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }
ONNXFUSE_INLINE int64_t Most(int64_t a, int64_t b) { return a > b ? a : b; }
ONNXFUSE_INLINE int64_t RoundUp(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

// The keys, or the values, of one batch and head: rows of `past`, then rows of `current`.
template <typename T>
struct Rows {
  const T* past;  // contiguous
  const T* current;
  int64_t past_count;
  int64_t size;        // elements to a row
  int64_t stride;      // from row to row of current
  int64_t dim_stride;  // from element to element of a row of current

  ONNXFUSE_INLINE bool IsPast(int64_t row) const { return row < past_count; }
  ONNXFUSE_INLINE const T* Row(int64_t row) const {
    return IsPast(row) ? past + row * size : current + (row - past_count) * stride;
  }
};

template <typename T>
ONNXFUSE_INLINE Rows<T> KeysOf(const AttentionArgs<T>& a, int64_t batch, int64_t head) {
  const int64_t past = (batch * a.kv_heads + head) * a.past_keys * a.head_size;
  return {a.past_key + past, a.k + batch * a.k_strides.batch + head * a.k_strides.head,
          a.past_keys,       a.head_size,
          a.k_strides.seq,   a.k_strides.dim};
}

template <typename T>
ONNXFUSE_INLINE Rows<T> ValuesOf(const AttentionArgs<T>& a, int64_t batch, int64_t head) {
  const int64_t past = (batch * a.kv_heads + head) * a.past_keys * a.value_size;
  return {a.past_value + past, a.v + batch * a.v_strides.batch + head * a.v_strides.head,
          a.past_keys,         a.value_size,
          a.v_strides.seq,     1};
}

// Up to kLanes rows starting at rows[0] (null rows read as 0), of `width` elements from column `from` on, transposed:
// out[c * out_stride + r] = scale * rows[r][from + c].
template <typename T>
ONNXFUSE_INLINE void TransposeRows(const T* const (&rows)[kLanes], int64_t from, int width, Vec scale, float* out,
                                   int64_t out_stride) {
  Vec x[kLanes];
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) x[r] = rows[r] == nullptr ? Zero() : LoadN(rows[r] + from, width) * scale;
  Transpose(x);
  for (int c = 0; c < width; ++c) Store(out + c * out_stride, x[c]);
}

// Copies rows [begin, end) into tile[row][padded], zeros past the end of a row.
template <typename T>
void CopyRows(const Rows<T>& from, int64_t begin, int64_t end, float* tile, int64_t padded) {
  for (int64_t row = begin; row < end; ++row, tile += padded) {
    const T* source = from.Row(row);
    if (from.dim_stride == 1 || from.IsPast(row)) {
      ForEachVec(from.size, [&](int64_t i, int lanes) { Store(tile + i, LoadN(source + i, lanes)); });
    } else {
      for (int64_t i = 0; i < from.size; ++i) tile[i] = ToFloat(source[i * from.dim_stride]);
    }
  }
}

// Finds rows [begin, end) as floats: where they are, if they lie there without gaps and in a multiple of `multiple`
// elements to a row, and otherwise copied into `tile`, rows *stride apart.
template <typename T>
ONNXFUSE_INLINE void ReadRows(const Rows<T>& from, int64_t begin, int64_t end, int64_t multiple, float* tile,
                              const float** found, int64_t* stride) {
  if constexpr (sizeof(T) == sizeof(float)) {
    const bool is_dense = from.IsPast(begin) || (from.dim_stride == 1 && from.stride == from.size);
    if (is_dense && from.IsPast(begin) == from.IsPast(end - 1) && from.size % multiple == 0) {
      *found = from.Row(begin);
      *stride = from.size;
      return;
    }
  }
  CopyRows(from, begin, end, tile, *stride);
  *found = tile;
}

// The keys that a query may see by the diagonal and the window: [first, last], within [0, keys).
struct Visible {
  int64_t first, last;
};

template <typename T>
ONNXFUSE_INLINE Visible VisibleKeys(const AttentionArgs<T>& a, int64_t query) {
  const int64_t middle = query + a.diagonal;
  return {Most(middle - a.left, 0), Least(middle + a.right, a.past_keys + a.new_keys - 1)};
}

// Where the mask of (batch, head, query) starts, in elements.
template <typename T>
ONNXFUSE_INLINE int64_t MaskOffset(const AttentionArgs<T>& a, int64_t batch, int64_t head, int64_t query) {
  return batch * a.mask_batch + head * a.mask_head + query * a.mask_row;
}

}  // namespace onnxfuse::ONNXFUSE_TARGET_NAMESPACE
