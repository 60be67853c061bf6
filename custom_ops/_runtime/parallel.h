// ParallelFor: how a kernel asks for threads without knowing whose they are.
//
//   parallel(rows, /*cost=*/cols * 0.5, [&](int64_t begin, int64_t end) { ... rows begin to end ... });
//
// op.cc passes the runtime's pool; tests and benchmarks pass SerialFor() or their own.
#pragma once

#include <cstdint>

#include "custom_ops/_runtime/half.h"

namespace onnxfuse {

struct ParallelFor {
  using Range = void (*)(void* context, int64_t begin, int64_t end);

  // Calls range(context, begin, end) over disjoint ranges that cover [0, count), on any threads, and returns when all
  // are done. cost: about how many nanoseconds one item takes; a runner keeps work worth less than a thread's wake-up
  // in one range. range must not throw.
  void (*run)(void* pool, int64_t count, double cost, Range range, void* context);
  void* pool;
  int threads;  // how many ranges can run at once, at least 1

  template <typename Body>
  ONNXFUSE_INLINE void operator()(int64_t count, double cost, Body&& body) const {
    auto call = [](void* context, int64_t begin, int64_t end) { (*static_cast<Body*>(context))(begin, end); };
    if (count > 0) run(pool, count, cost, call, &body);
  }
};

// Runs everything in the calling thread, as one range.
ONNXFUSE_INLINE ParallelFor SerialFor() {
  auto run = [](void*, int64_t count, double, ParallelFor::Range range, void* context) { range(context, 0, count); };
  return {run, nullptr, 1};
}

}  // namespace onnxfuse
