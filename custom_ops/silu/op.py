"""Silu: v sigmoid(alpha v) with v = x + bias, in one pass over memory. QuickGELU is alpha = 1.702."""

from __future__ import annotations

from onnxfuse.op import Instance, Op
from onnxfuse.reference import Reference, silu


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    x = r.wide("x")
    if r.has("bias"):
        x = r.op("Add", x, r.wide("bias"))
    r.give("y", silu(r, x, float(instance.attributes["alpha"])))
    return r.text


SILU = Op(
    signature="Silu(x: T[..., n], bias: T[n]?) -> (y: T[..., n])",
    types={"T": ("float", "float16", "bfloat16")},
    attributes={"alpha": 1.0},
    reference=_reference,
    tolerance={"float": 1e-6, "float16": 6e-4, "bfloat16": 4e-3},
)
