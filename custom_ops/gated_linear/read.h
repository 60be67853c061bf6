// What a node of GatedLinear asks for: attributes and shapes are checked, the output is made.
#pragma once

#include "custom_ops/_runtime/op.h"
#include "custom_ops/_runtime/weight.h"
#include "custom_ops/gated_linear/kernel.h"

namespace onnxfuse::gated_linear {

enum Input : size_t { kX, kWeight, kBias };

template <typename T>
GatedLinearArgs<T> ReadGatedLinear(const Call& call) {
  const Tensor &x = call.Input(kX), &weight = call.Input(kWeight), &bias = call.Input(kBias);
  GatedLinearArgs<T> args;
  const WeightSizes sizes = ReadWeightSizes(call, kX, kWeight);
  const int64_t columns = sizes.columns;
  args.is_transposed = sizes.is_transposed;
  if (columns % 2 != 0) call.Fail("weight must have an even number of columns; got ", weight.shape);
  if (bias.is_given && (bias.rank() != 1 || bias.shape[0] != columns))
    call.Fail("bias must have 2n = ", columns, "; got ", bias.shape);
  args.rows = x.Rows();
  args.depth = sizes.depth;
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
