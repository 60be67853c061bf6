"""Uses of ScaledTanh that its tests run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxfuse.case import AWKWARD, Case, Refusal


def _far(rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
    """Where the curve has become flat."""
    special = [0.0, -0.0, 3.0, -3.0, 19.5, 20.5, 88.0, 100.0, 200.0, -19.5, -88.0, -100.0, -200.0, np.inf, np.nan]
    return {"x": np.resize(special, shapes["x"])}


CURVES = ({"alpha": 30.0, "beta": 1 / 30}, {"alpha": -0.5, "beta": 3.0})

CASES = [
    Case({"x": (2, 9)}),
    *(Case({"x": shape}, curve) for shape in AWKWARD for curve in CURVES),
    *(Case({"x": shape, "bias": shape[-1:]}, curve) for shape in AWKWARD for curve in CURVES),
    Case({"x": (64, 1031), "bias": (1031,)}, {"alpha": 50.0, "beta": 0.02}),
    Case({"x": (3, 35)}, {"alpha": 2.0}, values=_far),
]

TIMED = [Case({"x": (128, 256)})]

REFUSED = [
    Refusal("attribute 'alpha' must be a float", {"x": (2, 3)}, {"alpha": 2}),
    Refusal("attribute 'beta' must be finite; got inf", {"x": (2, 3)}, {"beta": float("inf")}),
    Refusal("bias must have n = [3]; got [4]", {"x": (2, 3), "bias": (4,)}),
    Refusal("bias must have rank 1; got [1,3]", {"x": (2, 3), "bias": (1, 3)}),
    Refusal("x must have rank 1 or more; got []", {"x": ()}),
]
