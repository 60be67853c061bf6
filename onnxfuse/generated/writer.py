"""ONNX operators as primitives of a program: what an operator does, step by step, as ONNX Runtime computes it.

An operator that ONNX Runtime computes as a whole is spelled in float where its type is a half type, and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from onnxfuse.generated.primitives import CAST, CONST, FLOATS, HALF, IDENTITY, WHERE, is_integer
from onnxfuse.generated.program import Input, Number, Program, Step


@dataclass
class Draft:
    """A program under construction. Equal steps are made once."""

    inputs: list[Input] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    _known: dict[Step, str] = field(default_factory=dict)

    def input(self, kind: str, *, row: bool = False) -> str:
        """A further input."""
        self.inputs.append(Input(kind, row))
        return f"x{len(self.inputs) - 1}"

    def step(self, op: str, kind: str, *operands: str, number: Number | None = None) -> str:
        """The value that `op` makes of operands."""
        made = Step(op, kind, operands, number)
        known = self._known.get(made) if number == number else None  # NaN is equal to nothing
        if known is None:
            self.steps.append(made)
            known = self._known[made] = f"v{len(self.steps) - 1}"
        return known

    def number(self, number: Number, kind: str) -> str:
        """A constant."""
        exact = bool(number) if kind == "bool" else int(number) if is_integer(kind) else float(number)
        return self.step(CONST, kind, number=exact)

    def kind(self, name: str) -> str:
        """The type of an input or value."""
        return self.inputs[int(name[1:])].type if name[0] == "x" else self.steps[int(name[1:])].type

    def cast(self, value: str, kind: str) -> str:
        return value if self.kind(value) == kind else self.step(CAST, kind, value)

    def finish(self, results: Sequence[str]) -> Program:
        """The program; a result that is an input or comes twice gets a step of its own."""
        names: list[str] = []
        for result in results:
            if result[0] == "x" or result in names:
                self.steps.append(Step(IDENTITY, self.kind(result), (result,)))
                result = f"v{len(self.steps) - 1}"
            names.append(result)
        return Program(tuple(self.inputs), tuple(self.steps), tuple(names))


@dataclass(frozen=True)
class Use:
    """One operator to spell: its operands (None: absent), attributes, and the type of its result."""

    draft: Draft
    op: str
    operands: tuple[str | None, ...]
    attributes: Mapping[str, Any]
    kind: str

    @property
    def given(self) -> tuple[str, ...]:
        return tuple(o for o in self.operands if o is not None)

    @property
    def x(self) -> str:
        return self.given[0]

    def number(self, name: str, default: float) -> float:
        """An attribute as it is stored: in float32."""
        return float(np.float32(self.attributes.get(name, default)))

    def do(self, op: str, *operands: str) -> str:
        """A step of the type of its first operand."""
        return self.draft.step(op, self.draft.kind(operands[0]), *operands)

    def const(self, number: float, like: str) -> str:
        return self.draft.number(number, self.draft.kind(like))

    def test(self, op: str, *operands: str) -> str:
        return self.draft.step(op, "bool", *operands)

    def choose(self, condition: str, yes: str, no: str) -> str:
        return self.draft.step(WHERE, self.draft.kind(yes), condition, yes, no)


Spelling: TypeAlias = Callable[[Use], str]


def spell(use: Use) -> str:
    """The value that the operator makes, spelled in the draft. The operator must be one of `SPELLINGS`."""
    return SPELLINGS[use.op](use)


def _same(use: Use) -> str:
    return use.draft.step(use.op, use.kind, *use.given)


def _folded(op: str) -> Spelling:
    """A binary primitive over all operands, from the left."""

    def spelling(use: Use) -> str:
        made = use.x
        for operand in use.given[1:]:
            made = use.do(op, made, operand)
        return made

    return spelling


def _whole(spelling: Spelling) -> Spelling:
    """Computed in float where the type is a half type, and rounded once."""

    def wide(use: Use) -> str:
        if use.kind not in HALF:
            return spelling(use)
        operands = tuple(None if o is None else use.draft.cast(o, "float") for o in use.operands)
        return use.draft.cast(spelling(Use(use.draft, use.op, operands, use.attributes, "float")), use.kind)

    return wide


def _mean(use: Use) -> str:
    return use.do("Div", _folded("Add")(use), use.const(len(use.given), use.x))


def _cast(use: Use) -> str:
    return use.draft.cast(use.x, use.kind)


def _power(use: Use) -> str:
    base, exponent = use.given
    known = _constant(use.draft, exponent)
    if known == 2.0 and use.kind in FLOATS:
        return use.do("Mul", base, base)
    if known is not None and (use.kind in FLOATS or known == int(known)):
        return use.do("Pow", base, use.const(known, base))
    return use.do("Pow", base, use.draft.cast(exponent, use.kind))


def _constant(draft: Draft, name: str) -> Number | None:
    step = draft.steps[int(name[1:])] if name[0] == "v" else None
    return step.number if step is not None and step.op == CONST else None


def _mod(use: Use) -> str:
    return use.do("FMod" if use.attributes.get("fmod") else "Mod", *use.given)


def _shift(use: Use) -> str:
    return use.do("ShiftLeft" if use.attributes["direction"] == "LEFT" else "ShiftRight", *use.given)


def _is_infinite(use: Use) -> str:
    signs = [s for s, name in ((-1.0, "detect_negative"), (1.0, "detect_positive")) if use.attributes.get(name, 1)]
    if len(signs) == 2:
        return _same(use)
    if not signs:
        return use.draft.number(False, "bool")
    return use.test("Equal", use.x, use.const(signs[0] * np.inf, use.x))


def _clip(use: Use) -> str:
    low, high = (*use.operands[1:], None, None)[:2]
    bounds = limits(use.kind)
    ends = [b if o is None else o for o, b in zip((low, high), (use.const(b, use.x) for b in bounds), strict=True)]
    return use.do("Clip", use.x, *ends)


def limits(kind: str) -> tuple[Number, Number]:
    """The lowest and the highest finite number of a type."""
    if is_integer(kind):
        whole = np.iinfo(kind)
        return int(whole.min), int(whole.max)
    real = ml_dtypes.finfo({"float": "float32", "double": "float64"}.get(kind, kind))  # type: ignore[no-untyped-call]  # ml_dtypes leaves it untyped
    return float(real.min), float(real.max)


def _leaky(use: Use) -> str:
    return use.do("PRelu", use.x, use.const(use.number("alpha", 0.01), use.x))


def _thresholded(use: Use) -> str:
    above = use.test("Greater", use.x, use.const(use.number("alpha", 1.0), use.x))
    return use.choose(above, use.x, use.const(0.0, use.x))


def _exponential(use: Use, x: str, alpha: float) -> str:
    """x where it is at least 0, else alpha (exp(x) - 1)."""
    below = use.do("Mul", use.const(alpha, x), use.do("Sub", use.do("Exp", x), use.const(1.0, x)))
    return use.choose(use.test("Less", x, use.const(0.0, x)), below, x)


def _elu(use: Use) -> str:
    return _exponential(use, use.x, use.number("alpha", 1.0))


def _selu(use: Use) -> str:
    made = _exponential(use, use.x, use.number("alpha", 1.6732632423543772))
    return use.do("Mul", made, use.const(use.number("gamma", 1.0507009873554805), use.x))


def _celu(use: Use) -> str:
    alpha = use.number("alpha", 1.0)
    if alpha == 1.0:
        return _exponential(use, use.x, 1.0)
    made = _exponential(use, use.do("Div", use.x, use.const(alpha, use.x)), 1.0)
    return use.do("Mul", made, use.const(alpha, use.x))


def _hard_sigmoid(use: Use) -> str:
    return _ramp(use, use.number("alpha", 0.2), use.number("beta", 0.5))


def _ramp(use: Use, alpha: float, beta: float) -> str:
    line = use.do("Add", use.do("Mul", use.x, use.const(alpha, use.x)), use.const(beta, use.x))
    return use.do("Clip", line, use.const(0.0, line), use.const(1.0, line))


def _hard_swish(use: Use) -> str:
    return use.do("Mul", use.x, _ramp(use, float(np.float32(1 / 6)), 0.5))


def _swish(use: Use) -> str:
    alpha = use.number("alpha", 1.0)
    scaled = use.x if alpha == 1.0 else use.do("Mul", use.x, use.const(alpha, use.x))
    return use.do("Mul", use.x, use.do("Sigmoid", scaled))


def _mish(use: Use) -> str:
    return use.do("Mul", use.x, use.do("Tanh", use.do("Softplus", use.x)))


def _shrink(use: Use) -> str:
    """Sums are of float whatever the type, as in ONNX Runtime; only a double is compared as it is."""
    x, edge = use.draft.cast(use.x, "float"), use.number("lambd", 0.5)
    seen, bias = use.x if use.kind == "double" else x, use.const(use.number("bias", 0.0), x)
    down = use.choose(use.test("Greater", seen, use.const(edge, seen)), use.do("Sub", x, bias), use.const(0.0, x))
    made = use.choose(use.test("Less", seen, use.const(-edge, seen)), use.do("Add", x, bias), down)
    return use.draft.cast(made, use.kind)


def _gelu(use: Use) -> str:
    return use.do("GeluTanh" if use.attributes.get("approximate", "none") == "tanh" else "Gelu", use.x)


def _softmax(use: Use) -> str:
    power = use.do("Exp", use.do("Sub", use.x, use.do("ReduceMax", use.x)))
    return use.do("Div", power, use.do("ReduceSum", power))


def _log_softmax(use: Use) -> str:
    down = use.do("Sub", use.x, use.do("ReduceMax", use.x))
    return use.do("Sub", down, use.do("Log", use.do("ReduceSum", use.do("Exp", down))))


def _reduce(use: Use) -> str:
    return use.do(use.op, use.x)


def _reduce_log(use: Use) -> str:
    return use.do("Log", use.do("ReduceSum", use.x))


UNARY = (
    "Neg Abs Sign Relu Sqrt Reciprocal Exp Log Erf Tanh Sigmoid Softplus Softsign Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh "
    "Atanh Floor Ceil Round IsNaN Not BitwiseNot"
)
BINARY = "Sub Div PRelu Equal Less Greater LessOrEqual GreaterOrEqual And Or Xor BitwiseAnd BitwiseOr BitwiseXor Where"
REDUCTIONS = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceSumSquare ReduceL1 ReduceL2 ReduceLogSumExp"

ROWS: dict[str, Spelling] = {"Softmax": _whole(_softmax), "LogSoftmax": _whole(_log_softmax)}
REDUCE: dict[str, Spelling] = {**dict.fromkeys(REDUCTIONS.split(), _reduce), "ReduceLogSum": _whole(_reduce_log)}
POINTWISE: dict[str, Spelling] = {
    **dict.fromkeys(f"{UNARY} {BINARY}".split(), _same),
    **{op: _folded(op) for op in ("Add", "Mul", "Max", "Min")},
    "Sum": _folded("Add"),
    "Mean": _whole(_mean),
    "Cast": _cast,
    "CastLike": _cast,
    "Pow": _power,
    "Mod": _mod,
    "BitShift": _shift,
    "IsInf": _is_infinite,
    "Clip": _clip,
    "LeakyRelu": _leaky,
    "ThresholdedRelu": _whole(_thresholded),
    "Elu": _whole(_elu),
    "Selu": _whole(_selu),
    "Celu": _whole(_celu),
    "HardSigmoid": _whole(_hard_sigmoid),
    "HardSwish": _whole(_hard_swish),
    "Swish": _whole(_swish),
    "Mish": _whole(_mish),
    "Shrink": _shrink,
    "Gelu": _gelu,
}
SPELLINGS: dict[str, Spelling] = {**POINTWISE, **ROWS, **REDUCE}
