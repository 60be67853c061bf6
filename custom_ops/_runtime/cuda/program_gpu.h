// FusedElementwise and FusedReduction on a GPU.
#pragma once

#include "custom_ops/_runtime/program_op.h"

namespace onnxfuse::cuda {

// The runtime's view of one name of such an op for the CUDA provider: what the CPU's says, but for who runs it.
struct ProgramOpOnGpu : ProgramOp {
  ProgramOpOnGpu(const ProgramOpSpec& spec, int variant, const OrtApi* api);
};

}  // namespace onnxfuse::cuda
