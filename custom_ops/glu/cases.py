"""Uses of GLU that its tests run."""

from __future__ import annotations

from onnxfuse.case import AWKWARD, Case, Refusal

PACKED = [(*shape[:-1], 2 * shape[-1]) for shape in AWKWARD]
FUNCTIONS = ("sigmoid", "relu")

CASES = [
    Case({"gate": (2, 10)}),
    Case({"gate": (2, 9), "up": (2, 9)}),
    *(Case({"gate": shape, "up": shape}, {"activation": f}) for shape in AWKWARD for f in FUNCTIONS),
    *(Case({"gate": shape}, {"activation": f, "gate_first": first}) for shape in PACKED for f in FUNCTIONS for first in (0, 1)),
    *(
        Case({"gate": (2, 6, 4, 7)}, {"activation": f, "axis": axis, "gate_first": first})
        for axis in (-4, -3, -2)
        for f in FUNCTIONS
        for first in (0, 1)
    ),
    Case({"gate": (0, 6, 5)}, {"axis": -2}),
    Case({"gate": (3, 6, 0)}, {"axis": -2}),
    Case({"gate": (64, 2062)}, {"gate_first": 0}),
]

TIMED = [Case({"gate": (128, 256), "up": (128, 256)})]

REFUSED = [
    Refusal("gate must have an even axis -1 where up is not given; got [2,3]", {"gate": (2, 3)}),
    Refusal("gate must have an even axis -2 where up is not given; got [3,4]", {"gate": (3, 4)}, {"axis": -2}),
    Refusal("gate must have rank 3 or more, for its axis; got [2,4]", {"gate": (2, 4)}, {"axis": -3}),
    Refusal("up must have ... = [2,4]; got [3,4]", {"gate": (2, 4), "up": (3, 4)}),
    Refusal("attribute 'gate_first' must be from 0 to 1; got 2", {"gate": (2, 4)}, {"gate_first": 2}),
    Refusal("attribute 'axis' must be from -64 to -1; got 1", {"gate": (2, 4)}, {"axis": 1}),
    Refusal("attribute 'activation' must be 'sigmoid' or 'relu'; got 'tanh'", {"gate": (2, 4)}, {"activation": "tanh"}),
]
