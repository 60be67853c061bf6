// EmbedLayerNorm: y = layer_norm(sum of one row from each of up to three tables), row by row.
//
// Raw memory only: op.cc adapts this to ONNX Runtime; tests and benchmarks call it directly. Computed in float
// whatever T is (float, Half or BFloat16), and rounded once.
#pragma once

#include "custom_ops/_runtime/parallel.h"

namespace onnxfuse {

// A table, and which row of it goes into each row of y; each is in the table.
template <typename T>
struct Embedding {
  const T* table = nullptr;  // [any, cols], row-major; null where there is none
  const int64_t* rows = nullptr;
};

template <typename T>
struct EmbedLayerNormArgs {
  int64_t rows = 0;
  int64_t cols = 0;
  Embedding<T> first, second, third;  // the third may have no table
  const T* scale = nullptr;           // [cols], or null for none
  const T* bias = nullptr;
  T* y = nullptr;    // [rows, cols], row-major
  T* sum = nullptr;  // the same, or null where it is not wanted
  float epsilon = 0.0f;
};

template <typename T>
void EmbedLayerNormCpu(const EmbedLayerNormArgs<T>& args, const ParallelFor& parallel);

}  // namespace onnxfuse
