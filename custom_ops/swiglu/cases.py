"""Uses of SwiGLU that its tests run."""

from __future__ import annotations

from onnxfuse.case import AWKWARD, Case, Refusal

PACKED = [(*shape[:-1], 2 * shape[-1]) for shape in AWKWARD]

CASES = [
    Case({"gate": (2, 10)}),
    Case({"gate": (2, 9), "up": (2, 9)}),
    *(Case({"gate": shape, "up": shape}, {"alpha": value}) for shape in AWKWARD for value in (1.0, 1.702)),
    *(Case({"gate": shape}, {"alpha": value, "gate_first": first}) for shape in PACKED for value in (1.0, 1.702) for first in (0, 1)),
    Case({"gate": (64, 2062)}, {"gate_first": 0}),
]

TIMED = [Case({"gate": (128, 256), "up": (128, 256)})]

REFUSED = [
    Refusal("gate must have an even last axis where up is not given; got [2,3]", {"gate": (2, 3)}),
    Refusal("up must have ... = [2]; got [3] in [3,4]", {"gate": (2, 4), "up": (3, 4)}),
    Refusal("up must have m = [4]; got [2]", {"gate": (2, 4), "up": (2, 2)}),
    Refusal("attribute 'gate_first' must be from 0 to 1; got 2", {"gate": (2, 4)}, {"gate_first": 2}),
    Refusal("attribute 'gate_first' must be an int", {"gate": (2, 4)}, {"gate_first": 1.0}),
    Refusal("attribute 'alpha' must be finite; got nan", {"gate": (2, 4)}, {"alpha": float("nan")}),
]
