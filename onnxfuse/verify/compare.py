"""Are two results the same but for rounding?

A float `got` is right where |got - want| <= atol + rtol * max(|want|, scale). The scale of a tensor is the median of
its finite magnitudes that are neither 0 nor fillers (1e4 and more, as masks put them): rounding goes with the size of
the numbers that were summed, not with what happened to be left of them. NaN must be where NaN was and only there, and
infinities must be the same. Integers, bools and strings are exact; shapes and types too.

The unit of rounding is u (2^-24 for float32). A whole model may use up 2^14 u (1e-3 for float32), a single rewrite
2^11 u (1.2e-4): enough for a sum of thousands in another order, too little for tanh in place of erf (5e-4), for an
epsilon of another power of ten, or for a dropped rounding to half. Half types are given 2^6 u and 2^5 u.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

FILLER = 1e4  # magnitudes from here on are masks or overflow; they do not tell the scale of a tensor
UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Budget:
    """How far a float may be off: atol + rtol * max(|want|, scale)."""

    rtol: float
    atol: float


MODEL_BUDGETS = {
    "float64": Budget(2.0**-26, 1e-12),
    "float32": Budget(2.0**-10, 1e-6),
    "float16": Budget(2.0**-5, 2e-3),
    "bfloat16": Budget(2.0**-2, 1.6e-2),
}
REWRITE_BUDGETS = {
    "float64": Budget(2.0**-30, 1e-13),
    "float32": Budget(2.0**-13, 1e-6),
    "float16": Budget(2.0**-6, 1e-3),
    "bfloat16": Budget(2.0**-3, 8e-3),
}
COARSE = Budget(0.5, 0.25)  # 8 bits and fewer: the neighbouring value


@dataclass(frozen=True)
class Difference:
    """Where a result is not what it was. `feed` says which inputs showed it; index and numbers are of the worst element."""

    reason: str
    output: str = ""
    index: tuple[int, ...] | None = None
    got: float | None = None
    want: float | None = None
    allowed: float | None = None
    feed: str = ""

    def __str__(self) -> str:
        text = f"output '{self.output}': {self.reason}" if self.output else self.reason
        if self.index is not None and self.got is not None and self.want is not None:
            text += f" at {list(self.index)}: {self.got:.9g} instead of {self.want:.9g}"
            if self.allowed is not None:
                text += f", off by {abs(self.got - self.want):.3g}, allowed {self.allowed:.3g}"
        return f"{text} (inputs: {self.feed})" if self.feed else text


def compare(got: Any, want: Any, *, rtol: float, atol: float) -> Difference | None:
    """Return the first or worst difference, or None. Takes arrays, and lists and dicts of them."""
    return difference(got, want, Budget(rtol, atol))


def difference(
    got: Any, want: Any, budget: Budget | Mapping[str, Budget], extra: float | Array = 0.0, other: Any = None
) -> Difference | None:
    """`compare` with a budget, or one by the name of the type.

    extra: added to what is allowed. other: a second array to agree with; each element must be near either.
    """
    if isinstance(want, Mapping) or isinstance(want, Sequence) and not isinstance(want, str):
        return _containers(got, want, budget)
    if want is None or got is None:
        return None if got is want else Difference(f"{_kind(got)} instead of {_kind(want)}")
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return Difference(f"shape {list(got.shape)} instead of {list(want.shape)}")
    if got.dtype != want.dtype:
        return Difference(f"type {got.dtype} instead of {want.dtype}")
    if not is_float(want.dtype):
        return _exact(got, want)
    return _floats(got, want, budget if isinstance(budget, Budget) else budget.get(want.dtype.name, COARSE), extra, other)


def largest_error(got: Any, want: Any) -> float:
    """The largest absolute error over elements that are finite in both; 0 if there is none."""
    if want is None or isinstance(want, Mapping | Sequence):
        return 0.0
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or got.dtype.kind in "OSU" or want.dtype.kind in "OSU" or not want.size:
        return 0.0
    a, b = _wide(got), _wide(want)
    both = np.isfinite(a) & np.isfinite(b)
    return float(np.abs(a[both] - b[both]).max(initial=0.0))


def scale_of(want: Array) -> float:
    """The median magnitude of what is finite, not 0 and no filler; 0 if nothing is."""
    magnitudes = np.abs(_wide(want))
    usual = magnitudes[(magnitudes > 0) & (magnitudes < FILLER)]
    return float(np.median(usual)) if usual.size else 0.0


def finite_share(outputs: Sequence[Any]) -> float:
    """The share of finite elements in the float output that has the fewest; 1 if there is no float output."""
    floats = [_wide(o) for o in outputs if isinstance(o, np.ndarray) and is_float(o.dtype) and o.size]
    return min((float(np.isfinite(o).mean()) for o in floats), default=1.0)


def is_float(dtype: Any) -> bool:
    """Whether a type rounds: numpy's floats and complex numbers, and ml_dtypes' small floats."""
    return dtype.kind in "fc" or (dtype.kind == "V" and dtype.name.startswith(("bfloat", "float")))


def located(found: Difference | None, output: str, feed: str) -> Difference | None:
    """The same difference with the place filled in."""
    return None if found is None else replace(found, output=output, feed=feed)


def _containers(got: Any, want: Any, budget: Budget | Mapping[str, Budget]) -> Difference | None:
    if type(got) is not type(want) or len(got) != len(want):
        return Difference(f"{_kind(got)} instead of {_kind(want)}")
    if isinstance(want, Mapping):
        if list(got) != list(want):
            return Difference(f"keys {list(got)[:8]} instead of {list(want)[:8]}")
        pairs = [(key, got[key], want[key]) for key in want]
    else:
        pairs = [(k, g, w) for k, (g, w) in enumerate(zip(got, want, strict=True))]
    for key, g, w in pairs:
        found = difference(g, w, budget)
        if found is not None:
            return replace(found, reason=f"item {key}: {found.reason}")
    return None


def _exact(got: Array, want: Array) -> Difference | None:
    wrong = np.asarray(got != want)
    if not wrong.any():
        return None
    index = _first(wrong)
    if want.dtype.kind in "OSU":
        return Difference(f"text differs at {list(index)}: {got[index]!r} instead of {want[index]!r}")
    reason = f"{int(wrong.sum())} of {wrong.size} {want.dtype} values differ, first"
    return Difference(reason, index=index, got=float(got[index]), want=float(want[index]))


def _floats(got: Array, want: Array, budget: Budget, extra: float | Array, other: Any) -> Difference | None:
    a, b = _wide(got), _wide(want)
    allowed = _allowed(b, budget, extra)
    wrong = _wrong(a, b, allowed)
    if other is not None and wrong.any():
        c = _wide(np.asarray(other))
        wrong &= _wrong(a, c, _allowed(c, budget, extra))
    if not wrong.any():
        return None
    off = np.isnan(a) != np.isnan(b)
    if (wrong & off).any():
        index = _first(wrong & off)
        reason = f"NaN in other places ({int(np.isnan(a).sum())} instead of {int(np.isnan(b).sum())} of {a.size}), first"
        return Difference(reason, index=index, got=float(a[index]), want=float(b[index]))
    with np.errstate(invalid="ignore", over="ignore"):
        excess = np.where(wrong, np.nan_to_num(np.abs(a - b) - allowed, nan=np.inf), -np.inf)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(excess)), a.shape))
    reason = f"{int(wrong.sum())} of {a.size} values differ, worst"
    return Difference(reason, index=index, got=float(a[index]), want=float(b[index]), allowed=float(allowed[index]))


def _allowed(want: Array, budget: Budget, extra: float | Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.asarray(extra + budget.atol + budget.rtol * np.maximum(np.abs(want), scale_of(want)))


def _wrong(got: Array, want: Array, allowed: Array) -> Array:
    """True where an element is neither the same (NaN and infinities included) nor finite and near."""
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.isfinite(got) & np.isfinite(want) & (np.abs(got - want) <= allowed)
    return np.asarray(~(same | near))


def _wide(array: Array) -> Array:
    """As float64; a complex number as two."""
    if array.dtype.kind == "c":
        return np.ascontiguousarray(array).view(array.real.dtype).astype(np.float64)
    return array.astype(np.float64)


def _first(wrong: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} array of shape {list(value.shape)}"
    return f"{type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else "nothing" if value is None else type(value).__name__
