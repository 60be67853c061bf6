// The weight of a node that multiplies rows of x with it: [k, n], or [n, k] where the attribute trans_weight is 1.
#pragma once

#include <utility>

#include "custom_ops/_runtime/op.h"

namespace onnxfuse {

struct WeightSizes {
  bool is_transposed = false;
  int64_t depth = 0, columns = 0;
};

// Of the weight of a call, which must fit x; both by the numbers of their inputs.
inline WeightSizes ReadWeightSizes(const Call& call, size_t x, size_t weight) {
  const Tensor& given = call.Input(weight);
  const int64_t wanted = call.Input(x).Columns();
  if (given.rank() != 2) call.Fail("weight must have rank 2; got ", given.shape);
  WeightSizes sizes{call.IntOf("trans_weight") == 1, given.shape[0], given.shape[1]};
  if (sizes.is_transposed) std::swap(sizes.depth, sizes.columns);
  if (sizes.depth != wanted) call.Fail("weight must have k = ", wanted, ", the last axis of x; got ", given.shape);
  return sizes;
}

}  // namespace onnxfuse
