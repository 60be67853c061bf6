// FusedElementwise for ONNX Runtime: a program of pointwise primitives (custom_ops/_runtime/program.h), the attribute
// `program`. Inputs and outputs are the program's; all outputs have the shape that the inputs broadcast to.
#include "custom_ops/_runtime/program_op.h"

namespace onnxfuse {
namespace {

// Models have many different programs; 64 names of both ops cost a session that uses none 2.7 ms.
const RegisterProgramOp kFusedElementwise({.name = "FusedElementwise", .variants = 40});

}  // namespace
}  // namespace onnxfuse
