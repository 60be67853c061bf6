"""ScaledTanh: alpha tanh(beta v) with v = x + bias, in one pass over memory. A soft cap c is alpha = c, beta = 1 / c."""

from __future__ import annotations

from onnxfuse.op import Instance, Op
from onnxfuse.reference import Reference


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    x = r.wide("x")
    if r.has("bias"):
        x = r.op("Add", x, r.wide("bias"))
    curve = r.op("Tanh", r.op("Mul", x, r.number(float(instance.attributes["beta"]))))
    r.give("y", r.op("Mul", curve, r.number(float(instance.attributes["alpha"]))))
    return r.text


SCALED_TANH = Op(
    signature="ScaledTanh(x: T[..., n], bias: T[n]?) -> (y: T[..., n])",
    types={"T": ("float", "float16", "bfloat16")},
    attributes={"alpha": 1.0, "beta": 1.0},
    reference=_reference,
    tolerance={"float": 1e-6, "float16": 6e-4, "bfloat16": 4e-3},
)
