#include "custom_ops/_runtime/pool.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "custom_ops/_runtime/adapter.h"

namespace onnxfuse {
namespace {

constexpr double kLeastWork = 20'000;    // nanoseconds: several times what it takes to wake a thread
constexpr int64_t kChunksPerThread = 4;  // so that a thread that is late does not hold up the rest for long

struct Work {
  ParallelFor::Range range;
  void* context;
  int64_t count, chunks;
  std::atomic<int64_t> next{0};

  void Drain() {
    for (int64_t i = next.fetch_add(1); i < chunks; i = next.fetch_add(1)) range(context, Begin(i), Begin(i + 1));
  }
  // count / chunks, and the first count % chunks of them one more.
  int64_t Begin(int64_t chunk) const { return chunk * (count / chunks) + std::min(chunk, count % chunks); }
};

// The C ABI does not say how many threads the session has; more than there are processors is of no use.
int ThreadCount() {
  static const int count = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 256);
  return count;
}

void Run(void* user, int64_t count, double cost, ParallelFor::Range range, void* context) {
  const auto& pool = *static_cast<const RuntimePool*>(user);
  const double most = std::min(static_cast<double>(count), static_cast<double>(count) * cost / kLeastWork);
  const int64_t limit = ThreadCount() * kChunksPerThread;
  const int64_t chunks = most < static_cast<double>(limit) ? std::max<int64_t>(static_cast<int64_t>(most), 1) : limit;
  if (chunks == 1) return range(context, 0, count);
  Work work{range, context, count, chunks};
  // One task a thread, so that no more than `threads` ranges ever run at once.
  const auto tasks = static_cast<size_t>(std::min<int64_t>(ThreadCount(), chunks));
  auto drain = [](void* shared, size_t) { static_cast<Work*>(shared)->Drain(); };
  Check(ort::KernelContext_ParallelFor(pool.api)(pool.context, drain, tasks, 0, &work));
}

}  // namespace

ParallelFor RuntimeThreads(RuntimePool* pool) { return {&Run, pool, ThreadCount()}; }

}  // namespace onnxfuse
