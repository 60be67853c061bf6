"""Uses of GroupNorm that its tests run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxfuse.case import Case, Refusal, given, subsets

OPTIONAL = ["scale", "bias"]
ACTIVATIONS = ("none", "silu")
GROUPED = [((2, 6, 5), 3), ((1, 8, 4, 7), 2), ((3, 4, 3, 5, 2), 4), ((2, 6, 33), 6), ((2, 6, 31), 1), ((4, 12), 3), ((1, 2, 16, 16), 1)]
EMPTY = [((0, 4, 5), 2), ((2, 4, 0), 2), ((2, 0, 3), 1)]


def _shapes(x: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    return {"x": x, "scale": x[1:2], "bias": x[1:2]}


def _far_from_zero(rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
    return {"x": 10.0 + rng.standard_normal(shapes["x"])}


CASES = [
    Case(_shapes((2, 4, 9)), {"num_groups": 2}),
    *(
        Case(given(_shapes(x), OPTIONAL, names), {"num_groups": groups, "activation": f})
        for x, groups in GROUPED
        for names in subsets(OPTIONAL)
        for f in ACTIVATIONS
    ),
    *(Case(given(_shapes(x), OPTIONAL, names), {"num_groups": groups}) for x, groups in EMPTY for names in ((), OPTIONAL)),
    Case(_shapes((2, 6, 257)), {"num_groups": 3, "epsilon": 0.5}, values=_far_from_zero),
    Case(_shapes((4, 32, 17, 16)), {"num_groups": 8, "activation": "silu"}),
]

TIMED = [Case(_shapes((1, 128, 256)), {"num_groups": 32, "activation": f}) for f in ACTIVATIONS]

REFUSED = [
    Refusal("x must have rank 2 or more; got [4]", {"x": (4,)}),
    Refusal("x must have a multiple of num_groups = 3 channels; got [2,4,5]", {"x": (2, 4, 5)}, {"num_groups": 3}),
    Refusal("scale must have the shape [4]; got [5]", {"x": (2, 4, 5), "scale": (5,)}),
    Refusal("bias must have the shape [4]; got [4,1]", {"x": (2, 4, 5), "bias": (4, 1)}),
    Refusal("attribute 'num_groups' must be at least 1; got 0", {"x": (2, 4, 5)}, {"num_groups": 0}),
    Refusal("attribute 'epsilon' must be finite and at least 0", {"x": (2, 4, 5)}, {"epsilon": -1.0}),
    Refusal("attribute 'activation' must be 'none' or 'silu'; got 'relu'", {"x": (2, 4, 5)}, {"activation": "relu"}),
]
