// AttentionCpu for ctypes: attention.py mirrors AttentionArgs field by field.

#include "custom_ops/attention/kernel.h"
#include "probe_threads.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

using onnxfuse::AttentionArgs;
using onnxfuse::BFloat16;
using onnxfuse::Half;
using onnxfuse::ParallelFor;

EXPORT size_t attention_args_size() { return sizeof(AttentionArgs<float>); }

EXPORT void attention(int type, const void* args, int threads) {
  const ParallelFor parallel = onnxfuse::Threads(&threads);
  if (type == 0) onnxfuse::AttentionCpu(*static_cast<const AttentionArgs<float>*>(args), parallel);
  if (type == 1) onnxfuse::AttentionCpu(*static_cast<const AttentionArgs<Half>*>(args), parallel);
  if (type == 2) onnxfuse::AttentionCpu(*static_cast<const AttentionArgs<BFloat16>*>(args), parallel);
}
