"""Uses of HardSwish that its tests run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxfuse.case import AWKWARD, Case, Refusal


def _far(rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
    """Where the exponential over- or underflows, or the curve has become a line."""
    special = [0.0, -0.0, 3.0, -3.0, 19.5, 20.5, 88.0, 100.0, 200.0, -19.5, -88.0, -100.0, -200.0, np.inf, np.nan]
    return {"x": np.resize(special, shapes["x"])}


CASES = [
    Case({"x": (2, 9)}),
    *(Case({"x": shape}) for shape in AWKWARD),
    *(Case({"x": shape, "bias": shape[-1:]}) for shape in AWKWARD),
    Case({"x": (64, 1031), "bias": (1031,)}),
    Case({"x": (3, 35)}, values=_far),
]

TIMED = [Case({"x": (128, 256)})]

REFUSED = [
    Refusal("bias must have n = [3]; got [4]", {"x": (2, 3), "bias": (4,)}),
    Refusal("bias must have rank 1; got [1,3]", {"x": (2, 3), "bias": (1, 3)}),
    Refusal("x must have rank 1 or more; got []", {"x": ()}),
]
