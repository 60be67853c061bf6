"""Uses of FusedReduction that its tests run: softmax, norms, every reduction, rows of several axes, row results."""

from __future__ import annotations

from onnxfuse.case import AWKWARD, Case, Refusal
from onnxfuse.generated.program import parse
from onnxfuse.generated.writer import REDUCTIONS

SOFTMAX = """x0:float
v0:float = ReduceMax(x0)
v1:float = Sub(x0, v0)
v2:float = Exp(v1)
v3:float = ReduceSum(v2)
v4:float = Div(v2, v3)
-> v4"""
NORM = """x0:float x1:float x2:float/row
v0:float = ReduceMean(x0)
v1:float = Sub(x0, v0)
v2:float = Mul(v1, v1)
v3:float = ReduceMean(v2)
v4:float = Add(v3, x2)
v5:float = Sqrt(v4)
v6:float = Div(v1, v5)
v7:float = Mul(v6, x1)
-> v7 v5"""
ROWS = [shape for shape in AWKWARD if shape[-1]]


def _case(text: str, *shapes: tuple[int, ...], axes: int = 1) -> Case:
    return Case({f"x{i}": shape for i, shape in enumerate(shapes)}, {"program": parse(text).text, "axes": axes})


def _alone(op: str, kind: str = "float") -> str:
    return f"x0:{kind}\nv0:{kind} = {op}(x0)\n-> v0"


CASES = [
    *(_case(SOFTMAX, shape) for shape in ROWS),
    *(_case(NORM, shape, shape[-1:], ()) for shape in ROWS if len(shape) > 1),
    *(_case(SOFTMAX, (3, 4, 5, 7), axes=axes) for axes in (2, 3, 4)),
    *(_case(_alone(op), shape) for op in REDUCTIONS.split() for shape in ((3, 37), (2, 1), (5, 1031))),
    *(_case(_alone(op, "float16"), (3, 37)) for op in REDUCTIONS.split()),
    *(_case(_alone(op, "int32"), (3, 37)) for op in ("ReduceSum", "ReduceMax", "ReduceMin")),
    _case(NORM, (2, 3, 9), (3, 9), (2, 1, 1)),
]

TIMED = [_case(SOFTMAX, (1, 16)), _case(SOFTMAX, (128, 256))]

REFUSED = [
    Refusal("must have size 1", {"x0": (3, 4), "x1": (4,), "x2": (4,)}, {"program": parse(NORM).text}),
    Refusal("axes", {"x0": (3,)}, {"program": parse(SOFTMAX).text, "axes": 0}),
]
