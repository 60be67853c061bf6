"""Arrays for a model's inputs, by what each is for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from onnxfuse.inputs.roles import Bound, Kind, Role
from onnxfuse.inputs.sizes import Sizes, evaluate

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Regime:
    """What kind of numbers a feed has.

    scale: of normal floats; by_row: each row has its own power of ten instead, down to `scale`; vectors are left alone.
    masks: `ones` (nothing masked), `holes` (the first always kept), `any` (at least one kept), `dead` (whole rows masked).
    filler: what an additive mask holds where it masks; -inf, or a finite number that the type's range clips.
    flip: masks inverted and floats made positive, for models that take the other to be NaN.
    """

    name: str
    scale: float = 1.0
    by_row: bool = False
    constant_rows: bool = False
    masks: str = "holes"
    filler: float = -math.inf
    override: bool = False
    flip: bool = False


def make(role: Role, dtype: int, shape: Shape, sizes: Sizes, regime: Regime, rng: np.random.Generator, like: Shape | None = None) -> Array:
    """One array. `like`: for a SIZE, the shape that the model builds with it."""
    makers: dict[Kind, Callable[[], Array]] = {
        Kind.FLOAT: lambda: _floats(shape, regime, rng),
        Kind.INTEGER: lambda: rng.integers(0, 100, shape),
        Kind.INDEX: lambda: _indices(role, shape, sizes, regime, rng),
        Kind.POSITION: lambda: _positions(role, shape, sizes),
        Kind.KEEP: lambda: _keep(shape, regime, rng) ^ regime.flip,
        Kind.DROP: lambda: ~_keep(shape, regime, rng) ^ regime.flip,
        Kind.ADDITIVE: lambda: _additive(shape, dtype, regime, rng),
        Kind.SIZE: lambda: _sizes(shape, like, rng),
        Kind.AXIS: lambda: np.full(shape, -1),
        Kind.BOOL: lambda: rng.random(shape) < 0.5,
        Kind.STRING: lambda: rng.choice(np.array(["", "a", "bc", "Ünicode"], object), shape),
    }
    return np.asarray(makers[role.kind]()).astype(helper.tensor_dtype_to_np_dtype(dtype))


def other_value(default: Array) -> Array:
    """A value near a default and of its sign, for an input that the caller may override."""
    if default.dtype == np.bool_:
        return ~default
    if default.dtype.kind in "iuOSU":
        return default  # an integer with a default is a size or an axis: no other value need be valid
    changed = np.where(default == 0, 0.5, default.astype(np.float64) * 1.25)
    return changed.astype(default.dtype)


def _floats(shape: Shape, regime: Regime, rng: np.random.Generator) -> Array:
    values = rng.standard_normal(shape)
    if regime.constant_rows and values.ndim:
        # of numbers whose sums are exact: else rounding is all that a norm of a constant row has to show
        values = np.broadcast_to(np.round(values[..., :1] * 4) / 4, shape).copy()
    if not regime.by_row:
        values = values * regime.scale
    elif values.ndim > 1:
        values = values * 10.0 ** rng.uniform(math.log10(regime.scale), 0, (*shape[:-1], 1))
    return np.abs(values) if regime.flip else values


def _indices(role: Role, shape: Shape, sizes: Sizes, regime: Regime, rng: np.random.Generator) -> Array:
    low, high = _range(role.bounds, sizes)
    values = np.atleast_1d(rng.integers(low, high, shape))
    usable = [t for t in role.tokens if low <= t < high]
    if usable and regime.masks == "any" and values.shape[-1] > 2:
        values[..., -1] = usable[0]  # such as padding, or the end of a text
    return values.reshape(shape)


def _positions(role: Role, shape: Shape, sizes: Sizes) -> Array:
    low, high = _range(role.bounds, sizes)
    length = shape[-1] if shape else 1
    past = next((s for n, s in sizes.items() if "past" in n.lower()), 0)
    start = max(low, min(past, high - length)) if role.bounds else past
    row = np.minimum(start + np.arange(length), max(high - 1, low)) if role.bounds else start + np.arange(length)
    return np.broadcast_to(row if shape else row[0], shape)


def _range(bounds: tuple[Bound, ...], sizes: Sizes) -> tuple[int, int]:
    """The integers [low, high) that every table takes; never empty."""
    low, high = 0.0, math.inf
    for bound in bounds:
        rows = evaluate(bound.rows, sizes)
        ends = [(0 - bound.offset) / bound.scale, ((2 if rows is None else rows) - 1 - bound.offset) / bound.scale]
        low, high = max(low, min(ends)), min(high, max(ends))
    if high == math.inf:
        high = 99
    start = math.ceil(low)
    return start, max(start, math.floor(high)) + 1


def _keep(shape: Shape, regime: Regime, rng: np.random.Generator) -> Array:
    """True where a value counts; the last axis is a row."""
    if regime.masks == "ones" or not shape or 0 in shape:
        return np.ones(shape, np.bool_)
    keep = rng.random(shape) > 0.35
    if regime.masks == "holes":
        keep[..., 0] = True
    if shape[-1] > 2:
        keep[..., 1] = False
    lonely = ~keep.any(-1)
    keep[..., -1] |= lonely
    if regime.masks == "dead":
        rows = keep.reshape(-1, shape[-1])
        rows[:: max(2, len(rows) // 3)] = False
    return keep


def _additive(shape: Shape, dtype: int, regime: Regime, rng: np.random.Generator) -> Array:
    """Scores to add: small ones, and the filler where masked."""
    limit = LARGEST.get(dtype, 3.4028234663852886e38)
    filler = max(regime.filler, -limit) if math.isfinite(regime.filler) else regime.filler
    return np.where(_keep(shape, regime, rng), rng.standard_normal(shape), filler)


LARGEST: dict[int, float] = {
    TensorProto.FLOAT16: 65504.0,
    TensorProto.BFLOAT16: 3.3895313892515355e38,
    TensorProto.DOUBLE: 1.7976931348623157e308,
}


def _sizes(shape: Shape, like: Shape | None, rng: np.random.Generator) -> Array:
    if like is not None and shape == (len(like),):
        return np.array(like, np.int64)
    return np.asarray(rng.integers(1, 4, shape)) if not shape else np.ones(shape, np.int64)


def like_shape(role: Role, shapes: Mapping[str, tuple[int | str | None, ...]], sizes: Sizes) -> Shape | None:
    """The numbers of the shape that a SIZE input spells; None where one of them is unknown."""
    if role.like is None or role.like not in shapes:
        return None
    numbers = [evaluate(dim, sizes) for dim in shapes[role.like]]
    return None if any(n is None for n in numbers) else tuple(n for n in numbers if n is not None)
