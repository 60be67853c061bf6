// GatedLinear: y = f(x wg + bg) (x wu + bu); f is an activation, and both weights are columns of one matrix.
//
// Raw memory only: op.cc adapts this to ONNX Runtime; tests call it directly. Sums are float whatever T is (float, Half or
// BFloat16); what comes of them is rounded once. The products are Linear's, some rows at a time.
#pragma once

#include "custom_ops/linear/kernel.h"

namespace onnxfuse {

// In the order of the attribute's choices.
enum class Gate : int { kSilu, kGelu, kGeluTanh, kSigmoid, kRelu };

template <typename T>
struct GatedLinearArgs {
  int64_t rows = 0, depth = 0, cols = 0;  // cols: of y
  const T* x = nullptr;                   // [rows, depth]
  const T* weight = nullptr;              // [depth, 2 cols], or [2 cols, depth] where is_transposed
  const T* bias = nullptr;                // [2 cols], or null
  T* y = nullptr;                         // [rows, cols]; not x
  bool is_transposed = false;
  bool is_gate_first = true;  // the gate has the first half of the columns
  Gate gate = Gate::kSilu;
  float alpha = 1;  // of silu

  // Both halves as one Linear, without a place for the results.
  LinearArgs<T> Products() const {
    LinearArgs<T> both;
    both.rows = rows;
    both.depth = depth;
    both.cols = 2 * cols;
    both.x = x;
    both.weight = weight;
    both.bias = bias;
    both.is_transposed = is_transposed;
    return both;
  }
  int64_t gate_column() const { return is_gate_first ? 0 : cols; }
  int64_t up_column() const { return is_gate_first ? cols : 0; }
};

// packed: the weights as custom_ops/linear/kernel.h packs those of Products(); null where LinearReadsPacked says no.
template <typename T>
void GatedLinearCpu(const GatedLinearArgs<T>& args, const T* packed, const ParallelFor& parallel);

}  // namespace onnxfuse
