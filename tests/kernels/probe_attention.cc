// AttentionCpu for ctypes: attention.py mirrors AttentionArgs field by field.

#include <thread>
#include <vector>

#include "custom_ops/attention/kernel.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using onnxfuse::AttentionArgs;
using onnxfuse::BFloat16;
using onnxfuse::Half;
using onnxfuse::ParallelFor;

// One range to a thread.
void RunThreads(void* pool, int64_t count, double, ParallelFor::Range range, void* context) {
  const int64_t threads = *static_cast<int*>(pool);
  std::vector<std::thread> running;
  for (int64_t i = 0; i < threads; ++i) {
    running.emplace_back(range, context, count * i / threads, count * (i + 1) / threads);
  }
  for (std::thread& thread : running) thread.join();
}

}  // namespace

EXPORT size_t attention_args_size() { return sizeof(AttentionArgs<float>); }

EXPORT void attention(int type, const void* args, int threads) {
  const ParallelFor parallel = threads == 1 ? onnxfuse::SerialFor() : ParallelFor{&RunThreads, &threads, threads};
  if (type == 0) onnxfuse::AttentionCpu(*static_cast<const AttentionArgs<float>*>(args), parallel);
  if (type == 1) onnxfuse::AttentionCpu(*static_cast<const AttentionArgs<Half>*>(args), parallel);
  if (type == 2) onnxfuse::AttentionCpu(*static_cast<const AttentionArgs<BFloat16>*>(args), parallel);
}
