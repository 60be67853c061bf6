// The weights of a call as the kernel of Linear reads them, kept by the node where they are a constant of the model.
#pragma once

#include "custom_ops/_runtime/op.h"
#include "custom_ops/linear/kernel.h"

namespace onnxfuse::linear {

// Null where the kernel reads them where they lie. Of `args` only the weights and sizes are looked at.
template <typename T>
const T* PackedWeights(const Call& call, const LinearArgs<T>& args) {
  if (!LinearReadsPacked(args.rows, args.depth, args.is_transposed)) return nullptr;
  int64_t size = 0;
  PackedLinearSize(args.depth, args.cols, &size);
  return static_cast<const T*>(call.Kept(static_cast<size_t>(size) * sizeof(T), [&](void* memory) {
    PackLinearWeights(args, static_cast<T*>(memory), call.Parallel());
  }));
}

}  // namespace onnxfuse::linear
