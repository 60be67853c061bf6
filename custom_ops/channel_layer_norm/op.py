"""ChannelLayerNorm: (x - mean) / sqrt(variance + epsilon) * scale + bias over one axis that is not the last.

`axis` is negative, counted from the end: -3 are the channels of [batch, channels, height, width]. scale and bias have
one number for each index of that axis.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxfuse.op import Attribute, Instance, Op, Shape, show
from onnxfuse.reference import Reference


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    axis = int(instance.attributes["axis"])
    x = r.wide("x")
    centred = r.op("Sub", x, r.reduce("ReduceMean", x, axis))
    variance = r.reduce("ReduceMean", r.op("Mul", centred, centred), axis)
    y = r.op("Div", centred, r.op("Sqrt", r.op("Add", variance, r.number(float(instance.attributes["epsilon"])))))
    places = [1] * (-axis - 1)
    if r.has("scale"):
        y = r.op("Mul", y, r.op("Reshape", r.wide("scale"), r.ints(-1, *places)))
    if r.has("bias"):
        y = r.op("Add", y, r.op("Reshape", r.wide("bias"), r.ints(-1, *places)))
    r.give("y", y)
    return r.text


def _limits(shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> str | None:
    x, axis = shapes["x"], int(attributes["axis"])
    if not -len(x) <= axis < -1:
        return f"axis must be from minus the rank of x {show(x)} to -2; got {axis}"
    channels = (x[axis],)
    for name in ("scale", "bias"):
        if shapes.get(name, channels) != channels:
            return f"{name} must have the shape {show(channels)}; got {show(shapes[name])}"
    return None


CHANNEL_LAYER_NORM = Op(
    signature="ChannelLayerNorm(x: T[...], scale: T?, bias: T?) -> (y: T[...])",
    types={"T": ("float", "float16", "bfloat16")},
    attributes={"axis": -3, "epsilon": 1e-5},
    reference=_reference,
    tolerance={"float": 3e-6, "float16": 6e-4, "bfloat16": 4e-3},
    limits=_limits,
)
