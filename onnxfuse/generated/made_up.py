"""Random programs with inputs, for comparing what runs them: types, broadcasts, scalars, empty tensors, NaN and infinities.

What ONNX Runtime leaves open is left out: integers divided by 0, sums of halves beyond their range, floats out of range as
unsigned integers of 32 bits and more. Where a result jumps (Floor, Less, a Cast to an integer), what it jumps by is exact.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from onnxfuse.generated.primitives import CAST, CONCAT, DIM, FLOATS, HALF, PRIMITIVES, UNSIGNED, WHERE, is_integer, is_reduction
from onnxfuse.generated.program import Input, Number, Program, Step
from onnxfuse.generated.runs import RUNS

Array = npt.NDArray[Any]
SIZES = (0, 1, 1, 2, 3, 5, 7, 8, 15, 16, 17, 33, 64, 67, 257)
MOST_ELEMENTS = 6000
WEIGHTS = {"float": 12, "float16": 4, "double": 2, "int32": 3, "int64": 3, "int8": 1, "uint8": 1, "uint32": 1, "uint64": 1, "bool": 2}


def _named(names: str) -> frozenset[str]:
    return frozenset(names.split())


JUMPS = _named("Floor Ceil Round Sign Less Greater LessOrEqual GreaterOrEqual Equal FMod Mod IsNaN IsInf")
INEXACT = _named(
    "Pow Exp Log Erf Tanh Sigmoid Softplus Softsign Gelu GeluTanh Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh ReduceSum "
    "ReduceMean ReduceProd ReduceSumSquare ReduceL1 ReduceL2 ReduceLogSumExp"
)
PLAIN = _named(
    "Cast Concat Const Identity Where Neg Abs Max Min Less Greater LessOrEqual GreaterOrEqual Equal IsNaN IsInf Dim ReduceMax ReduceMin"
)
STEEP = _named("Tan Sinh Cosh Exp Pow Reciprocal Div Log")  # not of what is inexact already
DIVISORS = (1, 2, 3, 5, 7)
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-38, 65504.0)


@dataclass(frozen=True)
class Example:
    """A program, the axes of its rows, and arrays for its inputs."""

    program: Program
    axes: int
    arrays: tuple[Array, ...]


def numpy_type(kind: str) -> np.dtype[Any]:
    """The numpy type of a type by its ONNX name."""
    names = {"float": "float32", "double": "float64", "bool": "bool_"}
    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16 if kind == "bfloat16" else getattr(np, names.get(kind, kind)))
    return found


def is_exact(step: Step, operands: Sequence[str]) -> bool:
    """Whether every bit of what the step makes is given. ONNX Runtime leaves out some roundings between operators of half types."""
    if step.op == CAST and step.type == "float16" and operands[0] in FLOATS:
        return False
    return step.op not in INEXACT and (step.op in PLAIN or not any(kind in HALF for kind in (step.type, *operands)))


def made_up(seed: int) -> Example:
    """The same example for the same seed."""
    return _Maker(random.Random(seed), np.random.default_rng(seed)).example()


@dataclass
class _Maker:
    rng: random.Random
    numbers: np.random.Generator
    inputs: list[Input] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    exact: dict[str, bool] = field(default_factory=dict)  # whether all who compute a value get the same bits
    pieces: set[str] = field(default_factory=set)  # inputs that are only joined
    small: set[str] = field(default_factory=set)  # integers that stay small when squared
    whole: set[str] = field(default_factory=set)  # values that have the whole row, not one number of it
    rows: set[str] = field(default_factory=set)
    shapes: list[tuple[int, ...]] = field(default_factory=list)

    def example(self) -> Example:
        shape = self._shape()
        axes = self.rng.randint(1, len(shape)) if shape and self.rng.random() < 0.4 else 0
        self.shapes = [self._input(shape, axes) for _ in range(self.rng.randint(1, 4))]
        for _ in range(self.rng.choice((0, 0, 0, 1, 2)) if shape else 0):
            self._join(shape, axes)
        for _ in range(self.rng.randint(2, 14)):
            self._grow(axes)
        if not any(is_reduction(step.op) for step in self.steps):
            axes = 0
            self.inputs = [Input(given.type) for given in self.inputs]
        results = self._results()
        program = Program(tuple(self.inputs), tuple(self.steps), results)
        arrays = tuple(self._array(given.type, s) for given, s in zip(self.inputs, self.shapes, strict=True))
        return Example(program, axes, arrays)

    # ---- inputs

    def _shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = ()
        for _ in range(self.rng.randint(0, 4)):
            size = self.rng.choice(SIZES)
            if np.prod((*shape, size)) <= MOST_ELEMENTS:
                shape = (*shape, size)
        return shape

    def _input(self, shape: tuple[int, ...], axes: int) -> tuple[int, ...]:
        """Adds an input; returns its shape: that of all with some sizes 1, or some leading ones left out."""
        kind = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        name, first = f"x{len(self.inputs)}", not self.inputs
        cut = 0 if first else self.rng.choice((0, 0, 0, self.rng.randint(0, len(shape))))
        lead = len(shape) - axes
        dims = [1 if not first and d != 1 and self.rng.random() < 0.2 else d for d in shape]
        row = bool(axes) and not first and self.rng.random() < 0.2
        if axes:
            dims[lead:] = [1] * axes if row else shape[lead:]
            cut = cut if row else min(cut, lead)
        row = row and any(d != 1 for d in shape[lead:])
        self.inputs.append(Input(kind, row))
        self.exact[name] = True
        (self.rows if row else self.whole).add(name)
        if is_integer(kind):
            self.small.add(name)
        return tuple(dims[cut:])

    def _join(self, shape: tuple[int, ...], axes: int) -> None:
        """Adds a value of the shape of all, maybe with sizes 1 before the row, that is two or more inputs one behind the other."""
        kind = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        dims = [1 if i < len(shape) - axes and self.rng.random() < 0.1 else d for i, d in enumerate(shape)]
        at = self.rng.randrange(len(dims))
        cuts = sorted(self.rng.randint(0, shape[at]) for _ in range(self.rng.randint(1, 3)))
        sizes = [end - begin for begin, end in zip([0, *cuts], [*cuts, shape[at]], strict=True)]
        names = [f"x{len(self.inputs) + i}" for i in range(len(sizes))]
        self.inputs += [Input(kind)] * len(sizes)
        self.shapes += [(*dims[:at], size, *dims[at + 1 :]) for size in sizes]
        self.pieces.update(names)
        self.exact |= dict.fromkeys(names, True)
        made = self._add(Step(CONCAT, kind, tuple(names), at - len(dims)))
        self.whole.add(made)
        if is_integer(kind):
            self.small.add(made)

    def _array(self, kind: str, shape: tuple[int, ...]) -> Array:
        if kind == "bool":
            return np.asarray(self.numbers.random(shape) < 0.5)
        if is_integer(kind):
            return np.asarray(self.numbers.integers(0 if kind in UNSIGNED else -9, 10, shape)).astype(numpy_type(kind))
        made = np.asarray(self.numbers.standard_normal(shape) * self.rng.choice((0.1, 1.0, 1.0, 4.0)))
        if self.rng.random() < 0.2 and made.size:
            places = self.numbers.random(shape) < 0.1
            made = np.where(places, self.numbers.choice(np.array(SPECIAL), shape), made)
        with np.errstate(over="ignore"):
            return made.astype(numpy_type(kind))

    # ---- steps

    def _type(self, name: str) -> str:
        return self.inputs[int(name[1:])].type if name[0] == "x" else self.steps[int(name[1:])].type

    def _names(self) -> list[str]:
        """Of the values that a step can read."""
        inputs = [name for name in (f"x{i}" for i in range(len(self.inputs))) if name not in self.pieces]
        return inputs + [f"v{i}" for i in range(len(self.steps))]

    def _pick(self, kinds: Sequence[str]) -> str | None:
        """A value of one of the types, rather a late one."""
        able = [name for name in self._names() if self._type(name) in kinds]
        return able[min(len(able) - 1, int(len(able) * self.rng.random() ** 0.6))] if able else None

    def _grow(self, axes: int) -> None:
        """One more step, if the first that is tried fits."""
        chance = self.rng.random()
        if chance < 0.12:
            self._cast()
        elif chance < 0.16:
            self._size()
        elif chance < 0.34 and axes:
            self._reduce()
        elif chance < 0.42:
            self._where()
        else:
            self._apply(self.rng.choice(list(PRIMITIVES)))

    def _size(self) -> None:
        place = self.rng.randrange(len(self.inputs))
        rank = len(self.shapes[place])
        if rank:
            self._add(Step(DIM, "int64", (f"x{place}",), self.rng.randrange(-rank, rank)))

    def _add(self, step: Step) -> str:
        self.steps.append(step)
        name = f"v{len(self.steps) - 1}"
        inputs = [o for o in step.operands if not self._is_const(o)]
        self.exact[name] = is_exact(step, [self._type(o) for o in step.operands]) and all(self.exact[o] for o in step.operands)
        if is_reduction(step.op) or (inputs and all(o in self.rows for o in inputs)):
            self.rows.add(name)
        elif any(o in self.whole for o in inputs):
            self.whole.add(name)
        return name

    def _is_const(self, name: str) -> bool:
        return name[0] == "v" and self.steps[int(name[1:])].op == "Const"

    def _const(self, number: Number, kind: str) -> str:
        return self._add(Step("Const", kind, (), number))

    def _number(self, kind: str) -> str:
        if kind == "bool":
            return self._const(self.rng.random() < 0.5, kind)
        if is_integer(kind):
            return self._const(self.rng.randint(0 if kind in UNSIGNED else -5, 6), kind)
        exact = numpy_type(kind).type(self.rng.choice((0.5, -1.5, 0.125, 2.0, 3.0, self.rng.uniform(-2, 2), np.inf)))
        return self._const(float(exact), kind)

    def _cast(self) -> None:
        source = self._pick(list(WEIGHTS))
        target = self.rng.choice(["float", "float", "float16", "double", "int32", "int64", "int8", "uint8", "int16", "bool", "bfloat16"])
        if source is None or not self.exact[source] or self._type(source) == target:
            return
        made = self._add(Step(CAST, target, (source,)))
        if target == "bfloat16":
            self._add(Step(CAST, "float", (made,)))

    def _reduce(self) -> None:
        op = self.rng.choice([op for op in RUNS if is_reduction(op)])
        source = self._pick(RUNS[op])
        if source is None or source not in self.whole:
            return
        kind = self._type(source)
        narrow = kind in HALF and op != "ReduceMax" and op != "ReduceMin"
        if narrow or not self.exact[source] or (is_integer(kind) and (source not in self.small or op in ("ReduceProd", "ReduceMean"))):
            return
        if op in ("ReduceMax", "ReduceMin") and kind in FLOATS:
            if kind not in RUNS[WHERE]:
                return
            source = self._without_nan(source, kind)
        self._add(Step(op, kind, (source,)))

    def _without_nan(self, source: str, kind: str) -> str:
        """What a maximum makes of NaN hangs on which loop ONNX Runtime takes for a shape."""
        is_nan = self._add(Step("IsNaN", "bool", (source,)))
        return self._add(Step(WHERE, kind, (is_nan, self._const(0.5, kind), source)))

    def _where(self) -> None:
        condition, yes = self._pick(["bool"]), self._pick(RUNS[WHERE])
        if condition is None or yes is None:
            return
        no = self._pick([self._type(yes)]) if self.rng.random() < 0.6 else self._number(self._type(yes))
        assert no is not None
        self._add(Step(WHERE, self._type(yes), (condition, yes, no)))

    def _apply(self, op: str) -> None:
        takes, gives = PRIMITIVES[op].takes, PRIMITIVES[op].gives
        if op in ("Const", DIM, CAST, WHERE) or is_reduction(op):
            return
        first = self._pick([kind for kind in RUNS[op] if kind in takes[0]])
        if first is None or (not self.exact[first] and op in JUMPS | STEEP):
            return
        kind = self._type(first)
        if kind in HALF and op in STEEP:
            return  # what is beyond the range of a half is infinite here, and finite where the runtime leaves out the rounding
        operands = self._operands(op, first, kind, len(takes))
        if operands is None or (op in JUMPS | STEEP and not all(self.exact[o] for o in operands)):
            return
        self._add(Step(op, kind if gives is None else gives[0], operands))

    def _operands(self, op: str, first: str, kind: str, count: int) -> tuple[str, ...] | None:
        """Operands such that the result is defined."""
        if op == "Clip":
            low, high = sorted(self.rng.sample(range(0, 6), 2))
            return first, *(self._const(n if is_integer(kind) else float(n), kind) for n in (low, high))
        if is_integer(kind) and op in ("Div", "Mod", "FMod"):
            sign = -1 if kind not in UNSIGNED and self.rng.random() < 0.3 else 1
            divisor = self.rng.choice(DIVISORS[1:] if sign < 0 else DIVISORS)
            return first, self._const(sign * divisor, kind)
        if op in ("ShiftLeft", "ShiftRight"):
            return first, self._const(self.rng.randrange(8), kind)
        if op == "Pow":
            return self._power(first, kind)
        more = [self._pick([kind]) if self.rng.random() < 0.6 else self._number(kind) for _ in range(count - 1)]
        return (first, *(o for o in more if o is not None))

    def _power(self, first: str, kind: str) -> tuple[str, ...] | None:
        if is_integer(kind):
            return (first, self._const(self.rng.randrange(3), kind)) if first in self.small else None
        return first, self._const(self.rng.choice((0.5, 2.0, 3.0, -1.0, 1.5)), kind)

    def _results(self) -> tuple[str, ...]:
        """One to three of the last values."""
        able = [f"v{i}" for i, step in enumerate(self.steps) if step.type != "bfloat16"]
        if not able:
            self._add(Step("Identity", self.inputs[0].type, ("x0",)))
            able = [f"v{len(self.steps) - 1}"]
        return tuple(dict.fromkeys([able[-1], *self.rng.sample(able, min(len(able), self.rng.randrange(3)))]))
