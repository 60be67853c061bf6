"""Layouts: a run of layout operators and the layout it amounts to reach the same elements of an array."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from onnxfuse.layout import REPEAT, Layout, Piece, compose, cut, expand, identity, reshape, transpose, without_axes
from onnxfuse.symbolic import symbol

Array = np.ndarray[Any, Any]
SETTINGS = settings(max_examples=300, deadline=None, derandomize=True)


def seen(layout: Layout, base: Array) -> Array:
    """The view of `base` that a layout with sizes in numbers says."""
    walks = [list(itertools.product(*[range(p.size) for p in axis])) for axis in layout.axes]
    out = np.zeros([len(w) for w in walks], base.dtype)
    for place in np.ndindex(*out.shape):
        at = [0] * base.ndim
        for piece in layout.fixed:
            at[piece.axis] += piece.start * piece.inner
        for axis, walk, i in zip(layout.axes, walks, place, strict=True):
            for piece, step in zip(axis, walk[i], strict=True):
                if piece.axis != REPEAT:
                    at[piece.axis] += (piece.start + step) * piece.inner
        out[place] = base[tuple(at)]
    return out


def factored(draw: Any, size: int) -> list[int]:
    """Sizes with this product, 1s among them."""
    shape: list[int] = []
    while size > 1:
        part = draw(st.sampled_from([d for d in range(2, size + 1) if size % d == 0]))
        shape.append(part)
        size //= part
    for _ in range(draw(st.integers(0, 1 if shape else 2))):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    return shape


@st.composite
def runs(draw: Any) -> tuple[Array, list[tuple[Layout | None, Array]]]:
    """A base array, and after each step of a run the layout and what numpy gives."""
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
    base = np.arange(math.prod(shape)).reshape(shape)
    layout, array, steps = identity(shape), base, []
    for _ in range(draw(st.integers(1, 6))):
        changed, array = step(draw, layout, array)
        steps.append((changed, array))
        if changed is None or array.size > 300:
            break
        layout = changed
    return base, steps


def step(draw: Any, layout: Layout, array: Array) -> tuple[Layout | None, Array]:
    kind = draw(st.sampled_from(["reshape", "transpose", "expand", "cut", "pick"]))
    if kind == "reshape":
        shape = factored(draw, array.size)
        return reshape(layout, shape), array.reshape(shape)
    if kind == "transpose":
        order = draw(st.permutations(range(array.ndim)))
        return transpose(layout, order), array.transpose(order)
    if kind == "expand":
        shape = [
            *draw(st.lists(st.sampled_from([1, 2]), max_size=1)),
            *(draw(st.sampled_from([d, 3])) if d == 1 else d for d in array.shape),
        ]
        return expand(layout, shape), np.broadcast_to(array, shape)
    if not array.ndim:
        return layout, array
    axis = draw(st.integers(0, array.ndim - 1))
    start = draw(st.integers(0, array.shape[axis] - 1))
    size = 1 if kind == "pick" else draw(st.integers(1, array.shape[axis] - start))
    taken = cut(layout, axis, start, size)
    part = array.take(range(start, start + size), axis)
    if kind == "cut" or taken is None:
        return taken, part
    rest = (*part.shape[:axis], *part.shape[axis + 1 :])
    return reshape(taken, rest), part.reshape(rest)


@seed(1)
@SETTINGS
@given(runs())
def test_a_run_reaches_the_elements_that_its_layout_says(run: tuple[Array, list[tuple[Layout | None, Array]]]) -> None:
    base, steps = run
    for layout, array in steps:
        if layout is not None:
            assert layout.shape == array.shape
            np.testing.assert_array_equal(seen(layout, base), array)


@seed(2)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(runs(), min_size=6, max_size=6))
def test_runs_that_reach_the_same_elements_have_the_same_layout(several: list[tuple[Array, list[tuple[Layout | None, Array]]]]) -> None:
    """And runs that do not have another one."""
    found: dict[tuple[Any, ...], set[Layout]] = defaultdict(set)
    for base, steps in several:
        for layout, array in steps:
            if layout is not None:
                found[base.shape, array.shape, array.tobytes()].add(layout)
    assert [layouts for layouts in found.values() if len(layouts) > 1] == []
    assert len({layout for layouts in found.values() for layout in layouts}) == len(found)


@seed(3)
@SETTINGS
@given(runs(), st.data())
def test_compose_is_one_view_after_the_other(run: tuple[Array, list[tuple[Layout | None, Array]]], data: Any) -> None:
    base, steps = run
    inner, array = next(((lay, a) for lay, a in reversed(steps) if lay is not None), (identity(base.shape), base))
    outer, wanted = identity(array.shape), array
    for _ in range(3):
        changed, moved = step(data.draw, outer, wanted)
        if changed is None or moved.size > 300:
            break
        outer, wanted = changed, moved
    composed = compose(outer, inner)
    if composed is not None:
        np.testing.assert_array_equal(seen(composed, base), wanted)


@seed(4)
@SETTINGS
@given(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4), st.data())
def test_without_axes_regroups_what_lacks_them(shape: list[int], data: Any) -> None:
    """The view of something broadcast, where it is seen before it is broadcast."""
    layout = identity(shape)
    for _ in range(3):
        changed, moved = step(data.draw, layout, np.zeros(layout.shape))
        if changed is None or moved.size > 300:
            break
        layout = changed
    small = [data.draw(st.sampled_from([1, d])) for d in shape][data.draw(st.integers(0, len(shape) - 1)) :]
    part = np.arange(math.prod(small)).reshape(small)
    found = without_axes(layout, small)
    if found is not None:
        np.testing.assert_array_equal(np.broadcast_to(seen(found, part), layout.shape), seen(layout, np.broadcast_to(part, shape)))


def test_head_split_is_one_layout_however_it_is_spelled() -> None:
    """[b, s, h*d] to [b, h, s, d]: through four axes, or through merged batches and heads."""
    b, s = symbol("b"), symbol("s")
    base = identity((b, s, 24))
    four = transpose(reshape(base, (b, s, 4, 6)), (0, 2, 1, 3))  # type: ignore[arg-type]
    merged = reshape(transpose(reshape(base, (b, s, 4, 6)), (0, 2, 1, 3)), (4 * b, s, 6))  # type: ignore[arg-type]
    assert merged is not None
    assert reshape(merged, (b, 4, s, 6)) == four
    assert four.axes == ((Piece(0, 1, b),), (Piece(2, 6, 4),), (Piece(1, 1, s),), (Piece(2, 1, 6),))


def test_splitting_the_wrong_axis_is_another_layout() -> None:
    base = identity((2, 24))
    assert transpose(reshape(base, (2, 4, 6)), (0, 2, 1)) != reshape(base, (2, 6, 4))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "wanted"), [((symbol("a"), 6), (6, symbol("a"))), ((symbol("a"), symbol("b")), (symbol("c"),)), ((6,), (4,))]
)
def test_reshape_that_cannot_be_shown_to_line_up_is_no_layout(shape: Any, wanted: Any) -> None:
    assert reshape(identity(shape), wanted) is None


def test_cut_of_a_merged_axis_is_no_layout() -> None:
    merged = reshape(transpose(identity((2, 3)), (1, 0)), (6,))
    assert merged is not None and cut(merged, 0, 0, 2) is None
