"""Views: what any run of Reshape, Transpose, Squeeze, Unsqueeze, Expand, Slice and Split amounts to.

A `Layout` says, for each axis of the view, which pieces of which axes of the base it walks over, outermost
first. Two runs that reach the same elements in the same order are the same Layout, however they were spelled,
so attention's head split is recognised through 4-D, 3-D, or merged batch forms alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnxfuse.symbolic import Dim, divide, product

REPEAT = -1  # the axis of a piece that walks over nothing: the same elements again (Expand)


@dataclass(frozen=True)
class Piece:
    """`size` steps of `inner` elements along base axis `axis`, beginning at step `start`."""

    axis: int
    inner: Dim
    size: Dim
    start: Dim = 0


Axis = tuple[Piece, ...]


@dataclass(frozen=True)
class Layout:
    """How a view walks over a base of shape `base`. `fixed`: places along base axes that the view stays at."""

    base: tuple[Dim, ...]
    axes: tuple[Axis, ...]
    fixed: tuple[Piece, ...] = ()

    @property
    def shape(self) -> tuple[Dim, ...]:
        return tuple(product([p.size for p in axis]) for axis in self.axes)

    @property
    def is_identity(self) -> bool:
        return self == identity(self.base)


def identity(shape: Sequence[Dim]) -> Layout:
    """The view that is its base."""
    axes = tuple(() if size == 1 else (Piece(axis, 1, size),) for axis, size in enumerate(shape))
    return Layout(tuple(shape), axes)


def transpose(layout: Layout, order: Sequence[int]) -> Layout:
    return replace(layout, axes=tuple(layout.axes[i] for i in order))


def reshape(layout: Layout, shape: Sequence[Dim]) -> Layout | None:
    """The same elements in the same order under another shape; None when the sizes cannot be shown to line up."""
    rest = [piece for axis in layout.axes for piece in axis]
    axes: list[Axis] = []
    for size in shape:
        axis = _take(rest, size)
        if axis is None:
            return None
        axes.append(axis)
    return None if rest else _normal(layout.base, axes, layout.fixed)


def _take(rest: list[Piece], size: Dim) -> Axis | None:
    """Remove pieces that make up `size` from the front of `rest`, splitting the last one if need be."""
    taken: list[Piece] = []
    need = size
    while need != 1:
        if not rest:
            return None
        piece = rest.pop(0)
        if (left := divide(need, piece.size)) is not None:
            taken.append(piece)
            need = left
            continue
        remainder = divide(piece.size, need)
        start = divide(piece.start, remainder) if remainder is not None else None
        if remainder is None or start is None:
            return None
        taken.append(Piece(piece.axis, piece.inner * remainder, need, start))
        rest.insert(0, Piece(piece.axis, piece.inner, remainder))
        need = 1
    return tuple(taken)


def expand(layout: Layout, shape: Sequence[Dim]) -> Layout | None:
    """Broadcast to `shape` as ONNX does: new axes in front, axes of size 1 repeated."""
    axes: list[Axis] = [()] * (len(shape) - len(layout.axes)) + list(layout.axes)
    for position, (axis, size) in enumerate(zip(axes, shape, strict=True)):
        have = product([p.size for p in axis])
        if have == size:
            continue
        if have != 1:
            return None
        axes[position] = (Piece(REPEAT, 0, size),)
    return _normal(layout.base, axes, layout.fixed)


def permutation(layout: Layout) -> tuple[int, ...] | None:
    """The order of the base's axes in the view, where the view does no more than reorder them."""
    whole = identity(layout.base).axes
    order: list[int] = []
    for axis in layout.axes:
        free = (i for i, own in enumerate(whole) if own == axis and i not in order)
        order.append(next(free, -1))
    return None if layout.fixed or sorted(order) != list(range(len(whole))) else tuple(order)


def cut(layout: Layout, axis: int, start: Dim, size: Dim) -> Layout | None:
    """Elements start..start+size-1 of one axis; the axis stays. None when it is a merged axis."""
    pieces = layout.axes[axis]
    if len(pieces) > 1:
        return None
    if not pieces:
        return layout if (start, size) == (0, 1) else None
    (piece,) = pieces
    if piece.axis == REPEAT:
        part = replace(piece, size=size)
        return _normal(layout.base, _with_axis(layout, axis, (part,) if size != 1 else ()), layout.fixed)
    part = replace(piece, size=size, start=piece.start + start)
    if size == 1 and piece.size != 1:
        return _normal(layout.base, _with_axis(layout, axis, ()), (*layout.fixed, part))
    return _normal(layout.base, _with_axis(layout, axis, (part,)), layout.fixed)


def strided(layout: Layout, axis: int, start: Dim, step: int) -> Layout | None:
    """Every `step`-th element of one axis, from `start` (below step) on; None when the axis is no multiple of the step."""
    shape = layout.shape
    count = divide(shape[axis], step)
    split = None if count is None else reshape(layout, (*shape[:axis], count, step, *shape[axis + 1 :]))
    part = None if split is None else cut(split, axis + 1, start, 1)
    return None if part is None or count is None else reshape(part, (*shape[:axis], count, *shape[axis + 1 :]))


def compose(outer: Layout, inner: Layout) -> Layout | None:
    """The view `outer` of the view `inner`, where outer only regroups, reorders and repeats axes; None where it does more."""
    pieces = [p for axis in outer.axes for p in axis if p.axis != REPEAT]
    if outer.fixed or any(p.start != 0 for p in pieces):
        return None
    ordered: list[Piece] = []
    for axis, size in enumerate(outer.base):
        own = _outermost_first([p for p in pieces if p.axis == axis])
        if own is None or product([p.size for p in own]) != size:
            return None
        ordered += own
    split = reshape(inner, [p.size for p in ordered])
    if split is None:
        return None
    place = {p: split.axes[i] for i, p in enumerate(ordered)}
    return _normal(inner.base, [tuple(q for p in axis for q in place.get(p, (p,))) for axis in outer.axes], inner.fixed)


def _outermost_first(pieces: list[Piece]) -> list[Piece] | None:
    """Pieces of one axis from the largest stride to the smallest; None when they do not follow on each other."""
    ordered: list[Piece] = []
    inner: Dim = 1
    while pieces:
        following = next((p for p in pieces if p.inner == inner), None)
        if following is None:
            return None
        pieces.remove(following)
        ordered.insert(0, following)
        inner = inner * following.size
    return ordered


def without_axes(layout: Layout, shape: Sequence[Dim]) -> Layout | None:
    """The same regrouping of something that has size 1 along axes where the base has more, and may lack leading ones."""
    offset = len(layout.base) - len(shape)
    gone = {i for i, size in enumerate(layout.base) if i < offset or (shape[i - offset] == 1 and size != 1)}
    if any(i not in gone and shape[i - offset] != size for i, size in enumerate(layout.base)):
        return None
    axes: list[Axis] = []
    for axis in layout.axes:
        kept = [Piece(REPEAT, 0, p.size) if p.axis in gone else p for p in axis]
        axes.append(tuple(kept) if any(p.axis not in gone for p in axis) else ())  # merged with another it is repeated in between
    fixed = [p for p in layout.fixed if p.axis not in gone]
    *moved, places = [tuple(p if p.axis == REPEAT else replace(p, axis=p.axis - offset) for p in axis) for axis in (*axes, fixed)]
    return _normal(tuple(shape), moved, places)


def _with_axis(layout: Layout, axis: int, pieces: Axis) -> list[Axis]:
    return [pieces if i == axis else a for i, a in enumerate(layout.axes)]


def _normal(base: tuple[Dim, ...], axes: Sequence[Axis], fixed: Sequence[Piece]) -> Layout:
    """The one way to write a layout: pieces joined where they touch, fixed places moved into the piece inside them."""
    walked = [joined(axis) for axis in axes]
    left: list[Piece] = []
    for place in fixed:
        home = _inside(walked, place)
        if home is None:
            left.append(place)
            continue
        row, column, steps = home
        piece = walked[row][column]
        moved = replace(piece, start=piece.start + place.start * steps)
        walked[row] = (*walked[row][:column], moved, *walked[row][column + 1 :])
    return Layout(base, tuple(walked), tuple(sorted(left, key=lambda p: (p.axis, str(p.inner)))))


def joined(axis: Axis) -> Axis:
    """The pieces with those that touch made one."""
    pieces: list[Piece] = []
    for piece in axis:
        last = pieces[-1] if pieces else None
        if last is not None and last.axis == piece.axis == REPEAT:
            pieces[-1] = Piece(REPEAT, 0, last.size * piece.size)
        elif last is not None and last.axis == piece.axis and last.inner == piece.inner * piece.size and piece.start == 0:
            pieces[-1] = Piece(piece.axis, piece.inner, last.size * piece.size, last.start * piece.size)
        else:
            pieces.append(piece)
    return tuple(pieces)


def _inside(axes: Sequence[Axis], place: Piece) -> tuple[int, int, Dim] | None:
    """The outermost piece of the view that lies inside a fixed place, and how many of its steps the place is."""
    best: tuple[int, int, Dim] | None = None
    for row, axis in enumerate(axes):
        for column, piece in enumerate(axis):
            steps = divide(place.inner, piece.inner) if piece.axis == place.axis else None
            if steps is None or steps == 1:
                continue
            if best is None or divide(best[2], steps) is not None:
                best = (row, column, steps)
    return best
