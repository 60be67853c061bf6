"""Uses of MaskedSoftmax that its tests run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxfuse.case import AWKWARD, Case, Refusal

Shapes = Mapping[str, tuple[int, ...]]
ROWS = [shape for shape in AWKWARD if shape[-1]]  # no standard operator says what a softmax of nothing is
MASKS = [(2, 3, 5, 7), (2, 1, 1, 7), (5, 7), (3, 1, 1), (1, 1, 5, 1), (2, 3, 5, 1), (7,), (1,), ()]
ADDED = ("float", "float16", "bfloat16")


def _some_seen(rng: np.random.Generator, shapes: Shapes) -> Mapping[str, Any]:
    """Coins, but every row sees something."""
    mask = rng.random(shapes["mask"]) < 0.5
    if mask.ndim:
        mask[..., 0] = True
    return {"mask": mask if mask.ndim else np.True_}


def _lowest(rng: np.random.Generator, shapes: Shapes) -> Mapping[str, Any]:
    return {"mask": np.where(rng.random(shapes["mask"]) < 0.5, 0.0, -1e30)}


def _nothing_seen(rng: np.random.Generator, shapes: Shapes) -> Mapping[str, Any]:
    """The first row sees nothing."""
    mask = np.ones(shapes["mask"], bool)
    mask[0] = False
    return {"mask": mask}


def _far(rng: np.random.Generator, shapes: Shapes) -> Mapping[str, Any]:
    return {"x": 30000.0 + rng.standard_normal(shapes["x"])}


def _broken(rng: np.random.Generator, shapes: Shapes) -> Mapping[str, Any]:
    x = rng.standard_normal(shapes["x"])
    x[0, 1], x[1, 2], x[2, :] = np.nan, np.inf, -np.inf
    return {"x": x}


CASES = [
    Case({"x": (2, 9)}),
    *(Case({"x": shape}) for shape in ROWS),
    *(Case({"x": shape, "mask": shape}, {"scale": 0.125}, {"M": "float"}) for shape in ROWS),
    *(Case({"x": (2, 3, 5, 7), "mask": mask}, {"scale": 0.5}, {"M": kind}) for mask in MASKS for kind in ADDED),
    *(Case({"x": (2, 3, 5, 7), "mask": mask}, {}, {"M": "bool"}, values=_some_seen) for mask in MASKS),
    *(Case({"x": (2, 3, 5, 7), "mask": mask}, {"mask_value": -100.0}, {"M": "bool"}, values=_some_seen) for mask in MASKS),
    *(Case({"x": (4, 33), "mask": (4, 33)}, {"zero_masked_rows": zero}, {"M": "bool"}, values=_nothing_seen) for zero in (0, 1)),
    Case({"x": (2, 4, 65), "mask": (2, 1, 65)}, {}, {"M": "float"}, values=_lowest),
    Case({"x": (3, 70)}, {"scale": -2.0}),
    Case({"x": (3, 4100)}, values=_far),
    *(Case({"x": (4, 40)}, {"zero_masked_rows": zero}, values=_broken) for zero in (0, 1)),
    Case({"x": (40, 257), "mask": (40, 257)}, {"scale": 0.125}, {"M": "bool"}, values=_some_seen),
]

TIMED = [Case({"x": (1, 2, 128, 128), "mask": (1, 1, 1, 128)}, {}, {"M": "float"})]

REFUSED = [
    Refusal("mask must broadcast to x [2,3]; got [2]", {"x": (2, 3), "mask": (2,)}, types={"M": "float"}),
    Refusal("mask must broadcast to x [2,3]; got [1,2,3]", {"x": (2, 3), "mask": (1, 2, 3)}, types={"M": "bool"}),
    Refusal("mask must broadcast to x [1,3]; got [2,3]", {"x": (1, 3), "mask": (2, 3)}, types={"M": "bool"}),
    Refusal("x must have rank 1 or more; got []", {"x": ()}),
    Refusal("attribute 'scale' must be finite; got nan", {"x": (2, 3)}, {"scale": float("nan")}),
    Refusal("mask_value must be finite or -inf; got inf", {"x": (2, 3)}, {"mask_value": float("inf")}),
    Refusal("attribute 'zero_masked_rows' must be from 0 to 1; got 2", {"x": (2, 3)}, {"zero_masked_rows": 2}),
]
