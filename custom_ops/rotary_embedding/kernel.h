// RotaryEmbedding: y = x cos + rotate(x) sin on the first rotary_dim elements of each row; the rest pass through.
//
// Raw memory only: op.cc adapts this to ONNX Runtime; tests and benchmarks call it directly. Computed in float
// whatever T is (float, Half or BFloat16), and rounded once.
#pragma once

#include "custom_ops/_runtime/parallel.h"

namespace onnxfuse {

inline constexpr int kRotaryAxes = 8;

// Where the rows of x lie, and which rows of cos and sin go with them.
struct RotaryLayout {
  int axes = 0;                    // all but the last of x; neighbours that are walked alike count as one
  int64_t sizes[kRotaryAxes];      // of x
  int64_t cos_steps[kRotaryAxes];  // elements from one index of an axis to the next; 0 where cos is broadcast
  int64_t sin_steps[kRotaryAxes];
  int64_t row_size = 0;         // elements in a row of x
  int64_t rotary_dim = 0;       // even, at most row_size
  bool is_interleaved = false;  // pairs are elements 2i and 2i + 1; else i and i + rotary_dim / 2
  bool is_cos_full = false;     // cos has rotary_dim elements in a row; else half, each for both of a pair
  bool is_sin_full = false;
};

// x and y: row-major; y may be x.
template <typename T>
void RotaryEmbeddingCpu(const T* x, const T* cos, const T* sin, T* y, const RotaryLayout& layout,
                        const ParallelFor& parallel);

}  // namespace onnxfuse
