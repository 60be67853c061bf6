"""Uses of Silu that its tests run."""

from __future__ import annotations

from onnxfuse.case import AWKWARD, Case, Refusal

CASES = [
    Case({"x": (2, 9)}),
    *(Case({"x": shape}, {"alpha": alpha}) for shape in AWKWARD for alpha in (1.0, 1.702)),
    *(Case({"x": shape, "bias": shape[-1:]}, {"alpha": alpha}) for shape in AWKWARD for alpha in (1.0, -0.5)),
    Case({"x": (64, 1031), "bias": (1031,)}),
]

TIMED = [Case({"x": (128, 256)}), Case({"x": (128, 256), "bias": (256,)})]

REFUSED = [
    Refusal("attribute 'alpha' must be a float", {"x": (2, 3)}, {"alpha": 2}),
    Refusal("attribute 'alpha' must be a float", {"x": (2, 3)}, {"alpha": "one"}),
    Refusal("attribute 'alpha' must be finite; got inf", {"x": (2, 3)}, {"alpha": float("inf")}),
    Refusal("bias must have n = [3]; got [2]", {"x": (2, 3), "bias": (2,)}),
]
