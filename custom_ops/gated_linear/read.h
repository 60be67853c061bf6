// What a node of GatedLinear asks for: attributes and shapes are checked, the output is made.
#pragma once

#include "custom_ops/_runtime/op.h"
#include "custom_ops/gated_linear/kernel.h"

namespace onnxfuse::gated_linear {

enum Input : size_t { kX, kWeight, kBias };

template <typename T>
GatedLinearArgs<T> ReadGatedLinear(const Call& call) {
  const Tensor &x = call.Input(kX), &weight = call.Input(kWeight), &bias = call.Input(kBias);
  GatedLinearArgs<T> args;
  args.is_transposed = call.IntOf("trans_weight") == 1;
  if (weight.rank() != 2) call.Fail("weight must have rank 2; got ", weight.shape);
  const int64_t depth = weight.shape[args.is_transposed ? 1 : 0];
  const int64_t columns = weight.shape[args.is_transposed ? 0 : 1];
  if (depth != x.Columns()) call.Fail("weight must have k = ", x.Columns(), ", the last axis of x; got ", weight.shape);
  if (columns % 2 != 0) call.Fail("weight must have an even number of columns; got ", weight.shape);
  if (bias.is_given && (bias.rank() != 1 || bias.shape[0] != columns))
    call.Fail("bias must have 2n = ", columns, "; got ", bias.shape);
  args.rows = x.Rows();
  args.depth = depth;
  args.cols = columns / 2;
  args.x = x.As<T>();
  args.weight = weight.As<T>();
  args.bias = bias.As<T>();
  args.is_gate_first = call.IntOf("gate_first") == 1;
  args.gate = static_cast<Gate>(call.ChoiceOf("activation"));
  args.alpha = call.FloatOf("activation_alpha");
  args.y = call.Output(0).As<T>();
  return args;
}

}  // namespace onnxfuse::gated_linear
