"""How attention's operands lie in memory: which value holds them, in what layout, with how many heads.

For rules: an operand of the canonical attention is [batch, heads, seq, dim]; what the graph holds is mostly
[batch, seq, heads*dim] seen through Reshape and Transpose, with grouped heads repeated by Expand. Ops take layouts
as strides, so the value before those operators is the one to pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from onnxfuse.glue import reshape_told, reshaped, shape_of
from onnxfuse.graph import Value
from onnxfuse.layout import REPEAT, Axis, Layout, identity, joined, permutation
from onnxfuse.rule import Decline, Made, Match
from onnxfuse.symbolic import Dim
from onnxfuse.term import Term, product_of

Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class Heads:
    """One operand: `value` lies as `layout` says ("BHSD", "BSHD", "BSE", "BHDS"), with `heads` heads of its own."""

    value: Value | Made
    layout: str
    batch: Dim
    heads: Dim
    seq: Dim
    dim: Dim
    past: Value | None = None  # [batch, heads, past, dim], in front along seq; then `seq` counts the current ones only
    present: Value | None = None  # the value that holds past and current together


def operand(match: Match, term: Term, name: str, *, transposed: bool = False, past: bool = False) -> Heads:
    """The operand that `term`, [batch, heads, seq, dim] (dim and seq swapped if `transposed`), comes from.

    past: take what is joined in front along seq as a past of its own, if there is one.

    Raises Decline when no value holds it in a layout that ops take.
    """
    factor, parts = product_of(term)
    if len(parts) == 1 and parts[0][1] == 1 and parts[0][0].op == "View":
        found = _through_view(match, factor, parts[0][0], name, transposed, past)
        if found is not None:
            return found
    if past and term.op == "Concat" and not transposed and (whole := _with_past(match, term, name)) is not None:
        return whole
    try:
        return _as_it_is(match, term, name, transposed)
    except Decline:
        if (turned := _turned(match, term, transposed)) is None:
            raise
        return turned


def is_read_elsewhere(match: Match, term: Term) -> bool:
    """Whether a value holds the term that more than one node reads."""
    return any(len(v.users) > 1 for v in match.view.values.get(term, ()) if v.producer is not None)


def _turned(match: Match, term: Term, transposed: bool) -> Heads | None:
    """From a value whose axes stand in an order that no op takes: a Transpose in front brings them into one."""
    factor, parts = product_of(term)
    view = parts[0][0] if len(parts) == 1 and parts[0][1] == 1 else term
    source = match.view.algebra.scale(view.args[0], factor) if view.op == "View" else term
    value = next((v for v in match.view.values.get(source, ()) if match.is_before(v) and v.rank in (3, 4)), None)
    if value is None or value.shape is None or (view.op == "View" and view.attributes["layout"].base != value.shape):
        return None
    order = permutation(view.attributes["layout"] if view.op == "View" else identity(value.shape))
    if order is None or len(order) != value.rank:
        return None
    order = (*order[:-2], order[-1], order[-2]) if transposed else order
    shape = tuple(value.shape[i] for i in order)
    if order == tuple(range(len(order))):
        return None
    made = Made("Transpose", (value,), value.dtype, shape, (("perm", order),))
    if len(shape) == 3:
        return Heads(made, "BSE", shape[0], 1, shape[1], shape[2])
    return Heads(made, "BHSD", shape[0], shape[1], shape[2], shape[3])


def _as_it_is(match: Match, term: Term, name: str, transposed: bool) -> Heads:
    value = match.holder(term, name)
    shape = value.shape
    if shape is None or len(shape) not in (3, 4, 5):
        rank = "unknown rank" if shape is None else len(shape)
        raise Decline(f"{name} must have 4 axes [batch, heads, seq, dim], or 3, or 5; '{value.name}' has {rank}")
    if len(shape) == 5:  # [batch, heads, windows, seq, dim]: as many heads more
        batch, heads, seq, dim = fewer = folded(shape)
        made = Made("Reshape", (value, reshape_told(fewer, (0, None, 3, 4), value)), value.dtype, fewer)
        return Heads(made, "BHDS" if transposed else "BHSD", batch, heads, *((dim, seq) if transposed else (seq, dim)))
    if len(shape) == 3:
        if transposed:
            raise Decline(f"{name} must be [batch, seq, dim]; '{value.name}' is already transposed")
        return Heads(value, "BSE", shape[0], 1, shape[1], shape[2])
    if transposed:
        return Heads(value, "BHDS", shape[0], shape[1], shape[3], shape[2])
    batch, heads, seq, dim = shape
    return Heads(value, "BHSD", batch, heads, seq, dim)


def multiple(
    match: Match, term: Term, name: str, *, transposed: bool = False, past: bool = False, read: bool = False
) -> tuple[Heads, float]:
    """(operand, factor) with `factor * term` held by the operand: 1 if that can be had, else whatever the graph has.

    read: rather a multiple that others read too, and that so must stay. Raises Decline like `operand`.
    """
    factors = [1.0, *match.view.multiples(term)]
    if read:
        factors = [f for f in factors if f != 1 and is_read_elsewhere(match, match.view.algebra.scale(term, f))] + [1.0]
    for factor in (f for f in factors if f > 0):
        try:
            return operand(match, match.view.algebra.scale(term, factor), name, transposed=transposed, past=past), factor
        except Decline as reason:
            if factor == 1:
                whole = reason  # the others say no more
    raise whole


def _through_view(match: Match, factor: float, term: Term, name: str, transposed: bool, past: bool) -> Heads | None:
    base: Term = term.args[0]
    layout: Layout = term.attributes["layout"]
    axes, shape = list(layout.axes), list(layout.shape)
    if transposed and len(axes) >= 2:
        axes[-1], axes[-2], shape[-1], shape[-2] = axes[-2], axes[-1], shape[-2], shape[-1]
    if layout.fixed:
        return None
    if len(axes) == 3:  # a single head
        axes.insert(1, ())
        shape.insert(1, 1)
    if len(axes) != 4:
        return None
    batch, heads, seq, dim = shape
    own, kept = _own_heads(axes[1], heads)
    if kept is None:
        return None
    axes[1] = kept
    if past and factor == 1 and base.op == "Concat" and len(layout.base) == 4 and tuple(axes) == identity(layout.base).axes:
        whole = _with_past(match, base, name)
        if whole is not None:
            return whole
    for kind, arranged in _arrangements(axes):
        bare = Layout(layout.base, arranged)
        source = base if bare.is_identity else match.view.algebra.operation("View", (base,), {"layout": bare})
        try:
            value = match.holder(match.view.algebra.scale(source, factor), name, shape=bare.shape)
        except Decline:
            continue
        return Heads(value, kind, batch, own, seq, dim)
    return None


def _arrangements(axes: list[Axis]) -> Iterator[tuple[str, tuple[Axis, ...]]]:
    """The layouts ops take, each with its axes in terms of [batch, heads, seq, dim]; the one nearest the source first."""
    batch, heads, seq, dim = axes
    yield "BSE", (batch, seq, joined((*heads, *dim)))
    yield "BSHD", (batch, seq, heads, dim)
    yield "BHSD", (batch, heads, seq, dim)
    yield "BHDS", (batch, heads, dim, seq)


def _own_heads(axis: Axis, heads: Dim) -> tuple[Dim, Axis | None]:
    """(heads before repetition, their axis): each head repeated in place, as grouped queries share it."""
    if not axis or axis[-1].axis != REPEAT:
        return heads, axis
    kept = axis[:-1]
    if any(p.axis == REPEAT for p in kept):
        return heads, None
    own: Dim = 1
    for piece in kept:
        own = own * piece.size
    return own, kept


def _with_past(match: Match, term: Term, name: str) -> Heads | None:
    """past and current keys or values joined along seq."""
    if len(term.args) != 2 or term.attributes["axis"] != -2:
        return None
    try:
        present = match.holder(term, name)
        past = match.holder(term.args[0], f"past {name}")
        current = operand(match, term.args[1], name)
    except Decline:
        return None
    if present.rank != 4 or past.shape is None or current.past is not None or past.shape[1] != current.heads:
        return None
    return Heads(current.value, current.layout, current.batch, current.heads, current.seq, current.dim, past, present)


def folded(shape: Shape) -> Shape:
    """[a, b, c, d, e] as [a, b*c, d, e]."""
    return shape[0], shape[1] * shape[2], *shape[3:]


def unfolded(root: Value, like: Value | Made) -> Made:
    """Behind an op whose result has the axes of `folded`: the five axes of the root. like: q, whose first four axes are the root's."""
    shape = shape_of(root)
    return Made("Reshape", (reshape_told(shape, (0, 1, 2, 3, None), like),), root.dtype, shape)


def is_for_each_head(shape: Shape | None, heads: Dim) -> bool:
    """Whether it holds a number for each head, where scores are [batch, heads, rows, keys]."""
    return shape is not None and shape[-3:-2] == (heads,) and all(d == 1 for i, d in enumerate(shape) if i != len(shape) - 3)


def scaled_heads(heads: Heads, factor: Value | Made) -> Heads:
    """The operand times a number for each head, which is the factor of its scores.

    Raises Decline when the factor has other axes than that of the heads, [heads, 1, 1] in the scores.
    """
    if not is_for_each_head(factor.shape, heads.heads):
        shown = ",".join(map(str, factor.shape or ()))
        raise Decline(
            f"what scores are multiplied by must be one number, or one for each of the {heads.heads} heads; its shape is [{shown}]"
        )
    value, layout = heads.value, heads.layout
    if layout == "BSE":
        value, layout = reshaped(value, (heads.batch, heads.seq, heads.heads, heads.dim)), "BSHD"
    factor = reshaped(factor, (heads.heads, 1) if layout == "BSHD" else (heads.heads, 1, 1))
    return replace(heads, value=Made("Mul", (value, factor), value.dtype, value.shape), layout=layout)


def result_layout(layout: Layout | None, rank: int | None) -> tuple[str, tuple[int, ...] | None]:
    """(the layout an attention result is wanted in, how it is to be transposed afterwards if it is).

    layout: the view of [batch, heads, seq, dim] that the root is. Raises Decline when ops give none that does.
    """
    if layout is None or layout.is_identity:
        return "BSE" if rank == 3 else "BHSD", None
    if len(layout.base) == 3 and (order := permutation(layout)) is not None:
        return "BSE", order
    if layout.fixed or len(layout.base) != 4:
        raise Decline("the result must be [batch, heads, seq, dim] or with the heads side by side")
    batch, heads, seq, dim = identity(layout.base).axes
    kinds = {"BSHD": (batch, seq, heads, dim), "BSE": (batch, seq, (*heads, *dim))}  # a view across two axes is not joined
    for kind, axes in kinds.items():
        if layout.axes == axes:
            return kind, None
    if (order := permutation(layout)) is not None:
        return "BHSD", order
    raise Decline("the result must be [batch, heads, seq, dim] or with the heads side by side; it is laid out otherwise")
