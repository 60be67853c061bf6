"""Uses of Gelu that its tests run."""

from __future__ import annotations

from onnx import helper

from onnxfuse.case import AWKWARD, Case, Refusal

CASES = [
    Case({"x": (2, 9)}),
    *(Case({"x": shape}, {"approximate": how}) for shape in AWKWARD for how in ("none", "tanh")),
    *(Case({"x": shape, "bias": shape[-1:]}, {"approximate": how}) for shape in AWKWARD for how in ("none", "tanh")),
    Case({"x": (64, 1031), "bias": (1031,)}),
]

TIMED = [Case({"x": (1, 16)}), Case({"x": (128, 256)}), Case({"x": (128, 256), "bias": (256,)})]

REFUSED = [
    Refusal("attribute 'approximate' must be 'none' or 'tanh'; got 'sigmoid'", {"x": (2, 3)}, {"approximate": "sigmoid"}),
    Refusal("attribute 'approximate' must be a string", {"x": (2, 3)}, {"approximate": 1}),
    *(
        Refusal("attribute 'approximate' must be a string", {"x": (2, 3)}, {"approximate": wrong})
        for wrong in ([1, 2], [1.0], ["tanh"], helper.make_tensor("t", 1, [], [1.0]))
    ),
    Refusal("bias must have n = [3]; got [4]", {"x": (2, 3), "bias": (4,)}),
    Refusal("bias must have rank 1; got [1,3]", {"x": (2, 3), "bias": (1, 3)}),
    Refusal("x must have rank 1 or more; got []", {"x": ()}),
]
