"""L2Norm: x / max(|x|, epsilon) * scale, with |x| the square root of the sum of squares over one axis.

`axis` is negative, counted from the end; scale has one number for each index of that axis.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxfuse.op import Attribute, Instance, Op, Shape, show
from onnxfuse.reference import Reference


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    axis = int(instance.attributes["axis"])
    x = r.wide("x")
    y = r.op("Div", x, r.op("Max", r.reduce("ReduceL2", x, axis), r.number(float(instance.attributes["epsilon"]))))
    if r.has("scale"):
        y = r.op("Mul", y, r.op("Reshape", r.wide("scale"), r.ints(-1, *[1] * (-axis - 1))))
    r.give("y", y)
    return r.text


def _limits(shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> str | None:
    x, axis = shapes["x"], int(attributes["axis"])
    if not -len(x) <= axis < 0:
        return f"axis must be negative and at least minus the rank of x {show(x)}; got {axis}"
    if shapes.get("scale", (x[axis],)) != (x[axis],):
        return f"scale must have the shape {show((x[axis],))}; got {show(shapes['scale'])}"
    return None


L2_NORM = Op(
    signature="L2Norm(x: T[...], scale: T?) -> (y: T[...])",
    types={"T": ("float", "float16", "bfloat16")},
    attributes={"axis": -1, "epsilon": 1e-12},
    reference=_reference,
    tolerance={"float": 3e-6, "float16": 6e-4, "bfloat16": 4e-3},
    limits=_limits,
)
