#include "custom_ops/_runtime/amx.h"

#include "custom_ops/_runtime/dispatch.h"

namespace onnxfuse {

bool AmxIsActive() { return ActiveIsa() == Isa::kAmx; }

}  // namespace onnxfuse
