"""Uses of Linear that its tests run."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from math import inf
from typing import Any

import numpy as np

from onnxfuse.case import Case, Refusal
from onnxfuse.op import Attribute

Shape = tuple[int, ...]
# Rows, depth, columns: empty, one, and around the vector widths, the tiles of 6 and 12 rows and 8, 16 or 32 columns, the
# 4 and 8 rows that are few, and the 256 steps after which sums are put down.
SIZES = [
    *((0, 3, 4), (2, 0, 5), (9, 0, 5), (3, 5, 0), (1, 1, 1), (1, 7, 3), (2, 17, 33), (3, 16, 64), (5, 33, 65), (8, 31, 130)),
    *((9, 8, 7), (12, 16, 32), (13, 17, 33), (16, 3, 31), (25, 40, 65), (29, 129, 66), (41, 513, 40), (7, 530, 150), (100, 12, 9)),
]
EPILOGUES: list[tuple[str, Mapping[str, Attribute]]] = [
    *(("relu", {}), ("leaky_relu", {"activation_alpha": 0.2}), ("clip", {"activation_alpha": -0.5, "activation_beta": 0.75})),
    *(("gelu", {}), ("gelu_tanh", {}), ("silu", {}), ("silu", {"activation_alpha": 1.702}), ("sigmoid", {}), ("tanh", {})),
    *(("hard_swish", {}), ("squared_relu", {}), ("none", {}), ("clip", {"activation_alpha": 0.0, "activation_beta": inf})),
    ("hard_sigmoid", {"activation_alpha": 0.2, "activation_beta": 0.5}),
]


def _values(rng: np.random.Generator, shapes: Mapping[str, Shape]) -> Mapping[str, Any]:
    """Weights of such a size that the results are about 1, as in a model."""
    return {"weight": rng.standard_normal(shapes["weight"]) / max(1, shapes["x"][-1]) ** 0.5}


def make_case(x: Shape, n: int, *given: str, **attributes: Attribute) -> Case:
    shapes = {"x": x, "weight": (n, x[-1]) if attributes.get("trans_weight") else (x[-1], n)}
    shapes |= {name: (n,) if name == "bias" else (*x[:-1], n) for name in given}
    return Case(shapes, attributes, values=_values)


CASES = [
    make_case((2, 3, 5), 4, "bias", activation="relu"),
    *(  # few bodies over all sizes: each body is tested at every opset
        make_case((m, k), n, *given, trans_weight=trans)
        for (m, k, n), trans, given in zip(SIZES, cycle((0, 1, 1, 0)), cycle([("bias", "residual"), ()]), strict=False)
    ),
    *(make_case((14, 19), 37, "bias", activation=kind, **rest) for kind, rest in EPILOGUES),
    *(make_case((2, 11, 40), 24, "bias", "residual", activation="silu", residual_last=last, alpha=0.5) for last in (0, 1)),
    *(make_case((6,), 5, "bias", "residual", trans_weight=trans) for trans in (0, 1)),
]

# The product alone, at the sizes that the runtime's is timed at.
TIMED = [*(make_case((rows, 256), 256) for rows in (1, 8, 16)), *(make_case((rows, 1024), 1024) for rows in (64, 128, 256))]

X = {"x": (2, 3), "weight": (3, 4)}
REFUSED = [
    Refusal("weight must have rank 2; got [3,4,1]", {**X, "weight": (3, 4, 1)}),
    Refusal("weight must have k = 3, the last axis of x; got [4,3]", {**X, "weight": (4, 3)}),
    Refusal("weight must have k = 3, the last axis of x; got [3,4]", X | {"weight": (3, 4)}, {"trans_weight": 1}),
    Refusal("bias must have n = 4; got [3]", {**X, "bias": (3,)}),
    Refusal("residual must have n = 4; got [2,3]", {**X, "residual": (2, 3)}),
    Refusal("residual must have ... = [2]; got [1] in [1,4]", {**X, "residual": (1, 4)}),
    Refusal("attribute 'activation' must be 'none' or 'relu'", X, {"activation": "softsign"}),
    Refusal("attribute 'trans_weight' must be from 0 to 1; got 2", X, {"trans_weight": 2}),
    Refusal("attribute 'alpha' must be finite; got nan", X, {"alpha": float("nan")}),
]
