"""Uses of FusedElementwise that its tests run: broadcasting, types, every primitive, several results, what only gives a shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxfuse.case import AWKWARD, Case, Refusal
from onnxfuse.generated.primitives import FLOATS, HALF, INTEGERS, PRIMITIVES
from onnxfuse.generated.program import parse
from onnxfuse.generated.runs import alone

CHAIN = """x0:float x1:float
v0:float = Const(0.5)
v1:float = Mul(x0, v0)
v2:float = Add(v1, x1)
v3:float = Tanh(v2)
v4:float = Mul(v3, x0)
-> v4"""
TWO = """x0:float x1:float x2:bool
v0:float = Sub(x0, x1)
v1:float = Where(x2, v0, x1)
v2:bool = Less(v1, x0)
v3:float16 = Cast(v1)
-> v1 v2 v3"""
SIZES = """x0:float x1:int64
v0:int64 = Dim(x0, -1)
v1:int64 = Mul(v0, x1)
-> v1"""
SHAPED = """x0:float x1:float
v0:float = Exp(x0)
-> v0"""
BROADCASTS = [((3, 1), (5,)), ((), (2, 3)), ((4, 3, 1), (4, 1, 33)), ((1, 1), (0, 3)), ((7, 1, 5), (7, 4, 1)), ((2, 4099), (1,))]
KINDS = ("float", "float16", "double", "int32", "int64", "uint8", "bool")
MOST = 12  # primitives in one program


def _small(rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
    """Numbers that each primitive takes, of any type: 1 to 3."""
    return {name: rng.integers(1, 4, shape) for name, shape in shapes.items()}


def _unit(rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
    return {name: rng.uniform(0.05, 0.95, shape) for name, shape in shapes.items()}


def _case(text: str, *shapes: tuple[int, ...], values: Any = None) -> Case:
    return Case({f"x{i}": shape for i, shape in enumerate(shapes)}, {"program": parse(text).text}, values=values)


def _primitives(kind: str) -> list[Case]:
    """All primitives that ONNX Runtime has for a type, each a result, over a length that no vector divides."""
    able = alone(kind)
    return [_each(able[at : at + MOST], kind) for at in range(0, len(able), MOST)]


def _each(ops: Sequence[str], kind: str) -> Case:
    lines = [f"v{i}:{_result(op, kind)} = {op}({', '.join(('x0', 'x1')[: len(PRIMITIVES[op].takes)])})" for i, op in enumerate(ops)]
    text = "\n".join([f"x0:{kind} x1:{kind}", *lines, "-> " + " ".join(f"v{i}" for i in range(len(ops)))])
    return _case(text, (3, 37), (3, 37), values=_unit if kind in FLOATS else _small)


def _result(op: str, kind: str) -> str:
    gives = PRIMITIVES[op].gives
    return kind if gives is None else gives[0]


CASES = [
    *(_case(CHAIN, shape, shape) for shape in AWKWARD),
    *(_case(CHAIN, *shapes) for shapes in BROADCASTS),
    *(_case(TWO, shape, shape[-1:], shape) for shape in ((4, 7), (1, 1), (3, 4099))),
    *(case for kind in KINDS for case in _primitives(kind)),
    _case(SIZES, (2, 5), (3,), values=lambda rng, shapes: {"x1": np.arange(3)}),
    _case(SHAPED, (3, 1), (2, 1, 4)),
    _case("x0:float\nv0:float = Const(-0.25)\nv1:float = Const(0.75)\nv2:float = Clip(x0, v0, v1)\n-> v2", (5, 33)),
    *(
        _case(f"x0:float\nv0:{kind} = Cast(x0)\nv1:float = Cast(v0)\n-> v1", (4, 35), values=_small)
        for kind in (*HALF, *INTEGERS, "double")
    ),
]

TIMED = [_case(CHAIN, (1, 16), (1, 16)), _case(CHAIN, (128, 256), (128, 256))]

REFUSED = [
    Refusal("inputs must broadcast to one shape", {"x0": (3,), "x1": (4,)}, {"program": parse(CHAIN).text}),
]
