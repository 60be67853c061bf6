"""Uses of RMSNorm that its tests run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxfuse.case import AWKWARD, Case, Refusal, given, subsets

OPTIONAL = ["scale"]


def _shapes(x: tuple[int, ...], axis: int = -1) -> dict[str, tuple[int, ...]]:
    return {"x": x, "scale": x[axis:]}


def _far_from_zero(rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
    return {"x": 10.0 + rng.standard_normal(shapes["x"])}


def _constant_rows(rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
    return {"x": np.broadcast_to(rng.integers(-3, 4, (*shapes["x"][:-1], 1)), shapes["x"])}


CASES = [
    Case(_shapes((2, 9))),
    *(Case(given(_shapes(shape), OPTIONAL, names)) for shape in AWKWARD for names in ((), OPTIONAL)),
    *(Case(given(_shapes((3, 5, 33), axis), OPTIONAL, names), {"axis": axis}) for axis in (-1, -2, -3) for names in subsets(OPTIONAL)),
    *(Case(_shapes(shape, -2), {"axis": -2, "epsilon": 0.5}) for shape in ((2, 0, 3), (0, 2, 3), (4, 1, 1), (17, 16))),
    Case(_shapes((3, 257)), values=_far_from_zero),
    Case(_shapes((4, 64)), {"epsilon": 1.0}, values=_constant_rows),
    Case(_shapes((300, 257))),
]

TIMED = [Case(_shapes((128, 256)))]

REFUSED = [
    Refusal("scale must have the shape [3]; got [4]", {"x": (2, 3), "scale": (4,)}),
    Refusal("scale must have the shape [2,3]; got [3]", {"x": (2, 3), "scale": (3,)}, {"axis": -2}),
    Refusal("x must have rank 3 or more, for its axis; got [2,3]", {"x": (2, 3)}, {"axis": -3}),
    Refusal("attribute 'axis' must be from -64 to -1; got 1", {"x": (2, 3)}, {"axis": 1}),
    Refusal("attribute 'axis' must be an int", {"x": (2, 3)}, {"axis": [-1]}),
    Refusal("attribute 'epsilon' must be finite and at least 0", {"x": (2, 3)}, {"epsilon": -1.0}),
    Refusal("attribute 'epsilon' must be finite and at least 0", {"x": (2, 3)}, {"epsilon": float("nan")}),
]
