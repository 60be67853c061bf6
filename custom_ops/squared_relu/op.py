"""SquaredRelu: max(v, 0)^2 with v = x + bias, in one pass over memory."""

from __future__ import annotations

from onnxfuse.op import Instance, Op
from onnxfuse.reference import Reference


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    x = r.wide("x")
    if r.has("bias"):
        x = r.op("Add", x, r.wide("bias"))
    positive = r.op("Relu", x)
    r.give("y", r.op("Mul", positive, positive))
    return r.text


SQUARED_RELU = Op(
    signature="SquaredRelu(x: T[..., n], bias: T[n]?) -> (y: T[..., n])",
    types={"T": ("float", "float16", "bfloat16")},
    reference=_reference,
    tolerance={"float": 1e-6, "float16": 6e-4, "bfloat16": 4e-3},
)
