// LinearCpu for ctypes: linear.py mirrors LinearArgs field by field.

#include <vector>

#include "custom_ops/linear/kernel.h"
#include "probe_threads.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using onnxfuse::BFloat16;
using onnxfuse::Half;
using onnxfuse::LinearArgs;
using onnxfuse::ParallelFor;

template <typename T>
void Run(const void* args, const ParallelFor& parallel) {
  const auto& linear = *static_cast<const LinearArgs<T>*>(args);
  std::vector<T> packed;
  if (onnxfuse::LinearReadsPacked(linear.rows, linear.depth, linear.is_transposed)) {
    int64_t size = 0;
    onnxfuse::PackedLinearSize(linear.depth, linear.cols, &size);
    packed.resize(static_cast<size_t>(size));
    onnxfuse::PackLinearWeights(linear, packed.data(), parallel);
  }
  onnxfuse::LinearCpu(linear, packed.empty() ? nullptr : static_cast<const T*>(packed.data()), parallel);
}

}  // namespace

EXPORT size_t linear_args_size() { return sizeof(LinearArgs<float>); }

EXPORT void linear(int type, const void* args, int threads) {
  const ParallelFor parallel = onnxfuse::Threads(&threads);
  if (type == 0) Run<float>(args, parallel);
  if (type == 1) Run<Half>(args, parallel);
  if (type == 2) Run<BFloat16>(args, parallel);
}
