"""Uses of GeGLU that its tests run."""

from __future__ import annotations

from onnxfuse.case import AWKWARD, Case, Refusal

PACKED = [(*shape[:-1], 2 * shape[-1]) for shape in AWKWARD]

CASES = [
    Case({"gate": (2, 10)}),
    Case({"gate": (2, 9), "up": (2, 9)}),
    *(Case({"gate": shape, "up": shape}, {"approximate": value}) for shape in AWKWARD for value in ("none", "tanh")),
    *(
        Case({"gate": shape}, {"approximate": value, "gate_first": first})
        for shape in PACKED
        for value in ("none", "tanh")
        for first in (0, 1)
    ),
    Case({"gate": (64, 2062)}, {"gate_first": 0}),
]

TIMED = [Case({"gate": (128, 256), "up": (128, 256)}), Case({"gate": (128, 512)})]

REFUSED = [
    Refusal("gate must have an even last axis where up is not given; got [2,3]", {"gate": (2, 3)}),
    Refusal("up must have ... = [2]; got [3] in [3,4]", {"gate": (2, 4), "up": (3, 4)}),
    Refusal("up must have m = [4]; got [2]", {"gate": (2, 4), "up": (2, 2)}),
    Refusal("attribute 'gate_first' must be from 0 to 1; got 2", {"gate": (2, 4)}, {"gate_first": 2}),
    Refusal("attribute 'gate_first' must be an int", {"gate": (2, 4)}, {"gate_first": 1.0}),
    Refusal("attribute 'approximate' must be 'none' or 'tanh'; got ''", {"gate": (2, 4)}, {"approximate": ""}),
]
