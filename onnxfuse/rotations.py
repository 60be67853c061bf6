"""Halves and pairs: what rotary embeddings and packed gates take apart and put together again.

rotate_half(x)      concat(-x[n:], x[:n])                           on the last axis, of 2n
rotate_pairs(x)     -x[1], x[0], -x[3], x[2], ...                   on the last axis
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnxfuse.layout import Axis, Layout, Piece, identity, joined, reshape
from onnxfuse.term import Algebra, Term, product_of


def rotated(algebra: Algebra, args: Sequence[Term]) -> Term | None:
    """A Concat of two terms on the last axis as a rotation, if that is what it is."""
    factor, parts = product_of(args[0])
    if len(args) != 2 or factor != -1 or len(parts) != 1 or parts[0][1] != 1:
        return None
    turned, kept = parts[0][0], args[1]
    neighbours = joined_pairs(_without_last(algebra, kept), _without_last(algebra, turned))
    if neighbours is not None:
        shape = neighbours[1].shape
        back = reshape(identity(shape), (*shape[:-1], shape[-1] // 2, 2))
        pairs = algebra.plain("RotatePairs", (seen(algebra, neighbours),))
        return None if back is None else algebra.operation("View", (pairs,), {"layout": back})
    halves = joined_halves(kept, turned)
    return None if halves is None else algebra.plain("RotateHalf", (seen(algebra, halves),))


Whole = tuple[Term, Layout]  # a view: what of, and which


def seen(algebra: Algebra, whole: Whole) -> Term:
    return algebra.operation("View", (whole[0],), {"layout": whole[1]})


def _without_last(algebra: Algebra, term: Term) -> Term:
    """A view less its last axis of size 1; anything else as it is."""
    layout = term.attributes["layout"] if term.op == "View" else None
    if layout is None or not layout.axes or layout.axes[-1]:
        return term
    return algebra.plain("View", term.args, {"layout": replace(layout, axes=layout.axes[:-1])})


def joined_halves(first: Term, second: Term, axis: int = -1) -> Whole | None:
    """The view one of whose axes (negative) splits into the views `first` and `second`, of equal size."""
    whole = joined_parts(first, second, axis)
    equal = whole is not None and first.attributes["layout"].shape[axis] == second.attributes["layout"].shape[axis]
    return whole if equal else None


def joined_parts(first: Term, second: Term, axis: int = -1) -> Whole | None:
    """The view one of whose axes (negative) splits into the views `first` and `second`."""
    if first.op != "View" or second.op != "View" or first.args[0] is not second.args[0]:
        return None
    a, b = first.attributes["layout"], second.attributes["layout"]
    at = len(a.axes) + axis
    if at < 0 or len(a.axes) != len(b.axes) or _at(b, at, a.axes[at], a.fixed) != a:
        return None
    p, q = _step(a, b, at), _step(b, a, at)
    if p is None or q is None or (p.axis, p.inner) != (q.axis, q.inner) or p.axis < 0 or p.start + p.size != q.start:
        return None
    return first.args[0], _at(a, at, (replace(p, size=p.size + q.size),), _shared(a, b))


def _step(layout: Layout, other: Layout, axis: int) -> Piece | None:
    """What an axis walks over; where it has size 1, the place that it stays at and the other view does not."""
    if len(layout.axes[axis]) == 1:
        return layout.axes[axis][0] if set(layout.fixed) <= set(other.fixed) else None
    own = set(layout.fixed) - set(other.fixed)
    return own.pop() if not layout.axes[axis] and len(own) == 1 else None


def _shared(a: Layout, b: Layout) -> tuple[Piece, ...]:
    return tuple(p for p in a.fixed if p in b.fixed)


def joined_pairs(even: Term, odd: Term) -> Whole | None:
    """The view whose last axis has the elements of the views `even` and `odd` in turn."""
    if even.op != "View" or odd.op != "View" or even.args[0] is not odd.args[0]:
        return None
    a, b = even.attributes["layout"], odd.attributes["layout"]
    alone, other = set(a.fixed) - set(b.fixed), set(b.fixed) - set(a.fixed)
    if a.axes != b.axes or not a.axes or len(alone) != 1 or {replace(p, start=p.start + 1) for p in alone} != other:
        return None
    last = joined((*a.axes[-1], replace(alone.pop(), size=2)))
    return (even.args[0], _at(a, len(a.axes) - 1, last, _shared(a, b))) if len(last) == 1 else None


def _at(layout: Layout, axis: int, pieces: Axis, fixed: tuple[Piece, ...]) -> Layout:
    """The layout with other pieces on one axis, and other places that it stays at."""
    return replace(layout, axes=(*layout.axes[:axis], pieces, *layout.axes[axis + 1 :]), fixed=fixed)
