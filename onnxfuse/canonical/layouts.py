"""Canonical forms of operators that move elements and compute nothing: all of them are `View`s, or a Concat."""

from __future__ import annotations

from collections.abc import Sequence

from onnxfuse.canonical.view import View, handles, is_float, negative_axis
from onnxfuse.graph import Node, Value
from onnxfuse.layout import Layout, cut, expand, reshape, strided, transpose
from onnxfuse.symbolic import Dim
from onnxfuse.term import Term, product_of

Terms = list[Term | None] | None
END = 2**31 - 1  # exporters write "to the end" as a number at least this large


@handles("Reshape", "Squeeze", "Unsqueeze", "Flatten")
def _reshape(view: View, node: Node) -> Terms:
    target = node.outputs[0].shape if node.outputs[0] is not None else None
    if target is None:
        return None
    kept = _put_back(view, node.inputs[0], target)
    return [kept] if kept is not None else view.view(view.layout(node.inputs[0]), lambda layout: reshape(layout, target))


def _put_back(view: View, reduced: Value | None, target: tuple[Dim, ...]) -> Term | None:
    """A reduction whose axes are put back with size 1 as the same reduction that keeps them."""
    term = view.term(reduced)
    factor, parts = product_of(term) if term is not None else (1.0, ())
    if reduced is None or reduced.shape is None or len(parts) != 1 or parts[0][1] != 1 or parts[0][0].attributes.get("keepdims", True):
        return None
    inner = parts[0][0]
    if "axes" not in inner.attributes:  # over all of them, or of an operator that has none
        return None
    back = list(reduced.shape)
    for axis in sorted(len(target) + a for a in inner.attributes["axes"]):
        back.insert(axis, 1)
    if tuple(back) != target:
        return None
    return view.algebra.scale(view.algebra.operation(inner.op, inner.args, {**inner.attributes, "keepdims": True}), factor)


@handles("Transpose")
def _transpose(view: View, node: Node) -> Terms:
    source = node.inputs[0]
    if source is None or source.rank is None:
        return None
    order: Sequence[int] = node.attributes.get("perm") or range(source.rank)[::-1]
    return view.view(view.layout(source), lambda layout: transpose(layout, order))


@handles("Expand")
def _expand(view: View, node: Node) -> Terms:
    target = node.outputs[0].shape if node.outputs[0] is not None else None
    if target is None:
        return None
    return view.view(view.layout(node.inputs[0]), lambda layout: expand(layout, target))


@handles("ConstantOfShape")
def _constant_of_shape(view: View, node: Node) -> Terms:
    """The number it is filled with, where that is a float; integers are sizes, which shape inference knows."""
    if not is_float(node.outputs[0]):
        return None
    held = node.attributes.get("value")
    return [view.algebra.number(0.0 if held is None else float(held.values.reshape(-1)[0]))]


@handles("Split")
def _split(view: View, node: Node) -> Terms:
    source = node.inputs[0]
    axis = negative_axis(node.attributes.get("axis", 0), source)
    if source is None or source.shape is None or axis is None:
        return None
    terms: list[Term | None] = []
    start: Dim = 0
    for output in node.outputs:
        if output is None or output.shape is None:
            return None
        size = output.shape[axis]
        terms += _cut(view, source, axis, start, size) or [None]
        start = start + size
    return terms


def _cut(view: View, source: Value, axis: int, start: Dim, size: Dim) -> Terms:
    rank = source.rank or 0
    return view.view(view.layout(source), lambda layout: cut(layout, axis + rank, start, size))


@handles("Slice")
def _slice(view: View, node: Node) -> Terms:
    """Slices with bounds that are known, symbolically at least; of a larger step only what runs over a whole axis."""
    source, target = node.inputs[0], node.outputs[0]
    if source is None or target is None or source.shape is None or target.shape is None:
        return None
    starts, steps = _bounds(node, 1, "starts"), _bounds(node, 4, "steps")
    axes = _bounds(node, 3, "axes") or (tuple(range(len(starts))) if starts else None)
    if not starts or not axes or len(axes) != len(starts):
        return None
    if node.input(4) is not None and steps is None:
        return None
    layout = view.layout(source)
    for start, axis, step in zip(starts, axes, steps or [1] * len(starts), strict=True):
        if layout is None or not isinstance(axis, int) or not isinstance(step, int):
            return None
        position = axis % len(source.shape)
        begin = _begin(start, source.shape[position])
        changed = None if begin is None else _every(layout[2], position, begin, target.shape[position], step)
        layout = None if changed is None else (layout[0], layout[1], changed)
    return view.view(layout, lambda layout: layout)


def _every(layout: Layout, axis: int, begin: Dim, size: Dim, step: int) -> Layout | None:
    """`size` elements of an axis, `step` apart."""
    if step == 1:
        return cut(layout, axis, begin, size)
    whole = isinstance(begin, int) and 0 <= begin < step and size * step == layout.shape[axis]
    return strided(layout, axis, begin, step) if whole else None


def _begin(start: Dim, size: Dim) -> Dim | None:
    if not isinstance(start, int):
        return start
    if start >= 0:
        return start if not isinstance(size, int) or start <= size else size
    return size + start if isinstance(size, int) and size + start >= 0 else None


def _bounds(node: Node, position: int, name: str) -> tuple[Dim, ...] | None:
    if name in node.attributes:
        return tuple(node.attributes[name])
    value = node.input(position)
    return value.elements if value is not None else None


@handles("Gather")
def _gather(view: View, node: Node) -> Terms:
    """Gather with one constant index is a cut; other gathers stay as they are."""
    source, index, target = node.inputs[0], node.inputs[1], node.outputs[0]
    axis = negative_axis(node.attributes.get("axis", 0), source)
    if source is None or index is None or target is None or source.shape is None or target.shape is None or axis is None:
        return None
    if index.elements is None or len(index.elements) != 1 or index.rank not in (0, 1):
        return None
    at = _begin(index.elements[0], source.shape[axis])
    layout = view.layout(source)
    if at is None or layout is None:
        return None
    part = cut(layout[2], axis + len(source.shape), at, 1)
    return view.view(layout, lambda _: None if part is None else reshape(part, target.shape or ()))


@handles("Concat")
def _concat(view: View, node: Node) -> Terms:
    source = next((v for v in node.inputs if v is not None and v.rank is not None), None)
    axis = negative_axis(node.attributes.get("axis", 0), source)
    if axis is None:
        return None
    args = view.args(node)
    return [args[0]] if len(args) == 1 else [view.algebra.operation("Concat", args, {"axis": axis})]
