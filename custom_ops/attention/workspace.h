// Memory that the attention kernels work in.
#pragma once

#include <cstddef>

namespace onnxfuse {

// kThread: for what one range of a ParallelFor does. kShared: for what the caller of it shares with all ranges.
enum class Slot { kThread, kShared };

// At least `bytes` of memory, aligned to 64, that stays with the calling thread until it asks for the same slot again.
// Compiled in the baseline alone, like all that allocates.
void* AttentionScratch(Slot slot, size_t bytes);

}  // namespace onnxfuse
