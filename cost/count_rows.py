"""Counts of pointwise ops, of reductions, and of ops that work on rows."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from onnxfuse.cost.call import Call, Counter, make, table
from onnxfuse.cost.scalar import BROADCAST_STEP, ROW_STEP, SCALARS, STEPS
from onnxfuse.cost.work import Work

ROW_THREADS = 256  # lanes that share one long row
ROW_VALUES = 32  # the most values of its row that a lane keeps; a longer row is read twice
BY_ROW = ("Softmax", "LogSoftmax")  # the runtime calls a kernel for each row
BROADCAST = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "Mod", "Where", "And", "Or", "Xor", "Equal", "Greater",
             "GreaterOrEqual", "Less", "LessOrEqual", "BitwiseAnd", "BitwiseOr", "PRelu")  # fmt: skip
POWERS = {2.0: ("Mul", 1), 3.0: ("Mul", 2), 0.5: ("Sqrt", 1), -0.5: ("Reciprocal", 2), 1.0: ("Identity", 1)}


def pointwise(call: Call) -> Work:
    """One application for each output element; a variadic op takes one less than it has inputs."""
    readers = sum(shape is not None for shape in call.inputs) if call.op in ("Sum", "Max", "Min", "Mean") else 2
    applied = prod(call.out) * max(1, readers - 1)
    made = make(call, "pointwise", call.op, applied, elements=prod(call.out))
    stretches = broadcast_stretches(call) if call.op in BROADCAST else 0
    parts = (*made.parts, (BROADCAST_STEP, stretches)) if stretches else made.parts
    return replace(made, live=max(1, readers), parts=parts)


def broadcast_stretches(call: Call) -> int:
    """How many stretches the runtime cuts a broadcast into: runs along which each operand moves on, or stays. 0 where there is one.

    Where takes its operands in two steps.
    """
    shapes = [shape for shape in call.inputs if shape is not None and prod(shape) > 1]
    run, kinds = 1, set[tuple[bool, ...]]()
    for axis in range(1, len(call.out) + 1):
        size = call.out[-axis]
        if size > 1:
            kinds.add(tuple(len(shape) >= axis and shape[-axis] != 1 for shape in shapes))
            if len(kinds) > 1:
                break
        run *= size
    stretches = prod(call.out) // max(1, run)
    return 0 if stretches <= 1 else stretches * (2 if call.op == "Where" else 1)


def gelu(call: Call) -> Work:
    """The exact form has an erf, the approximate one a tanh."""
    return make(call, "pointwise", "FastGelu" if call.text("approximate", "none") == "tanh" else "Gelu", prod(call.out))


def power(call: Call) -> Work:
    """x**2 and x**3 are products, x**0.5 is a root; any other power takes a log and an exp."""
    exponent = call.values.get(1)
    if exponent not in POWERS:
        return make(call, "pointwise", "Pow", prod(call.out))
    op, times = POWERS[exponent]
    made = make(call, "pointwise", op, prod(call.out) * times, elements=prod(call.out))
    return replace(made, parts=((f"Pow:{exponent:g}", prod(call.out)),))


def rows(call: Call) -> Work:
    """One application for each input element: values of a row are kept until the row is known, if it is short enough."""
    size = prod(call.shape(0))
    made = make(call, "reduction", call.op, size, elements=size)
    per_lane = -(-row_length(call) // ROW_THREADS)
    again = call.bytes_of(0) if per_lane > ROW_VALUES else 0
    parts = (*made.parts, (ROW_STEP, size // max(1, row_length(call)))) if call.op in BY_ROW else made.parts
    return replace(made, vector=min(ROW_VALUES, max(made.vector, per_lane)), reread_bytes=again, parts=parts)


def row_length(call: Call) -> int:
    """How many elements one result of the op depends on."""
    shape = call.shape(0)
    if call.op.startswith(("Reduce", "Arg")) or call.op.startswith("Global"):
        return prod(shape) // max(1, prod(call.out))
    if call.op in ("InstanceNormalization", "BatchNormalization"):
        return prod(shape[2:])
    if call.op in ("GroupNormalization", "GroupNorm", "SkipGroupNorm"):
        return prod(shape[1:]) // max(1, call.number("num_groups", call.number("groups", 1)))
    axis = call.number("axis", -1)
    if call.op in ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"):
        return prod(shape[axis:])
    return shape[axis] if shape else 1


def pool(call: Call) -> Work:
    """One application for each element under each window."""
    window = prod(call.attributes.get("kernel_shape", (1,)))
    scalar_op = "ReduceMax" if "Max" in call.op else "ReduceMean"
    return make(call, "reduction", scalar_op, prod(call.out) * window, part=call.op)


def sampled(call: Call) -> Work:
    """Interpolation: a weighted sum of the neighbours of each output element."""
    neighbours = {"nearest": 1, "linear": 4, "bilinear": 4, "cubic": 16, "bicubic": 16}.get(call.text("mode", "nearest"), 4)
    return make(call, "other", "Add", prod(call.out) * 2 * neighbours, part=call.op, elements=prod(call.out))


POINTWISE = " ".join(op for op in SCALARS if not op.startswith(("Reduce", "Arg")) and "Norm" not in op and op not in STEPS)
COUNTERS: dict[str, Counter] = {
    **table(pointwise, POINTWISE),
    **table(gelu, "Gelu"),
    **table(power, "Pow"),
    **table(rows, " ".join(op for op in SCALARS if op.startswith(("Reduce", "Arg")) or "Norm" in op)),
    **table(rows, "Softmax LogSoftmax Hardmax CumSum CumProd TopK LRN BiasSoftmax GlobalAveragePool GlobalMaxPool GlobalLpPool"),
    **table(rows, "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss DynamicQuantizeLinear"),
    **table(pool, "AveragePool MaxPool LpPool MaxRoiPool RoiAlign"),
    **table(sampled, "Resize Upsample GridSample"),
}
