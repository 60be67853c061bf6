"""A rule: what is equal. It says nothing about what is worth it, and the engine knows no rule by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import onnx
from onnx.helper import np_dtype_to_tensor_dtype, tensor_dtype_to_np_dtype

from onnxfuse.canonical import View
from onnxfuse.canonical.view import FLOATS
from onnxfuse.errors import RuleError
from onnxfuse.folding import constant_array, sources
from onnxfuse.graph import Value, constant_value
from onnxfuse.identities import Canonical
from onnxfuse.layout import REPEAT, Layout, joined
from onnxfuse.pattern import Call, Choice, Pattern, Scalar, Var, choices
from onnxfuse.rotations import joined_halves
from onnxfuse.symbolic import Dim, broadcast
from onnxfuse.term import SUM, Term, product_of, show

LEVELS = ("none", "elementwise", "cost", "all")


class Decline(Exception):
    """Raised by a guard or a builder: the reason a reader of the report gets, phrased as what must hold."""


@dataclass(frozen=True, eq=False)
class NewConstant:
    """A constant the rewrite adds: a weight reshaped or converted to what the op wants."""

    array: np.ndarray
    like: Value  # what it was made from; names the new initializer

    @property
    def name(self) -> str:
        return self.like.name

    @property
    def dtype(self) -> int:
        return int(np_dtype_to_tensor_dtype(self.array.dtype))

    @property
    def shape(self) -> tuple[Dim, ...]:
        return tuple(self.array.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NewConstant) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return str(self.array.dtype), self.array.shape, self.array.tobytes()


@dataclass(frozen=True)
class Made:
    """A standard operator the rewrite adds in front: what no value of the graph holds yet (the sum of two masks).

    Equal ones are added once per graph. shape and dtype are those of its result.
    """

    op: str
    operands: tuple[Operand, ...]
    dtype: int
    shape: tuple[Dim, ...] | None
    attributes: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        return f"{self.op}({', '.join(getattr(o, 'name', '') for o in self.operands)})"


Operand = Value | NewConstant | Made | None


def leaves(operands: Iterable[Operand]) -> Iterator[Value]:
    """The values of the graph that operands are made from."""
    for operand in operands:
        if isinstance(operand, Made):
            yield from leaves(operand.operands)
        elif isinstance(operand, NewConstant):
            yield operand.like
        elif operand is not None:
            yield operand


Guard = Callable[["Match"], "str | None"]


@dataclass(frozen=True)
class Match:
    """One place where a pattern holds. `root` is the value that the fused op will make."""

    view: View
    root: Value
    bound: Mapping[str, Any]  # Var and sub-pattern names -> Term, Scalar names -> number or attribute

    def has(self, hole: Var | Scalar | str) -> bool:
        return _name(hole) in self.bound

    def term(self, hole: Var | str) -> Term:
        term: Term = self.bound[_name(hole)]
        return term

    def scalar(self, hole: Scalar | str) -> Any:
        return self.bound[_name(hole)]

    def value(self, hole: Var | str, dtype: int | None = None) -> Value:
        """The value of the graph that holds what `hole` matched, of the root's type if there is one.

        Raises Decline when the matched expression is no single value that exists before the root.
        """
        return self.holder(self.term(hole), _name(hole), dtype)

    def operand(self, hole: Var | str) -> Value | Made:
        """Like `value`; where only the parts of a sum are values of the graph, the Adds that make it are added.

        A broadcast that an Expand spells out is left to the op: the value before it is given.
        """
        return self._operand(self.term(hole), _name(hole))

    def _operand(self, term: Term, name: str) -> Value | Made:
        small = _unexpanded(self.view.algebra, term)
        if small is not term and self._is_held(small):
            return self.holder(small, name)
        if self._is_held(term):
            return self.holder(term, name)
        factor, parts = product_of(term)
        if factor != 1 and parts:
            bare = self._operand(self.view.algebra.product(1.0, parts), name)
            number = NewConstant(np.array(factor, tensor_dtype_to_np_dtype(bare.dtype)), next(leaves([bare])))
            return Made("Mul", (bare, number), bare.dtype, bare.shape)
        if term.op in ("And", "Or"):
            return self._joined(term.op, [self._operand(t, name) for t in term.args])
        if term.op == SUM and (parted_sum := self._addends(term)):
            return self._joined("Add", [self._operand(t, name) for t in parted_sum])
        made = (self._parted(term, name) or self._repeated(term, name)) if term.op == "View" else None
        return made if made is not None else self.holder(term, name)

    def _is_held(self, term: Term) -> bool:
        return any(self.is_before(v) for v in self.view.values.get(term, ()))

    def _joined(self, op: str, parts: list[Value | Made]) -> Value | Made:
        total = parts[0]
        for part in parts[1:]:
            shape = None if total.shape is None or part.shape is None else broadcast_shapes(total.shape, part.shape)
            total = Made(op, (total, part), total.dtype, shape)
        return total

    def _addends(self, total: Term) -> list[Term]:
        """What a sum is made from; a number in it goes with a part (or some) that the graph has together with it."""
        algebra, parts = self.view.algebra, list(total.parts)
        if total.coefficient == 0:
            return [algebra.scale(t, c) for t, c in parts]
        for size in range(1, min(len(parts), 3)):
            for chosen in combinations(parts, size):
                with_number = algebra.sum(total.coefficient, chosen)
                if self._is_held(with_number):
                    return [with_number, *(algebra.scale(t, c) for t, c in parts if (t, c) not in chosen)]
        return []

    def _parted(self, term: Term, name: str) -> Made | None:
        """[batch, heads, ...] from a value that holds both in one axis: Unsqueeze, then a Reshape that copies the rest."""
        layout = term.attributes["layout"]
        heads = layout.shape[1] if len(layout.axes) > 2 else None
        merged = replace(layout, axes=(joined((*layout.axes[0], *layout.axes[1])), *layout.axes[2:]))
        source = self.view.algebra.operation("View", term.args, {"layout": merged})
        if not isinstance(heads, int) or not self._is_held(source):
            return None
        whole = self.holder(source, name)
        axis = NewConstant(np.array([0], np.int64), whole)
        shape = NewConstant(np.array([-1, heads] + [0] * (len(layout.axes) - 2), np.int64), whole)
        given: tuple[Any, ...] = ((whole, axis), ()) if self.view.graph.opset >= 13 else ((whole,), (("axes", (0,)),))
        row = Made("Unsqueeze", given[0], whole.dtype, (1, *merged.shape), given[1])
        return Made("Reshape", (row, shape), whole.dtype, layout.shape)

    def _repeated(self, term: Term, name: str) -> Made | None:
        """What is repeated inside an axis (a mask for each window, for all images of a batch): an Expand, then a Reshape."""
        layout: Layout = term.attributes["layout"]
        pieces = [(p,) for axis in layout.axes for p in axis or (None,)]
        bare = replace(layout, axes=tuple(() if p is None or p.axis == REPEAT else (p,) for (p,) in pieces))
        source = self.view.algebra.operation("View", term.args, {"layout": bare})
        counts = [p.size if p is not None and p.axis == REPEAT else 1 for (p,) in pieces]
        told = [self._size(n, source) for n in counts]
        free = [not isinstance(d, int) for d in layout.shape]
        if all(n == 1 for n in counts) or None in told or sum(free) > 1 or not self._is_held(source):
            return None
        small = self.holder(source, name)
        whole = tuple(n if n != 1 else d for n, d in zip(counts, bare.shape, strict=True))
        to = Made("Concat", tuple(told), onnx.TensorProto.INT64, (len(told),), (("axis", 0),))
        target = NewConstant(np.array([-1 if f else d for f, d in zip(free, layout.shape, strict=True)], np.int64), small)
        return Made("Reshape", (Made("Expand", (small, to), small.dtype, whole), target), small.dtype, layout.shape)

    def _size(self, size: Dim, like: Term) -> Value | NewConstant | None:
        """A vector of one element that holds the size: of the graph, where it is no number."""
        if isinstance(size, int):
            return NewConstant(np.array([size], np.int64), self.view.values[like][0]) if self.view.values.get(like) else None
        known = (v for v in self.view.graph.values.values() if v.elements == (size,) and v.rank == 1 and v.dtype == onnx.TensorProto.INT64)
        return next((v for v in known if self.is_before(v)), None)

    def holder(self, term: Term, name: str, dtype: int | None = None, shape: tuple[Dim, ...] | None = None) -> Value:
        """A value that holds `term`, made before the root. Raises Decline if there is none."""
        values = (v for v in self.view.values.get(term, ()) if self.is_before(v) and (shape is None or v.shape == shape))
        first = next(values, None)
        if first is None:
            raise Decline(f"{name} must be one value of the graph; it is {show(term, 3)}")
        wanted = self.root.dtype if dtype is None else dtype
        return first if first.dtype == wanted else next((v for v in values if v.dtype == wanted), first)

    def is_before(self, value: Value) -> bool:
        """Whether the value exists when the root is made."""
        if value is self.root:
            return False
        if value.graph is not self.root.graph or value.producer is None or self.root.producer is None:
            return True
        return value.producer.index < self.root.producer.index


def _unexpanded(algebra: Canonical, term: Term) -> Term:
    """The view without its repeated axes, each of size 1 instead."""
    if term.op != "View":
        return term
    layout = term.attributes["layout"]
    bare = tuple(() if axis and all(p.axis == REPEAT for p in axis) else axis for axis in layout.axes)
    return term if bare == layout.axes else algebra.operation("View", term.args, {"layout": replace(layout, axes=bare)})


def _name(hole: Var | Scalar | str) -> str:
    return hole if isinstance(hole, str) else hole.name


Builder = Callable[[Match], Call | Sequence[Call]]


@dataclass(frozen=True)
class Rule:
    """before == after, where the guards hold.

    before: a pattern. after: a call of an op with the pattern's Vars and Scalars (a Var that this alternative lacks
    becomes an absent input), or a function from the Match to such a call with Values in it, or to several, best first,
    where it depends on the graph around which can be had; it may raise Decline.
    where: guards; each returns None, or why not. outputs: sub-pattern names that the op's further outputs give.
    fires_on, declines: worked examples as ONNX text; of `declines` each key is the reason expected.
    kind: "elementwise" (pointwise and norms), "attention", "matmul" or "layout": what `--level elementwise` keeps.
    targets, levels: the values of `--target` and of `--level` that the rule is for, all of them where none is named; one that is
    asked for by name is for every level. retargets: whether it puts one operator in the place of one, because the other is faster.
    name: the file's name; filled in when rules are loaded.
    """

    before: Pattern
    after: Call | Builder
    where: Sequence[Guard] = ()
    fires_on: Sequence[str] = ()
    declines: Mapping[str, str] = field(default_factory=dict)
    outputs: Sequence[str] = ()
    kind: str = "elementwise"
    targets: Sequence[str] = ()
    levels: Sequence[str] = ()
    retargets: bool = False
    name: str = ""
    summary: str = ""

    @cached_property
    def choices(self) -> list[Choice]:
        return choices(self.before, Canonical())

    def called(self, name: str, summary: str) -> Rule:
        """The rule with the name and the equation of its file. Raises RuleError when it is not well formed."""
        named = replace(self, name=name, summary=summary)
        if not named.choices:
            raise RuleError(f"rule {name}: its pattern matches nothing. Give it at least one operator")
        return named

    def build(self, match: Match) -> list[Call]:
        """The fused calls a match may become, operands as Values. Raises Decline with the guard's reason."""
        for guard in self.where:
            reason = guard(match)
            if reason:
                raise Decline(reason)
        built = self.after(match) if callable(self.after) else self.after
        return [self._finished(match, call) for call in ([built] if isinstance(built, Call) else built)]

    def _finished(self, match: Match, call: Call) -> Call:
        operands = tuple(_resolve(match, o) for o in call.operands)
        attributes = {k: match.scalar(v) if isinstance(v, Scalar) else v for k, v in call.attributes.items()}
        while operands and operands[-1] is None:
            operands = operands[:-1]
        return replace(call, operands=operands, attributes=attributes, outputs=(*call.outputs, *self.outputs))


def _resolve(match: Match, operand: Any) -> Operand:
    if isinstance(operand, Var):
        return match.value(operand) if match.has(operand) else None
    if operand is None or isinstance(operand, (Value, NewConstant, Made)):
        return operand
    raise RuleError(f"a rule's result takes Vars and Values as inputs; got {operand!r}. Pass numbers as attributes")


# ---- guards: each returns a function from the match to None, or to what must hold


def has_rank(hole: Var, rank: int) -> Guard:
    """The value has exactly this many axes."""

    def guard(match: Match) -> str | None:
        if not match.has(hole):
            return None
        found = match.value(hole).rank
        return None if found == rank else f"{hole.name} must have rank {rank}; it has {'unknown rank' if found is None else found}"

    return guard


def same_shape(a: Var, b: Var) -> Guard:
    """Both values provably have the same shape, so that neither is broadcast."""

    def guard(match: Match) -> str | None:
        if not (match.has(a) and match.has(b)):
            return None
        left, right = match.value(a), match.value(b)
        if left.shape is not None and left.shape == right.shape:
            return None
        return f"{a.name} and {b.name} must have the same shape; they are {_shape(left)} and {_shape(right)}"

    return guard


def same_result(hole: Var) -> Guard:
    """The value provably has the shape of the result, so that it is not broadcast."""

    def guard(match: Match) -> str | None:
        if not match.has(hole):
            return None
        value, root = match.value(hole), match.root
        if root.shape is not None and value.shape == root.shape:
            return None
        return f"{hole.name} must have the shape of the result, {_shape(root)}; it is {_shape(value)}"

    return guard


def is_float(hole: Var) -> Guard:
    """The value is of a floating-point type."""

    def guard(match: Match) -> str | None:
        return None if match.value(hole).dtype in FLOATS else f"{hole.name} must be of a floating-point type"

    return guard


def last_axis_vector(hole: Var, x: Var) -> Guard:
    """The value is a vector as long as the last axis of x."""

    def guard(match: Match) -> str | None:
        if not match.has(hole):
            return None
        vector, data = match.value(hole), match.value(x)
        if vector.shape is not None and data.shape and vector.shape == data.shape[-1:]:
            return None
        return f"{hole.name} must be a vector as long as the last axis of {x.name}; they are {_shape(vector)} and {_shape(data)}"

    return guard


def as_shape(match: Match, value: Value, shape: tuple[Dim, ...]) -> Value | NewConstant:
    """`value` under another shape that broadcasts alike (leading axes of size 1 apart); only a constant can be given one.

    Raises Decline when the sizes differ or `value` is computed.
    """
    if value.shape == shape and value.dtype == match.root.dtype:
        return value
    if value.shape is None or any(not isinstance(d, int) for d in (*value.shape, *shape)):
        raise Decline(f"'{value.name}' must have shape {list(map(str, shape))}; it is {_shape(value)}")
    if _aligned(value.shape) != _aligned(shape):  # a column is not a row, though both have as many elements
        raise Decline(f"'{value.name}' must have shape {list(map(str, shape))}; it is {_shape(value)}")
    array = constant_value(value)
    if array is None:
        raise Decline(f"'{value.name}' must be a constant to be used as {list(map(str, shape))}; it is computed as {_shape(value)}")
    return NewConstant(array.reshape(shape).astype(tensor_dtype_to_np_dtype(match.root.dtype)), value)


def _aligned(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The shape as broadcasting aligns it, from the right: without leading axes of size 1."""
    leading = next((i for i, d in enumerate(shape) if d != 1), len(shape))
    return shape[leading:]


def affine(
    match: Match, x: Var, scale: Var, bias: Var | None, axes: tuple[int, ...], *, last_only: bool = False
) -> tuple[Value, Operand, Operand, int]:
    """(x, scale, bias, axis) of a norm over the trailing `axes`, scale and bias in the shape of those axes.

    Raises Decline when the axes are not the last ones, or a weight has another shape.
    """
    data = match.value(x)
    if axes != tuple(range(-len(axes), 0)):
        raise Decline(f"the axes must be the last ones; they are {list(axes)}")
    if last_only and len(axes) != 1:
        raise Decline(f"only the last axis may be normalised; the axes are {list(axes)}")
    if data.shape is None:
        raise Decline(f"the rank of x must be known; '{data.name}' has unknown rank")
    tail = data.shape[-len(axes) :]
    weights = [weight(match, h, tail) if h is not None and match.has(h) else None for h in (scale, bias)]
    return data, weights[0], weights[1], -len(axes)


def weight(match: Match, hole: Var, shape: tuple[Dim, ...]) -> Value | NewConstant:
    """What `hole` matched in this shape; worked out now where only constants have a say in it (1 + w).

    Raises Decline when it has another number of elements, or is computed and has another shape.
    """
    term = match.term(hole)
    constants = sources(match.view, term)
    if any(v.is_constant for v in match.view.values.get(term, ())) or not constants:
        return as_shape(match, match.value(hole), shape)
    array = constant_array(match.view, term)
    if array is None or [d for d in array.shape if d != 1] != [d for d in shape if d != 1]:
        return as_shape(match, match.value(hole), shape)
    return NewConstant(array.reshape(shape).astype(tensor_dtype_to_np_dtype(match.root.dtype)), constants[0])


def gated(match: Match, gate: Var, up: Var) -> tuple[Value, Value | None, int]:
    """(gate, up, 1), or (x, None, 1 or 0) where gate and up are the first and second half, or the reverse, of x.

    Raises Decline when gate and up have different shapes.
    """
    for order, (first, second) in ((1, (gate, up)), (0, (up, gate))):
        whole = joined_halves(match.term(first), match.term(second))
        if whole is not None and whole[1].is_identity:
            return match.holder(whole[0], "gate", shape=whole[1].shape), None, order
    left, right = match.value(gate), match.value(up)
    if left.shape is None or left.shape != right.shape:
        raise Decline(f"gate and up must have the same shape; they are {_shape(left)} and {_shape(right)}")
    return left, right, 1


def broadcast_shapes(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The shape of an elementwise operation on two shapes, as ONNX broadcasts."""
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    return tuple(broadcast(x, y) for x, y in zip(left, right, strict=True))


def _shape(value: Value) -> str:
    return "of unknown rank" if value.shape is None else "[" + ",".join(map(str, value.shape)) + "]"
