"""Uses of GatedLinear that its tests run."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np

from onnxfuse.case import Case, Refusal
from onnxfuse.op import Attribute

Shape = tuple[int, ...]
# Rows, depth, columns of y: empty, one, and around the vector widths and the blocks of 4 rows; more rows than go in turn.
SIZES = [
    *((0, 3, 4), (2, 0, 5), (3, 5, 0), (1, 1, 1), (1, 7, 3), (2, 17, 33), (3, 16, 64), (5, 33, 15)),
    *((4, 8, 7), (8, 16, 32), (13, 17, 33), (9, 129, 66), (7, 530, 20), (70, 12, 9), (600, 6, 60), (100, 40, 50), (260, 4, 8200)),
]
ACTIVATIONS: list[Mapping[str, Attribute]] = [
    *({"activation": name} for name in ("silu", "gelu", "gelu_tanh", "sigmoid", "relu")),
    {"activation_alpha": 1.702},
]


def _values(rng: np.random.Generator, shapes: Mapping[str, Shape]) -> Mapping[str, Any]:
    """Weights of such a size that the products are about 1, as in a model."""
    return {"weight": rng.standard_normal(shapes["weight"]) / max(1, shapes["x"][-1]) ** 0.5}


def make_case(x: Shape, n: int, *, bias: bool = False, **attributes: Attribute) -> Case:
    """y of n columns."""
    shapes = {"x": x, "weight": (2 * n, x[-1]) if attributes.get("trans_weight") else (x[-1], 2 * n)}
    return Case(shapes | ({"bias": (2 * n,)} if bias else {}), attributes, values=_values)


CASES = [
    make_case((2, 3, 5), 4, bias=True),
    *(  # few bodies over all sizes: each body is tested at every opset
        make_case((m, k), n, bias=bool(trans), trans_weight=trans, gate_first=1 - trans)
        for (m, k, n), trans in zip(SIZES, cycle((0, 1, 1, 0)), strict=False)
    ),
    *(make_case((6, 19), 37, bias=True, **given) for given in ACTIVATIONS),
    *(make_case((5, 20), 9, trans_weight=trans, gate_first=first) for trans in (0, 1) for first in (0, 1)),
    make_case((6,), 5, bias=True),
]

TIMED = [make_case((rows, 256), 128) for rows in (1, 16, 256)]

X = {"x": (2, 3), "weight": (3, 4)}
REFUSED = [
    Refusal("weight must have rank 2; got [3,4,1]", {**X, "weight": (3, 4, 1)}),
    Refusal("weight must have k = 3, the last axis of x; got [4,4]", {**X, "weight": (4, 4)}),
    Refusal("weight must have k = 3, the last axis of x; got [3,4]", X, {"trans_weight": 1}),
    Refusal("weight must have an even number of columns; got [3,5]", {**X, "weight": (3, 5)}),
    Refusal("bias must have 2n = 4; got [2]", {**X, "bias": (2,)}),
    Refusal("attribute 'activation' must be 'silu' or 'gelu'", X, {"activation": "tanh"}),
    Refusal("attribute 'gate_first' must be from 0 to 1; got 2", X, {"gate_first": 2}),
    Refusal("attribute 'activation_alpha' must be finite; got nan", X, {"activation_alpha": float("nan")}),
]
