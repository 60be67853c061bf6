"""LayerNorm: (x - mean) / sqrt(variance + epsilon) * scale + bias.

Over the axes from `axis` (negative, counted from the end) to the last; scale and bias have exactly those axes.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxfuse.op import Attribute, Instance, Op, Shape, show
from onnxfuse.reference import Reference, unit_variance


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    y = unit_variance(r, r.wide("x"), float(instance.attributes["epsilon"]), int(instance.attributes["axis"]))
    if r.has("scale"):
        y = r.op("Mul", y, r.wide("scale"))
    if r.has("bias"):
        y = r.op("Add", y, r.wide("bias"))
    r.give("y", y)
    return r.text


def _limits(shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> str | None:
    x, axis = shapes["x"], int(attributes["axis"])
    if not -len(x) <= axis < 0:
        return f"axis must be negative and at least minus the rank of x {show(x)}; got {axis}"
    for name in ("scale", "bias"):
        if shapes.get(name, x[axis:]) != x[axis:]:
            return f"{name} must have the shape {show(x[axis:])}; got {show(shapes[name])}"
    return None


LAYER_NORM = Op(
    signature="LayerNorm(x: T[...], scale: T?, bias: T?) -> (y: T[...])",
    types={"T": ("float", "float16", "bfloat16")},
    attributes={"axis": -1, "epsilon": 1e-5},
    reference=_reference,
    tolerance={"float": 3e-6, "float16": 6e-4, "bfloat16": 4e-3},
    limits=_limits,
)
