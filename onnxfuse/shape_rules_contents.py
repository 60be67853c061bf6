"""What small integer tensors hold: the arithmetic that exporters do on sizes before a Reshape, Expand or Slice.

Arrays hold ints and expressions, or ratios for floats (dtype object). A rule gets the shape that the output has, all numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from onnx import TensorProto

from onnxfuse import symbolic
from onnxfuse.shape_facts import FLOATS, INTEGERS, Call, Shape, content_rule, objects, only, place, plain_values, whole
from onnxfuse.shape_ratio import Ratio, Unknown, exact_ratio
from onnxfuse.shape_rules_layout import shape_part
from onnxfuse.symbolic import Dim

Array: TypeAlias = "np.ndarray[Any, Any]"


@content_rule("Identity")
def _same(call: Call, shape: Shape) -> Array:
    return call.contents(0)


@content_rule("Cast")
def _cast(call: Call, shape: Shape) -> Array:
    """Sizes survive a cast to another integer type, to float32 and back: they are smaller than what these hold."""
    target = call.integer("to")
    if call.dtype(0) in FLOATS:
        return call.ratios(0) if target in FLOATS else _each(lambda a: a.truncated(), shape, call.ratios(0))
    if call.dtype(0) not in INTEGERS:
        raise Unknown
    if target in FLOATS:
        return _each(Ratio, shape, call.array(0))
    if target == TensorProto.BOOL:
        return _each(lambda a: _flag(_not(_equal(a, 0))), shape, call.array(0))
    return call.array(0)


@content_rule("Floor")
def _floor(call: Call, shape: Shape) -> Array:
    return _each(lambda a: Ratio(a.floor()), shape, call.ratios(0))


@content_rule("Ceil")
def _ceil(call: Call, shape: Shape) -> Array:
    return _each(lambda a: Ratio(a.ceil()), shape, call.ratios(0))


@content_rule("Sqrt")
def _root(call: Call, shape: Shape) -> Array:
    return _each(lambda a: a.root(), shape, call.ratios(0))


@content_rule("Pow")
def _power(call: Call, shape: Shape) -> Array:
    """Square roots only: image models take the side of a square grid from its size."""
    if call.dtype(0) not in FLOATS or only(call.constant(1)) != 0.5:
        raise Unknown
    return _each(lambda a: a.root(), shape, call.ratios(0))


@content_rule("Constant")
def _attribute(call: Call, shape: Shape) -> Array:
    """A constant that is an attribute of the function it stands in; other constants are known without a rule."""
    tensor = call.tensor("value")
    if tensor is not None:
        values = plain_values(tensor)
    elif call.attribute("value_int") is not None:
        values = [call.integer("value_int")]
    else:
        values = call.ints("value_ints") or []
    if not values or not isinstance(values[0], int):
        raise Unknown
    return objects(map(int, values)).reshape(whole(shape))


@content_rule("Shape")
def _shape(call: Call, shape: Shape) -> Array:
    return objects(shape_part(call))


@content_rule("Size")
def _size(call: Call, shape: Shape) -> Array:
    return objects([symbolic.product(call.shape(0))]).reshape(())


@content_rule("ConstantOfShape")
def _filled(call: Call, shape: Shape) -> Array:
    value = call.tensor("value")
    fill = 0.0 if value is None else only(np.array(plain_values(value))).item()
    content: Dim | Ratio = int(fill) if isinstance(fill, int) else exact_ratio(fill)
    return objects([content] * math.prod(whole(shape))).reshape(whole(shape))


@content_rule("Range")
def _range(call: Call, shape: Shape) -> Array:
    start, limit, step = whole(call.scalar(i) for i in range(3))
    return objects(range(start, limit, step))


@content_rule("Concat")
def _concat(call: Call, shape: Shape) -> Array:
    _require_one_type(call)
    parts = [call.contents(i) for i in range(len(call.inputs))]
    axis = place(call.integer("axis"), len(shape))
    if any(len(p.shape) != len(shape) or p.shape[:axis] + p.shape[axis + 1 :] != shape[:axis] + shape[axis + 1 :] for p in parts):
        raise Unknown
    return np.concatenate(parts, axis=axis)


@content_rule("Gather")
def _gather(call: Call, shape: Shape) -> Array:
    x = call.contents(0)
    axis = place(call.integer("axis", 0), x.ndim)
    indices = np.array(call.integers(1), dtype=np.int64).reshape(whole(call.shape(1)))
    if indices.size and not -x.shape[axis] <= int(indices.min()) <= int(indices.max()) < x.shape[axis]:
        raise Unknown
    return np.asarray(np.take(x, indices, axis=axis), dtype=object)


@content_rule("Slice")
def _slice(call: Call, shape: Shape) -> Array:
    x = call.contents(0)
    if call.opset < 10:
        starts, ends, axes, steps = call.ints("starts") or [], call.ints("ends") or [], call.ints("axes"), None
    else:
        starts, ends = call.integers(1), call.integers(2)
        axes = call.integers(3) if call.has(3) else None
        steps = call.integers(4) if call.has(4) else None
    cuts = [slice(None)] * x.ndim
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        step = steps[i] if steps is not None else 1
        axis = place(axes[i] if axes is not None else i, x.ndim)
        cuts[axis] = slice(start, None if step < 0 and end < -x.shape[axis] else end, step)
    return x[tuple(cuts)]


@content_rule("Split")
def _split(call: Call, shape: Shape) -> list[Array]:
    x = call.contents(0)
    axis = place(call.integer("axis", 0), x.ndim)
    sizes = call.axes(1, "split") or [whole(shape)[axis]] * len(call.node.outputs)
    return np.split(x, np.cumsum(sizes)[:-1].tolist(), axis=axis)


@content_rule("Unsqueeze", "Squeeze", "Reshape", "Flatten")
def _reshape(call: Call, shape: Shape) -> Array:
    x, sizes = call.contents(0), whole(shape)
    if x.size != math.prod(sizes):
        raise Unknown
    return x.reshape(sizes)


@content_rule("Transpose")
def _transpose(call: Call, shape: Shape) -> Array:
    flipped: Array = call.array(0).transpose(call.ints("perm"))
    return flipped


@content_rule("Expand")
def _expand(call: Call, shape: Shape) -> Array:
    return _spread(call.array(0), shape)


@content_rule("Tile")
def _tile(call: Call, shape: Shape) -> Array:
    return np.tile(call.array(0), call.integers(1))


@content_rule("OneHot")
def _one_hot(call: Call, shape: Shape) -> Array:
    indices, depth = call.integers(0), call.scalar(1)
    values = call.elements(2)
    if not isinstance(depth, int) or len(shape) != 2 or call.integer("axis", -1) not in (-1, 1) or len(values) != 2:
        raise Unknown
    off, on = values
    rows = ([on if position == index % depth else off for position in range(depth)] for index in indices)
    return objects(value for row in rows for value in row).reshape(whole(shape))


@content_rule("ReduceProd")
def _product(call: Call, shape: Shape) -> Array:
    return _reduced(call, shape, symbolic.product)


@content_rule("ReduceSum")
def _sum(call: Call, shape: Shape) -> Array:
    return _reduced(call, shape, lambda values: sum(values, start=0))


@content_rule("ReduceMax")
def _largest(call: Call, shape: Shape) -> Array:
    return _reduced(call, shape, lambda values: _fold(symbolic.maximum, values))


@content_rule("ReduceMin")
def _smallest(call: Call, shape: Shape) -> Array:
    return _reduced(call, shape, lambda values: _fold(symbolic.minimum, values))


def _reduced(call: Call, shape: Shape, combine: Callable[[list[Dim]], Dim]) -> Array:
    """Combine all elements of a vector; where nothing is reduced the input comes back."""
    values = list(call.elements(0))
    if math.prod(whole(shape)) != 1 or not values:
        raise Unknown
    return objects([combine(values)]).reshape(whole(shape))


def _fold(combine: Callable[[Dim, Dim], Dim], values: list[Dim]) -> Dim:
    result = values[0]
    for value in values[1:]:
        result = combine(result, value)
    return result


def _each(combine: Callable[..., Dim | Ratio], shape: Shape, *operands: Array) -> Array:
    """Apply a function of numbers to broadcast operands."""
    flat = (_spread(operand, shape).reshape(-1).tolist() for operand in operands)
    return objects(combine(*values) for values in zip(*flat, strict=True)).reshape(whole(shape))


def _spread(x: Array, shape: Shape) -> Array:
    try:
        return np.broadcast_to(x, whole(shape))
    except ValueError:  # the model is wrong: its operands do not broadcast
        raise Unknown from None


def _require_one_type(call: Call) -> None:
    """Ratios and integers do not mix; only a wrong model makes them meet."""
    if len({call.dtype(i) for i in range(len(call.inputs))}) != 1:
        raise Unknown


def _elementwise(op: str, combine: Callable[[Dim, Dim], Dim]) -> None:
    @content_rule(op)
    def rule(call: Call, shape: Shape) -> Array:
        result = call.array(0)
        for position in range(1, len(call.inputs)):
            result = _each(combine, shape, result, call.array(position))
        return result


def _arithmetic(op: str, combine: Callable[[Any, Any], Dim | Ratio]) -> None:
    @content_rule(op)
    def rule(call: Call, shape: Shape) -> Array:
        _require_one_type(call)
        return _each(combine, shape, call.contents(0), call.contents(1))


def _quotient(a: Dim, b: Dim) -> Dim:
    """Integer Div, which rounds towards 0: a floor only where nothing is negative."""
    if b == 0:
        raise Unknown
    exact = symbolic.divide(a, b)
    if exact is not None:
        return exact
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if symbolic.is_nonnegative(a) and symbolic.is_nonnegative(b):
        return a // b
    return symbolic.unknown("quotient")


def _remainder(a: Dim, b: Dim) -> Dim:
    if b == 0:
        raise Unknown
    return a % b


def _equal(a: Dim, b: Dim) -> bool | None:
    """Whether two numbers are the same; None where that depends on the run."""
    if a == b:
        return True
    return False if _less(a, b) or _less(b, a) else None


def _less(a: Dim, b: Dim) -> bool | None:
    if symbolic.is_nonnegative(b - a - 1):
        return True
    return False if symbolic.is_nonnegative(a - b) else None


def _not(flag: bool | None) -> bool | None:
    return None if flag is None else not flag


def _flag(flag: bool | None) -> Dim:
    return symbolic.fresh("flag") if flag is None else int(flag)


_arithmetic("Add", lambda a, b: a + b)
_arithmetic("Sub", lambda a, b: a - b)
_arithmetic("Mul", lambda a, b: a * b)
_arithmetic("Div", lambda a, b: a / b if isinstance(a, Ratio) else _quotient(a, b))
_elementwise("Min", symbolic.minimum)
_elementwise("Max", symbolic.maximum)
_elementwise("Equal", lambda a, b: _flag(_equal(a, b)))
_elementwise("Less", lambda a, b: _flag(_less(a, b)))
_elementwise("Greater", lambda a, b: _flag(_less(b, a)))
_elementwise("LessOrEqual", lambda a, b: _flag(_not(_less(b, a))))
_elementwise("GreaterOrEqual", lambda a, b: _flag(_not(_less(a, b))))
_elementwise("And", symbolic.minimum)
_elementwise("Or", symbolic.maximum)


@content_rule("Mod")
def _modulo(call: Call, shape: Shape) -> Array:
    if call.integer("fmod", 0):
        raise Unknown
    return _each(_remainder, shape, call.array(0), call.array(1))


@content_rule("Neg")
def _negate(call: Call, shape: Shape) -> Array:
    return _each(lambda a: -a, shape, call.array(0))


@content_rule("Abs")
def _absolute(call: Call, shape: Shape) -> Array:
    return _each(lambda a: symbolic.maximum(a, -a), shape, call.array(0))


@content_rule("Not")
def _negation(call: Call, shape: Shape) -> Array:
    return _each(lambda a: 1 - a, shape, call.array(0))


@content_rule("Where")
def _where(call: Call, shape: Shape) -> Array:
    return _each(_choose, shape, call.array(0), call.array(1), call.array(2))


def _choose(flag: Dim, a: Dim, b: Dim) -> Dim:
    if flag in (0, 1):
        return a if flag else b
    return a if a == b else symbolic.unknown("choice")
