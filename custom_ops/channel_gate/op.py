"""ChannelGate: x f(gate), with f sigmoid or hard_sigmoid, one gate for each row of x: squeeze and excite in one pass.

gate has the rank of x: its leading axes are those of x, the rest have size 1. hard_sigmoid is
min(max(alpha v + beta, 0), 1).
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxfuse.op import Attribute, Instance, Op, Shape, show
from onnxfuse.reference import Reference


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    gate = r.wide("gate")
    if instance.attributes["activation"] == "sigmoid":
        gate = r.op("Sigmoid", gate)
    else:
        line = r.op("Add", r.op("Mul", gate, r.number(float(instance.attributes["alpha"]))), r.number(float(instance.attributes["beta"])))
        gate = r.op("Max", r.op("Min", line, r.number(1.0)), r.number(0.0))
    r.give("y", r.op("Mul", r.wide("x"), gate))
    return r.text


def _limits(shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> str | None:
    x, gate = shapes["x"], shapes["gate"]
    same = next((i for i, (own, other) in enumerate(zip(x, gate, strict=False)) if own != other), len(x))
    if len(gate) == len(x) and all(size == 1 for size in gate[same:]):
        return None
    return f"gate must have the leading axes of x {show(x)} and size 1 along the others; got {show(gate)}"


CHANNEL_GATE = Op(
    signature="ChannelGate(x: T[...], gate: T) -> (y: T[...])",
    types={"T": ("float", "float16", "bfloat16")},
    attributes={"activation": "sigmoid", "alpha": 1 / 6, "beta": 0.5},
    reference=_reference,
    tolerance={"float": 1e-6, "float16": 6e-4, "bfloat16": 4e-3},
    limits=_limits,
)
