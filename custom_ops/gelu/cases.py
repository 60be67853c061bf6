"""Uses of Gelu that its tests run."""

from __future__ import annotations

from onnxfuse.case import Case, Refusal

SHAPES: list[tuple[int, ...]] = [(0,), (1,), (7,), (16,), (3, 0), (0, 5), (1, 1), (5, 15), (2, 3, 16), (2, 17), (3, 31), (2, 2, 33), (13, 127), (64, 1024), (9001,)]

CASES = [
    Case({"x": shape, "bias": shape[-1:]} if has_bias else {"x": shape}, {"approximate": approximate})
    for shape in SHAPES
    for has_bias in (False, True)
    for approximate in ("none", "tanh")
]

REFUSED = [
    Refusal("attribute 'approximate' must be 'none' or 'tanh'; got 'sigmoid'", {"x": (2, 3)}, {"approximate": "sigmoid"}),
    Refusal("attribute 'approximate' must be a string", {"x": (2, 3)}, {"approximate": 1}),
    Refusal("bias must have n = [3]; got [4]", {"x": (2, 3), "bias": (4,)}),
    Refusal("bias must have rank 1; got [1,3]", {"x": (2, 3), "bias": (1, 3)}),
    Refusal("x must have rank 1 or more; got []", {"x": ()}),
]
