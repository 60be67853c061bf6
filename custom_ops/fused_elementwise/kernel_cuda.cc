// FusedElementwise on a GPU: the node's program, one read of each input and one write of each output.
#include "custom_ops/_runtime/cuda/form.h"

namespace onnxfuse {
namespace { const cuda::RegisterCuda kFusedElementwise("FusedElementwise", nullptr); }  // namespace
}  // namespace onnxfuse
