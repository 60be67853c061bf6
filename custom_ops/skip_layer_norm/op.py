"""SkipLayerNorm: sum = x + skip + x_bias, and LayerNorm of the sum over the last axis, in one pass over memory.

The sum is not rounded to T between the two; `sum`, rounded, is an output for the next residual.
"""

from __future__ import annotations

from onnxfuse.op import Instance, Op
from onnxfuse.reference import Reference, unit_variance


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    total = r.op("Add", r.wide("x"), r.wide("skip"))
    if r.has("x_bias"):
        total = r.op("Add", total, r.wide("x_bias"))
    total = r.give("sum", total)
    y = unit_variance(r, total, float(instance.attributes["epsilon"]))
    if r.has("scale"):
        y = r.op("Mul", y, r.wide("scale"))
    if r.has("bias"):
        y = r.op("Add", y, r.wide("bias"))
    r.give("y", y)
    return r.text


SKIP_LAYER_NORM = Op(
    signature="SkipLayerNorm(x: T[..., n], skip: T[..., n], scale: T[n]?, bias: T[n]?, x_bias: T[n]?) -> (y: T[..., n], sum: T[..., n]?)",
    types={"T": ("float", "float16", "bfloat16")},
    attributes={"epsilon": 1e-5},
    reference=_reference,
    tolerance={"float": 3e-6, "float16": 6e-4, "bfloat16": 4e-3},
)
