// Memory that kernels work in.
#pragma once

#include <cstddef>

namespace onnxfuse {

// kThread: for what one range of a ParallelFor does. kShared: for what the caller of it shares with all ranges. kResult: for
// what a kernel that another one calls gives to it.
enum class Slot { kThread, kShared, kResult };

// At least `bytes` of memory, aligned to 64, that stays with the calling thread until it asks for the same slot again.
// Not compiled with the kernels but once, as all that allocates.
void* Scratch(Slot slot, size_t bytes);

}  // namespace onnxfuse
