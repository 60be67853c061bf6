// Threads for kernels under test.
#pragma once

#include <thread>
#include <vector>

#include "custom_ops/_runtime/parallel.h"

namespace onnxfuse {

// One range to a thread; `threads` must outlive what comes back.
inline ParallelFor Threads(int* threads) {
  auto run = [](void* pool, int64_t count, double, ParallelFor::Range range, void* context) {
    const int64_t most = *static_cast<int*>(pool);
    std::vector<std::thread> running;
    for (int64_t i = 0; i < most; ++i) {
      running.emplace_back(range, context, count * i / most, count * (i + 1) / most);
    }
    for (std::thread& thread : running) thread.join();
  };
  return *threads == 1 ? SerialFor() : ParallelFor{run, threads, *threads};
}

}  // namespace onnxfuse
