"""RotaryEmbedding: x cos + rotate(x) sin on the first rotary_dim elements of the last axis (0: all); the rest pass through.

rotate is (-second half, first half), or, interleaved, (-x[2i + 1], x[2i]) for each pair. cos and sin broadcast to x over
its leading axes. Their last axis is rotary_dim, or half of it: then both elements of a pair use the same number.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxfuse.op import Attribute, Instance, Op, Shape, show
from onnxfuse.reference import END, Reference


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    size, interleaved = int(instance.attributes["rotary_dim"]), bool(instance.attributes["interleaved"])
    x = r.wide("x")
    turning = r.slice(x, 0, size) if size else x
    width = r.slice(r.op("Shape", turning), -1, END)  # rotary_dim, as a tensor of one element
    turned = r.op("Mul", _rotate(r, turning, interleaved), _per_element(r, r.wide("sin"), width, interleaved))
    y = r.op("Add", r.op("Mul", turning, _per_element(r, r.wide("cos"), width, interleaved)), turned)
    r.give("y", r.op("Concat", y, r.slice(x, size, END), axis=-1) if size else y)
    return r.text


def _rotate(r: Reference, x: str, interleaved: bool) -> str:
    if interleaved:
        return _interleave(r, r.op("Neg", r.slice(x, 1, END, 2)), r.slice(x, 0, END, 2))
    first, second = r.halves(x)
    return r.op("Concat", r.op("Neg", second), first, axis=-1)


def _interleave(r: Reference, even: str, odd: str) -> str:
    """even[0], odd[0], even[1], odd[1], ... along the last axis."""
    pairs = r.op("Concat", r.unsqueeze_last(even), r.unsqueeze_last(odd), axis=-1)
    leading = r.slice(r.op("Shape", even), 0, -1)
    last = r.slice(r.op("Shape", r.op("Concat", even, odd, axis=-1)), -1, END)
    return r.op("Reshape", pairs, r.op("Concat", leading, last, axis=0))


def _per_element(r: Reference, table: str, width: str, interleaved: bool) -> str:
    """cos or sin with one number for each element, from a table of `width` or of half as many in a row."""
    if not interleaved:  # the first `width` of (table, table)
        return r.op("Slice", r.op("Concat", table, table, axis=-1), r.ints(0), width, r.ints(-1))
    # All of (t0, t0, t1, t1, ...), or every second of it where the table is full.
    is_full = r.op("Equal", r.slice(r.op("Shape", table), -1, END), width)
    step = r.op("Add", r.cast(is_full, "int64"), r.ints(1))
    return r.op("Slice", _interleave(r, table, table), r.ints(0), r.ints(END), r.ints(-1), step)


def _limits(shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> str | None:
    x = shapes["x"]
    size = int(attributes["rotary_dim"]) or x[-1]
    if not isinstance(size, int) or not isinstance(x[-1], int):
        return f"the last axis of x must be known; got {show(x)}"
    if size % 2 or size > x[-1]:
        return f"rotary_dim must be even and at most the last axis of x {show(x)}; got {size}"
    for name in ("cos", "sin"):
        table = shapes[name]
        fits = 1 <= len(table) <= len(x) and table[-1] in (size, size // 2)
        if not fits or any(own not in (1, other) for own, other in zip(reversed(table[:-1]), reversed(x[:-1]), strict=False)):
            return f"{name} must broadcast to x {show(x)} but for its last axis, which must be {size} or half of it; got {show(table)}"
    return None


ROTARY_EMBEDDING = Op(
    signature="RotaryEmbedding(x: T[..., d], cos: T, sin: T) -> (y: T[..., d])",
    types={"T": ("float", "float16", "bfloat16")},
    attributes={"interleaved": 0, "rotary_dim": 0},
    reference=_reference,
    tolerance={"float": 1e-6, "float16": 6e-4, "bfloat16": 4e-3},
    limits=_limits,
)
