"""Uses of ChannelLayerNorm that its tests run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxfuse.case import Case, Refusal, given, subsets

OPTIONAL = ["scale", "bias"]
# places below, at and above one vector and several, channels below and above a block of the sum
USES = [
    ((2, 5, 3, 4), -3),
    ((1, 7, 64), -2),
    ((2, 3, 65), -2),
    ((130, 1, 7), -3),
    ((2, 67, 33), -2),
    ((1, 129, 15), -2),
    ((1, 2, 3, 17), -4),
]
EMPTY = [((0, 4, 5), -2), ((2, 4, 0), -2), ((1, 1), -2)]


def _shapes(x: tuple[int, ...], axis: int) -> dict[str, tuple[int, ...]]:
    return {"x": x, "scale": (x[axis],), "bias": (x[axis],)}


def _far_from_zero(rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
    return {"x": 10.0 + rng.standard_normal(shapes["x"])}


CASES = [
    Case(_shapes((2, 4, 3, 3), -3)),
    *(Case(given(_shapes(x, axis), OPTIONAL, names), {"axis": axis}) for x, axis in USES for names in subsets(OPTIONAL)),
    *(Case(given(_shapes(x, axis), OPTIONAL, names), {"axis": axis}) for x, axis in EMPTY for names in ((), OPTIONAL)),
    Case(_shapes((2, 7, 6), -2), {"axis": -2, "epsilon": 0.5}, values=_far_from_zero),
    Case(_shapes((2, 96, 14, 15), -3)),
]

TIMED = [Case(_shapes((1, 128, 256), -2), {"axis": -2})]

REFUSED = [
    Refusal("scale must have the shape [4]; got [5]", {"x": (2, 4, 5), "scale": (5,)}, {"axis": -2}),
    Refusal("bias must have the shape [4]; got [4,1]", {"x": (2, 4, 5), "bias": (4, 1)}, {"axis": -2}),
    Refusal("x must have rank 3 or more, for its axis; got [2,3]", {"x": (2, 3)}, {"axis": -3}),
    Refusal("attribute 'axis' must be from -64 to -2; got -1", {"x": (2, 4, 5)}, {"axis": -1}),
    Refusal("attribute 'epsilon' must be finite and at least 0", {"x": (2, 4, 5)}, {"axis": -2, "epsilon": float("nan")}),
]
