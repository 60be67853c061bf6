// Linear: y = f(alpha x w + bias + residual), or f(alpha x w + bias) + residual; f is an activation.
//
// Raw memory only: op.cc adapts this to ONNX Runtime; tests and benchmarks call it directly. Sums are float whatever T
// is (float, Half or BFloat16); what comes of them is rounded once. The product is made tile by tile, and all else is
// done to a tile while it is in the nearest cache.
#pragma once

#include "custom_ops/_runtime/parallel.h"

namespace onnxfuse {

// In the order of the attribute's choices.
enum class Activation : int {
  kNone,
  kRelu,
  kLeakyRelu,  // v, or a v where v < 0
  kClip,       // min(max(v, a), b)
  kGelu,
  kGeluTanh,
  kSilu,  // v sigmoid(a v)
  kSigmoid,
  kTanh,
  kHardSwish,    // v min(max(v / 6 + 1/2, 0), 1)
  kSquaredRelu,  // max(v, 0)^2
  kHardSigmoid,  // min(max(a v + b, 0), 1)
};

template <typename T>
struct LinearArgs {
  int64_t rows = 0, depth = 0, cols = 0;
  const T* x = nullptr;         // [rows, depth]
  const T* weight = nullptr;    // [depth, cols], or [cols, depth] where is_transposed
  const T* bias = nullptr;      // [cols], or null
  const T* residual = nullptr;  // [rows, cols], or null
  T* y = nullptr;               // [rows, cols]; may be residual, but not x
  bool is_transposed = false;
  bool is_residual_last = false;  // added after the activation
  float alpha = 1;
  Activation activation = Activation::kNone;
  float a = 0, b = 0;          // of the activation
  float* unrounded = nullptr;  // [rows, cols]: where results go instead of y, if not null
};

// Whether weights are read as PackLinearWeights lays them out: only where they are transposed, and rows are more than few.
inline bool LinearReadsPacked(int64_t rows, int64_t depth, bool is_transposed) {
  return is_transposed && rows > 8 && depth > 0;
}

// *size: elements that packed weights take.
void PackedLinearSize(int64_t depth, int64_t cols, int64_t* size);

// Packs the weights of `args`, which are transposed; of `args` only they and their sizes are looked at.
template <typename T>
void PackLinearWeights(const LinearArgs<T>& args, T* packed, const ParallelFor& parallel);

// packed: the weights, packed on the same instruction set; null where LinearReadsPacked says no.
template <typename T>
void LinearCpu(const LinearArgs<T>& args, const T* packed, const ParallelFor& parallel);

}  // namespace onnxfuse
