// The threads of the session that runs a node, as a ParallelFor.
#pragma once

#include "custom_ops/_runtime/ort_abi.h"
#include "custom_ops/_runtime/parallel.h"

namespace onnxfuse {

struct RuntimePool {
  const OrtApi* api;
  OrtKernelContext* context;
};

// `pool` must outlive what comes back.
ParallelFor RuntimeThreads(RuntimePool* pool);

}  // namespace onnxfuse
