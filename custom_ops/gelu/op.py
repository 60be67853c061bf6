"""Gelu: gelu(x + bias) in one pass over memory, exact (erf) or by the tanh formula."""

from __future__ import annotations

from onnxfuse.op import Instance, Op
from onnxfuse.reference import Reference, gelu


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    x = r.wide("x")
    if r.has("bias"):
        x = r.op("Add", x, r.wide("bias"))
    r.give("y", gelu(r, x, str(instance.attributes["approximate"])))
    return r.text


GELU = Op(
    signature="Gelu(x: T[..., n], bias: T[n]?) -> (y: T[..., n])",
    types={"T": ("float", "float16", "bfloat16")},
    attributes={"approximate": "none"},
    reference=_reference,
    tolerance={"float": 1e-6, "float16": 6e-4, "bfloat16": 4e-3},
)
