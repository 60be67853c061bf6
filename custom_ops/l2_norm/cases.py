"""Uses of L2Norm that its tests run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxfuse.case import AWKWARD, Case, Refusal, given, subsets

OPTIONAL = ["scale"]
ELSEWHERE = [((2, 5, 3, 4), -3), ((1, 7, 64), -2), ((2, 3, 65), -2), ((2, 67, 33), -2), ((1, 129, 15), -2), ((5, 3), -2), ((2, 4, 0), -2)]


def _shapes(x: tuple[int, ...], axis: int) -> dict[str, tuple[int, ...]]:
    return {"x": x, "scale": (x[axis],)}


def _zero_rows(rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
    x = rng.standard_normal(shapes["x"])
    x[0] = 0.0
    return {"x": x}


CASES = [
    Case(_shapes((2, 9), -1)),
    *(Case(given(_shapes(shape, -1), OPTIONAL, names)) for shape in AWKWARD for names in subsets(OPTIONAL)),
    *(Case(given(_shapes(x, axis), OPTIONAL, names), {"axis": axis}) for x, axis in ELSEWHERE for names in subsets(OPTIONAL)),
    *(Case({"x": (3, 4, 5)}, {"axis": axis, "epsilon": 0.25}, values=_zero_rows) for axis in (-1, -2)),
    *(Case({"x": (3, 4, 5)}, {"axis": axis, "epsilon": 0.0}, values=_zero_rows) for axis in (-1, -2)),
    Case(_shapes((300, 257), -1)),
]

TIMED = [Case(_shapes((128, 256), -1))]

REFUSED = [
    Refusal("scale must have the shape [3]; got [4]", {"x": (2, 3), "scale": (4,)}),
    Refusal("x must have rank 3 or more, for its axis; got [2,3]", {"x": (2, 3)}, {"axis": -3}),
    Refusal("attribute 'axis' must be from -64 to -1; got 1", {"x": (2, 3)}, {"axis": 1}),
    Refusal("attribute 'epsilon' must be finite and at least 0", {"x": (2, 3)}, {"epsilon": -1.0}),
]
