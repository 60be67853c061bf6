"""HardSwish: v min(max(v / 6 + 1/2, 0), 1) with v = x + bias, in one pass over memory."""

from __future__ import annotations

from onnxfuse.op import Instance, Op
from onnxfuse.reference import Reference


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    x = r.wide("x")
    if r.has("bias"):
        x = r.op("Add", x, r.wide("bias"))
    slope = r.op("Add", r.op("Mul", x, r.number(1 / 6)), r.number(0.5))
    r.give("y", r.op("Mul", x, r.op("Max", r.op("Min", slope, r.number(1.0)), r.number(0.0))))
    return r.text


HARD_SWISH = Op(
    signature="HardSwish(x: T[..., n], bias: T[n]?) -> (y: T[..., n])",
    types={"T": ("float", "float16", "bfloat16")},
    reference=_reference,
    tolerance={"float": 1e-6, "float16": 6e-4, "bfloat16": 4e-3},
)
