"""What a term holds when no input of the model has a say in it: (1 + w), a weight times a number, a bias seen as [C,1,1]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxfuse.canonical.view import View
from onnxfuse.graph import Value, constant_value
from onnxfuse.layout import REPEAT, Layout, Piece
from onnxfuse.term import NUMBER, PRODUCT, SUM, Term

COMPOUND = {PRODUCT, SUM, "View"}  # terms that are constant where their parts are
MAX_ELEMENTS = 2**20  # weights of norms and convolutions; no product of matrices is worked out here


def sources(view: View, term: Term) -> list[Value] | None:
    """The constants of the graph that a term is made of; None when it is made of something else, too."""
    if term.op == NUMBER:
        return []
    held = next((v for v in view.values.get(term, ()) if v.is_constant), None)
    if held is not None:
        return [held]
    if term.op not in COMPOUND:
        return None
    found: list[Value] = []
    # what settles it at once comes first: a residual stream is a sum as deep as the model
    for part in sorted((*term.args, *(t for t, _ in term.parts)), key=lambda t: t.op in COMPOUND):
        inner = sources(view, part)
        if inner is None:
            return None
        found += inner
    return found


def constant_array(view: View, term: Term) -> Any | None:
    """What `term` always holds, in float64 and with the shape it has by itself; None when that is not known."""
    if sources(view, term) is None:
        return None
    array = _array(view, term)
    return None if array is None or array.size > MAX_ELEMENTS else array


def _array(view: View, term: Term) -> Any | None:
    if term.op == NUMBER:
        return np.array(term.coefficient)
    for value in view.values.get(term, ()):
        array = constant_value(value, MAX_ELEMENTS) if value.is_constant else None
        if array is not None:
            return array.astype(np.float64)
    if term.op == "View":
        base = _array(view, term.args[0])
        return None if base is None else _walked(base, term.attributes["layout"])
    parts = [(_array(view, t), n) for t, n in term.parts]
    held = [(a, n) for a, n in parts if a is not None]
    if not parts or len(held) < len(parts):
        return None
    if term.op == SUM:
        return term.coefficient + sum((a * n for a, n in held), start=np.array(0.0))
    return term.coefficient * math.prod((a**n for a, n in held), start=np.array(1.0))


def _walked(base: Any, layout: Layout) -> Any | None:
    """The elements of `base` in the order a layout visits them."""
    if layout.base != base.shape or any(not isinstance(d, int) for d in layout.shape):
        return None
    places = np.array(sum(_offset(p, base.shape, p.start) for p in layout.fixed))
    for axis in layout.axes:
        along = np.zeros((), np.int64)
        for piece in axis:
            assert isinstance(piece.size, int) and isinstance(piece.start, int)  # as the whole shape is
            steps = np.arange(piece.size) if piece.axis != REPEAT else np.zeros(piece.size, np.int64)
            along = along[..., None] + (_offset(piece, base.shape, steps + piece.start) if piece.axis != REPEAT else steps)
        places = places[..., None] + along.reshape(-1)
    return base.reshape(-1)[places]


def _offset(piece: Piece, shape: tuple[int, ...], steps: Any) -> Any:
    """Where in a flat array a piece is after `steps` steps."""
    return steps * piece.inner * math.prod(shape[piece.axis + 1 :])
