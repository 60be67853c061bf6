"""Uses of ChannelGate that its tests run."""

from __future__ import annotations

from onnxfuse.case import AWKWARD, Case, Refusal
from onnxfuse.op import Attribute

FUNCTIONS: tuple[dict[str, Attribute], ...] = (
    {"activation": "sigmoid"},
    {"activation": "hard_sigmoid"},
    {"activation": "hard_sigmoid", "alpha": 0.2, "beta": 0.4},
)

CASES = [
    Case({"x": (2, 9), "gate": (2, 1)}),
    *(Case({"x": shape, "gate": (*shape[:-1], 1)}, f) for shape in AWKWARD for f in FUNCTIONS),
    *(Case({"x": (2, 3, 5, 7), "gate": gate}, f) for gate in ((2, 3, 5, 7), (2, 3, 1, 1), (2, 1, 1, 1), (1, 1, 1, 1)) for f in FUNCTIONS),
    *(Case({"x": (1, 4, 17), "gate": gate}) for gate in ((1, 4, 1), (1, 1, 1))),
    Case({"x": (1, 1, 1), "gate": (1, 1, 1)}),
    Case({"x": (4, 16, 32, 33), "gate": (4, 16, 1, 1)}),
]

TIMED = [Case({"x": (1, 128, 256), "gate": (1, 128, 1)})]

REFUSED = [
    Refusal("gate must have the leading axes of x [2,3,4] and size 1 along the others; got [2,3]", {"x": (2, 3, 4), "gate": (2, 3)}),
    Refusal("gate must have the leading axes of x [2,3,4] and size 1 along the others; got [1,3,1]", {"x": (2, 3, 4), "gate": (1, 3, 1)}),
    Refusal("gate must have the leading axes of x [2,3] and size 1 along the others; got [2,4]", {"x": (2, 3), "gate": (2, 4)}),
    Refusal("attribute 'alpha' must be finite; got nan", {"x": (2, 4), "gate": (2, 1)}, {"alpha": float("nan")}),
    Refusal(
        "attribute 'activation' must be 'sigmoid' or 'hard_sigmoid'; got 'tanh'", {"x": (2, 4), "gate": (2, 1)}, {"activation": "tanh"}
    ),
]
