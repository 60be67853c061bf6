#include "custom_ops/_runtime/scratch.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace onnxfuse {
namespace {

struct Memory {
  void* start = nullptr;
  size_t size = 0;
  ~Memory() { std::free(start); }
};

}  // namespace

void* Scratch(Slot slot, size_t bytes) {
  static thread_local Memory slots[3];
  Memory& memory = slots[static_cast<int>(slot)];
  if (memory.size < bytes) {
    std::free(memory.start);
    memory.start = std::calloc(bytes + 64, 1);
    if (memory.start == nullptr) {
      // Kernels have no way to fail, and the process could hardly go on without this little memory.
      std::fprintf(stderr, "onnxfuse: out of memory: no %zu bytes for a kernel to work in\n", bytes);
      std::abort();
    }
    memory.size = bytes;
  }
  const auto address = reinterpret_cast<uintptr_t>(memory.start);
  return reinterpret_cast<void*>((address + 63) / 64 * 64);
}

}  // namespace onnxfuse
