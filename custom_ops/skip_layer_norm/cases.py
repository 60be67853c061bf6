"""Uses of SkipLayerNorm that its tests run."""

from __future__ import annotations

from onnxfuse.case import AWKWARD, Case, Refusal, given, subsets

OPTIONAL = ["scale", "bias", "x_bias"]


def _shapes(x: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    return {"x": x, "skip": x, **dict.fromkeys(OPTIONAL, x[-1:])}


CASES = [
    Case(_shapes((2, 9))),
    *(Case(given(_shapes(shape), OPTIONAL, names)) for shape in AWKWARD for names in ((), OPTIONAL)),
    *(
        Case(given(_shapes((3, 5, 33)), OPTIONAL, names), outputs=outputs)
        for names in subsets(OPTIONAL)
        for outputs in (("y",), ("y", "sum"))
    ),
    *(Case(_shapes(shape), {"epsilon": 0.5}, outputs=("y",)) for shape in AWKWARD),
    Case(_shapes((300, 257))),
]

TIMED = [
    Case(_shapes((1, 16))),
    *(Case(_shapes((128, 256)), outputs=outputs) for outputs in (("y",), ("y", "sum"))),
]

REFUSED = [
    Refusal("skip must have ... = [2]; got [1] in [1,3]", {"x": (2, 3), "skip": (1, 3)}),
    Refusal("skip must have rank 1 or more; got []", {"x": (2, 3), "skip": ()}),
    Refusal("scale must have n = [3]; got [4]", {"x": (2, 3), "skip": (2, 3), "scale": (4,)}),
    Refusal("x_bias must have rank 1; got [2,3]", {"x": (2, 3), "skip": (2, 3), "x_bias": (2, 3)}),
    Refusal("attribute 'epsilon' must be a float", {"x": (2, 3), "skip": (2, 3)}, {"epsilon": 0}),
]
