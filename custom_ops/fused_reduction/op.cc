// FusedReduction for ONNX Runtime: a program with reductions over rows (custom_ops/_runtime/program.h), the attribute
// `program`; a row is the last `axes` axes (1 where it is not given) of the shape that the inputs broadcast to.
// Outputs have that shape, or where they have one element a row, 1 along those axes.
#include "custom_ops/_runtime/program_op.h"

namespace onnxfuse {
namespace {

const RegisterProgramOp kFusedReduction({.name = "FusedReduction", .has_axes = true, .variants = 24});

}  // namespace
}  // namespace onnxfuse
