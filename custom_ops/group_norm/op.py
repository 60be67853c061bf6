"""GroupNorm: (x - mean) / sqrt(variance + epsilon) * scale + bias for each group of channels, and its SiLU if wanted.

x is [batch, channels, ...]; a group is channels / num_groups neighbouring channels with all that lies behind them.
scale and bias have one number for each channel. Instance normalisation has as many groups as channels.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxfuse.op import Attribute, Instance, Op, Shape, show
from onnxfuse.reference import END, Reference, silu, unit_variance


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    x, groups = r.wide("x"), r.ints(int(instance.attributes["num_groups"]))
    shape = r.op("Shape", x)
    batch, channels = r.slice(shape, 0, 1), r.slice(shape, 1, 2)
    places = r.reduce("ReduceProd", r.op("Concat", r.ints(1), r.slice(shape, 2, END), axis=0), 0)
    size = r.op("Mul", r.op("Div", channels, groups), places)
    y = unit_variance(r, r.reshape(x, r.op("Concat", batch, groups, size, axis=0)), float(instance.attributes["epsilon"]))
    if r.has("scale") or r.has("bias"):
        y = r.reshape(y, r.op("Concat", batch, channels, places, axis=0))
    if r.has("scale"):
        y = r.op("Mul", y, r.unsqueeze_last(r.wide("scale")))
    if r.has("bias"):
        y = r.op("Add", y, r.unsqueeze_last(r.wide("bias")))
    if instance.attributes["activation"] == "silu":
        y = silu(r, y, 1.0)
    r.give("y", r.reshape(y, shape))
    return r.text


def _limits(shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> str | None:
    x, groups = shapes["x"], int(attributes["num_groups"])
    if len(x) < 2:
        return f"x must have rank 2 or more; got {show(x)}"
    if groups < 1 or not isinstance(x[1], int) or x[1] % groups:
        return f"x must have a multiple of num_groups = {groups} channels; got {show(x)}"
    for name in ("scale", "bias"):
        if shapes.get(name, x[1:2]) != x[1:2]:
            return f"{name} must have the shape {show(x[1:2])}; got {show(shapes[name])}"
    return None


GROUP_NORM = Op(
    signature="GroupNorm(x: T[...], scale: T?, bias: T?) -> (y: T[...])",
    types={"T": ("float", "float16", "bfloat16")},
    attributes={"num_groups": 1, "epsilon": 1e-5, "activation": "none"},
    reference=_reference,
    tolerance={"float": 3e-6, "float16": 6e-4, "bfloat16": 4e-3},
    limits=_limits,
)
