// What a node of Linear asks for: attributes and shapes are checked, the output is made.
#pragma once

#include "custom_ops/_runtime/op.h"
#include "custom_ops/_runtime/weight.h"
#include "custom_ops/linear/kernel.h"

namespace onnxfuse::linear {

enum Input : size_t { kX, kWeight, kBias, kResidual };

template <typename T>
LinearArgs<T> ReadLinear(const Call& call) {
  const Tensor &x = call.Input(kX), &weight = call.Input(kWeight), &residual = call.Input(kResidual);
  LinearArgs<T> args;
  const WeightSizes sizes = ReadWeightSizes(call, kX, kWeight);
  args.is_transposed = sizes.is_transposed;
  args.cols = sizes.columns;
  for (const Input input : {kBias, kResidual}) {
    const Tensor& added = call.Input(input);
    if (added.is_given && added.Columns() != args.cols)
      call.Fail(input == kBias ? "bias" : "residual", " must have n = ", args.cols, "; got ", added.shape);
  }
  args.rows = x.Rows();
  args.depth = sizes.depth;
  args.x = x.As<T>();
  args.weight = weight.As<T>();
  args.bias = call.Input(kBias).As<T>();
  args.residual = residual.As<T>();
  args.is_residual_last = call.IntOf("residual_last") == 1;
  args.alpha = call.FloatOf("alpha");
  args.activation = static_cast<Activation>(call.ChoiceOf("activation"));
  args.a = call.FloatOf("activation_alpha");
  args.b = call.FloatOf("activation_beta");
  args.y = call.Output(0).As<T>();
  return args;
}

}  // namespace onnxfuse::linear
