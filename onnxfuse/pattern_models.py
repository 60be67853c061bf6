"""Models made up from a pattern: random tensors for its Vars, random numbers for its Scalars, spelled at random.

Shapes go down from the root: each part of the pattern is asked for a shape that it has or is broadcast to.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from onnxfuse.pattern import NAMED, Number, Pattern, Scalar, Var, alternatives
from onnxfuse.spelling import Draft, Shape, Tensor, Unsuitable

OPSETS = (12, 13, 15, 17, 18, 20, 21, 23)
SIZES = (1, 2, 3, 4, 5, 8)
LAST_SIZES = (2, 4, 6, 8)  # what has halves and heads
CONDITIONS = {"Where": (0,), "Not": (0,), "And": (0, 1), "Or": (0, 1)}  # operands that are bool
USUAL: Mapping[str, tuple[Any, ...]] = {
    "axes": ((-1,), (-1,), (-2, -1), (-2,)),
    "axis": (-1, -1, -2),
    "keepdims": (True,),
    "epsilon": (1e-5, 1e-6, 1e-3),
    "alpha": (1.0, 1.702, 0.5),
    "approximate": ("none", "tanh"),
    "min": (0.0, -1.0),
    "max": (1.0, 6.0),
}


@dataclass(frozen=True)
class MadeUp:
    """A model that the pattern should match, and how it was disturbed: what inside is read elsewhere or is an output."""

    model: onnx.ModelProto
    disturbance: str


def make_up(pattern: Pattern, rng: random.Random) -> MadeUp:
    """A model of one alternative of the pattern. Raises Unsuitable if these random sizes do not fit together."""
    draft = Draft(rng, opset=rng.choice(OPSETS), noise=rng.choice([0.0, 0.1]), is_static=rng.random() < 0.6)
    writer = _Writer(draft, rng.choice(["float", "float", "float16"]))
    shape = (*(rng.choice(SIZES) for _ in range(rng.choice([1, 1, 2, 3]))), rng.choice(LAST_SIZES))
    root = writer.write(rng.choice(alternatives(pattern)), shape)
    outputs, disturbance = _disturbed(draft, writer, root)
    return MadeUp(draft.model(outputs), disturbance)


def _disturbed(draft: Draft, writer: _Writer, root: Tensor) -> tuple[list[Tensor], str]:
    """(outputs of the model, what was done): nothing, or a value inside is an output or is read by one more node."""
    inside = [t for t in draft.made if t is not root and t.kind in ("float", "float16")]
    named = [t for t in writer.named.values() if t is not root]
    form = draft.rng.randrange(5)
    if form == 0 and named:
        return [root, *named], "named parts are outputs"
    if form == 1 and inside:
        value = draft.rng.choice(inside)
        return [root, value], f"'{value.name}' is an output"
    if form == 2 and inside:
        value = draft.rng.choice(inside)
        return [root, draft.node("Neg", [value])], f"'{value.name}' is read by another node"
    return [root], ""


@dataclass
class _Writer:
    draft: Draft
    kind: str
    holes: dict[str, Tensor] = field(default_factory=dict)
    scalars: dict[str, Any] = field(default_factory=dict)
    named: dict[str, Tensor] = field(default_factory=dict)
    known: dict[Hashable, Tensor] = field(default_factory=dict)

    @property
    def rng(self) -> random.Random:
        return self.draft.rng

    def write(self, pattern: Pattern, want: Shape, kind: str = "") -> Tensor:
        """The nodes of a pattern whose result has the shape `want` or is broadcast to it."""
        kind = kind or self.kind
        if isinstance(pattern, Var):
            return self._hole(pattern, want, kind)
        if isinstance(pattern, (Number, Scalar)):
            return self.draft.number(self._number(pattern), Tensor("", want, kind))
        if pattern.op == NAMED:
            return self.named.setdefault(pattern.attributes["name"], self.write(pattern.args[0], want, kind))
        key = (_key(pattern), want)
        if key not in self.known or self.rng.random() < 0.1:  # exporters compute some things twice
            self.known[key] = self._operation(pattern, want, kind)
        return self.known[key]

    def _operation(self, pattern: Pattern, want: Shape, kind: str) -> Tensor:
        if pattern.op in ("Add", "Sub", "Neg"):
            return self._sum(pattern, want, kind)
        if pattern.op in ("Mul", "Div", "Reciprocal"):
            return self._product(pattern, want, kind)
        if pattern.op == "Pow" and isinstance(pattern.args[1], (Number, Scalar)):
            return self.draft.apply("Pow", [self.write(pattern.args[0], want, kind)], {"exponent": self._number(pattern.args[1])})
        special = SHAPED.get(pattern.op)
        if special is not None:
            return special(self, pattern, want)
        conditions = CONDITIONS.get(pattern.op, ())
        args = [self.write(a, want, "bool" if i in conditions else kind) for i, a in enumerate(pattern.args)]
        return self.draft.apply(pattern.op, args, self.attributes(pattern))

    def attributes(self, pattern: Pattern) -> dict[str, Any]:
        """The attributes of an operator, a Scalar among them with something that such an attribute usually holds."""
        return {n: self._attribute(pattern.op, n, v) for n, v in {**_required(pattern.op), **pattern.attributes}.items()}

    def _attribute(self, op: str, name: str, value: Any) -> Any:
        if not isinstance(value, Scalar):
            return value
        if name not in USUAL:
            raise Unsuitable(f"nothing is known of {op}'s attribute {name}")
        return self.scalars.setdefault(value.name, self.rng.choice(USUAL[name]))

    def _number(self, pattern: Pattern) -> float:
        if isinstance(pattern, Number):
            return pattern.value
        assert isinstance(pattern, Scalar)
        number: float = self.scalars.setdefault(pattern.name, self.rng.choice([0.5, 2.0, 0.125, 1.5, -1.0, 3.0]))
        return number

    def _hole(self, hole: Var, want: Shape, kind: str) -> Tensor:
        if hole.name not in self.holes:
            shape = self._smaller(want, 0.85 if hole.constant else 0.25)
            self.holes[hole.name] = (
                self._weight(shape, kind) if hole.constant or self.rng.random() < 0.1 else self._input(hole, shape, kind)
            )
        return self.holes[hole.name]

    def whole(self, pattern: Pattern, want: Shape) -> Tensor:
        """`write`, where a Var that has no shape yet must not be broadcast."""
        if isinstance(pattern, Var) and pattern.name not in self.holes and not pattern.constant:
            self.holes[pattern.name] = self._input(pattern, want, self.kind)
        return self.write(pattern, want)

    def _smaller(self, want: Shape, share: float) -> Shape:
        """`want`, or something that is broadcast to it."""
        if self.rng.random() > share or not want:
            return want
        return self.rng.choice(
            [want[-1:], want[-1:], want[1:], tuple(self.rng.choice([1, d]) for d in want), (*want[:-1], 1), (1, *want[-1:])]
        )

    def _weight(self, shape: Shape, kind: str) -> Tensor:
        numbers = np.random.default_rng(self.rng.randrange(2**31))
        return self.draft.weight(numbers.random(shape) < 0.6 if kind == "bool" else numbers.uniform(-2, 2, shape), kind)

    def _input(self, hole: Var, shape: Shape, kind: str) -> Tensor:
        """A graph input, its leading sizes symbols that tell them; equal sizes are one symbol."""
        named = [f"size{d}" if d > 1 else None for d in shape[:-1]]
        return self.draft.input(hole.name, shape, kind, () if self.draft.is_static else [*named, None])

    # ---- sums and products

    def _sum(self, pattern: Pattern, want: Shape, kind: str) -> Tensor:
        parts = list(_terms(pattern, 1))
        made = [(sign, self.write(part, want, kind)) for sign, part in parts]
        return self.draft.disturbed(self.draft.total(made))

    def _product(self, pattern: Pattern, want: Shape, kind: str) -> Tensor:
        coefficient, factors = 1.0, []
        for power, part in _factors(pattern, 1):
            if isinstance(part, (Number, Scalar)):
                coefficient *= self._number(part) ** power
            else:
                factors.append((power, self.write(part, want, kind)))
        return self.draft.disturbed(self.draft.times(factors, coefficient))


def _key(pattern: Pattern) -> Hashable:
    """Equal for patterns that are written the same."""
    if isinstance(pattern, (Var, Scalar)):
        return pattern.name
    if isinstance(pattern, Number):
        return pattern.value
    attributes = tuple(sorted((k, v.name if isinstance(v, Scalar) else v) for k, v in pattern.attributes.items()))
    return (pattern.op, tuple(map(_key, pattern.args)), str(attributes))


def _terms(pattern: Pattern, sign: int) -> list[tuple[int, Pattern]]:
    """The addends of a sum, however it is nested."""
    if pattern.op in ("Add", "Sub"):
        return [*_terms(pattern.args[0], sign), *_terms(pattern.args[1], sign if pattern.op == "Add" else -sign)]
    if pattern.op == "Neg":
        return _terms(pattern.args[0], -sign)
    return [(sign, pattern)]


def _factors(pattern: Pattern, power: int) -> list[tuple[int, Pattern]]:
    """The factors of a product, however it is nested."""
    if pattern.op in ("Mul", "Div"):
        return [*_factors(pattern.args[0], power), *_factors(pattern.args[1], power if pattern.op == "Mul" else -power)]
    if pattern.op == "Reciprocal":
        return _factors(pattern.args[0], -power)
    return [(power, pattern)]


def _required(op: str) -> Mapping[str, Any]:
    """Attributes that a spelling needs and a pattern may leave to their default."""
    return {"keepdims": True} if op in ("Mean", "ReduceSum", "ReduceMax") else {"axis": -1} if op == "Softmax" else {}


# ---- operators whose operands have other shapes than their result


def _matmul(writer: _Writer, pattern: Pattern, want: Shape) -> Tensor:
    if len(want) < 2:
        raise Unsuitable(f"no product has the shape {want}")
    inner = writer.rng.choice(LAST_SIZES)
    a = writer.whole(pattern.args[0], (*want[:-1], inner))
    b = writer.whole(pattern.args[1], (*want[:-2], inner, want[-1]))
    return writer.draft.disturbed(writer.draft.apply("MatMul", [a, b]))


def _concat(writer: _Writer, pattern: Pattern, want: Shape) -> Tensor:
    axis = writer.attributes(pattern)["axis"]
    count = len(pattern.args)
    if not -len(want) <= axis < len(want) or want[axis] < count:
        raise Unsuitable(f"{want} cannot be joined from {count} along {axis}")
    sizes = [1] * (count - 1) + [want[axis] - count + 1]
    position = axis % len(want)
    args = [writer.whole(a, (*want[:position], size, *want[position + 1 :])) for a, size in zip(pattern.args, sizes, strict=True)]
    if [a.shape[axis] if a.rank == len(want) else 0 for a in args] != sizes:
        raise Unsuitable("what is joined is not broadcast")
    return writer.draft.node("Concat", args, want, axis=axis)


def _view(writer: _Writer, pattern: Pattern, want: Shape) -> Tensor:
    """What a layout that a rule leaves open may be: heads in front, or side by side."""
    shape = tuple(writer.rng.choice(SIZES[1:]) for _ in range(3)) + (writer.rng.choice(LAST_SIZES),)
    inner = writer.write(pattern.args[0], shape)
    if inner.rank != 4:
        raise Unsuitable("only views of 4 axes are made up")
    turned = writer.draft.transpose(inner, (0, 2, 1, 3))
    if writer.rng.random() < 0.3:
        return turned
    batch, seq, heads, size = turned.shape
    return writer.draft.node("Reshape", [turned, writer.draft.ints([0, 0, heads * size])], (batch, seq, heads * size))


def _conv(writer: _Writer, pattern: Pattern, want: Shape) -> Tensor:
    """A convolution that looks at one place at a time."""
    if len(want) < 3:
        raise Unsuitable(f"no convolution has the shape {want}")
    inner = writer.rng.choice(SIZES)
    weights = (want[1], inner, *[1] * (len(want) - 2))
    shapes = ((want[0], inner, *want[2:]), weights, (want[1],))
    args = [writer.whole(a, shape) for a, shape in zip(pattern.args, shapes, strict=False)]
    return writer.draft.disturbed(writer.draft.node("Conv", args, want))


SHAPED: Mapping[str, Callable[[_Writer, Pattern, Shape], Tensor]] = {
    "MatMul": _matmul,
    "Concat": _concat,
    "View": _view,
    "Conv": _conv,
}
