"""MaskedSoftmax: softmax(scale x, masked) over the last axis, in one pass over memory.

    s = scale * x
    s = mask ? s : mask_value, or s + mask        for a bool mask, or any other; it broadcasts to x
    y = softmax(s)

A row that is NaN after the softmax, as one of -inf alone is, stays NaN, or is 0 where zero_masked_rows is 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from onnxfuse.op import Attribute, Instance, Op, Shape, show
from onnxfuse.reference import Reference


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    s, scale = r.wide("x"), float(instance.attributes["scale"])
    if scale != 1.0:
        s = r.op("Mul", s, r.number(scale))
    if r.has("mask"):
        s = _masked(r, instance, s)
    y = r.op("Softmax", s, axis=-1)
    if instance.attributes["zero_masked_rows"]:
        y = r.op("Where", r.op("IsNaN", y), r.number(0.0), y)
    r.give("y", y)
    return r.text


def _masked(r: Reference, instance: Instance, s: str) -> str:
    kind = instance.types["M"]
    if kind != "bool":
        return r.op("Add", s, "mask" if kind == r.sum_type else r.cast("mask", r.sum_type))
    value = float(instance.attributes["mask_value"])
    dropped = r.number(value) if math.isfinite(value) else r.op("Log", r.number(0.0))  # ONNX text has no word for -inf
    return r.op("Where", "mask", s, dropped)


def _limits(shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> str | None:
    x, mask = shapes["x"], shapes.get("mask", ())
    if not x:
        return f"x must have rank 1 or more; got {show(x)}"
    if len(mask) > len(x) or any(own not in (1, wanted) for own, wanted in zip(reversed(mask), reversed(x), strict=False)):
        return f"mask must broadcast to x {show(x)}; got {show(mask)}"
    if math.isnan(float(attributes["mask_value"])) or float(attributes["mask_value"]) == math.inf:
        return f"mask_value must be finite or -inf; got {attributes['mask_value']}"
    return None


MASKED_SOFTMAX = Op(
    signature="MaskedSoftmax(x: T[...], mask: M?) -> (y: T[...])",
    types={"T": ("float", "float16", "bfloat16"), "M": ("bool", "float", "float16", "bfloat16")},
    attributes={"scale": 1.0, "mask_value": -math.inf, "zero_masked_rows": 0},
    reference=_reference,
    tolerance={"float": 3e-6, "float16": 6e-4, "bfloat16": 4e-3},
    limits=_limits,
)
