"""Canonical forms of arithmetic, casts, reductions and matrix products."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx

from onnxfuse.canonical.view import FLOATS, View, axes_of, handles, is_float, negative_axis, plain_attributes, size_of
from onnxfuse.graph import Node, Value
from onnxfuse.layout import Layout, identity, reshape
from onnxfuse.term import NUMBER, SUM, Term, product_of

Terms = list[Term | None] | None


@handles("Identity")
def _identity(view: View, node: Node) -> Terms:
    return [view.term(node.inputs[0])]


@handles("Dropout")
def _dropout(view: View, node: Node) -> Terms:
    """In inference Dropout passes its input on; training_mode (opset 12) must be absent or false."""
    training = node.input(2)
    if training is not None and (view.graph.constant_tensor(training) is None or training.elements not in ((0,), None)):
        return None
    if training is not None and not _is_false(training):
        return None
    return [view.term(node.inputs[0]), None]


def _is_false(value: Value) -> bool:
    tensor = value.graph.constant_tensor(value)
    return tensor is not None and not onnx.numpy_helper.to_array(tensor).any()


@handles("Cast", "CastLike")
def _cast(view: View, node: Node) -> Terms:
    source, target = node.inputs[0], node.outputs[0]
    term = view.term(source)
    if source is None or target is None or term is None:
        return None
    if term.op == NUMBER and target.dtype in FLOATS:
        return [view.algebra.number(_rounded(term.coefficient, target.dtype))]
    if source.dtype in FLOATS and target.dtype in FLOATS or source.dtype == target.dtype != 0:
        return [term]
    return [view.algebra.plain("Cast", (term,), {"to": "float" if target.dtype in FLOATS else target.dtype})]


def _rounded(number: float, dtype: int) -> float:
    """What is left of a constant in another type: 1e-12 is 0 in float16."""
    with np.errstate(over="ignore"):
        return float(np.float64(number).astype(onnx.helper.tensor_dtype_to_np_dtype(dtype)))


@handles("Add", "Sub")
def _add(view: View, node: Node) -> Terms:
    if not is_float(node.outputs[0]):
        return None
    a, b = view.args(node)
    flatten = (view.opened(node.inputs[0]), view.opened(node.inputs[1]))
    total = view.algebra.add if node.op == "Add" else view.algebra.subtract
    return _unmerged_sum(view, node, total) or [total(a, b, flatten=flatten)]


def _unmerged_sum(view: View, node: Node, total: Callable[[Term, Term], Term]) -> Terms:
    """scores + mask of [batch*heads, m, n], where the scores are known with batch and heads apart, as a view of the sum apart."""
    sides = [view.layout(v) for v in node.inputs]
    whole = next((s for s in sides if s is not None and s[1].op in ("MatMul", SUM) and _merges_two(s[2])), None)
    if whole is None or node.outputs[0] is None or node.outputs[0].shape != whole[2].shape:
        return None
    apart = whole[2].base
    terms: list[Term] = []
    for side in sides:
        shape = apart if side is not None and side[2].shape[0] == whole[2].shape[0] else (1, *(side[2].shape if side else ()))
        seen = view.view(side, lambda layout, shape=shape: reshape(layout, shape)) if len(shape) == 4 else None  # type: ignore[misc]
        if seen is None or seen[0] is None:
            return None
        terms.append(seen[0])
    factor, parts = product_of(total(*terms))
    return view.view((factor, view.algebra.product(1.0, parts), identity(apart)), lambda layout: reshape(layout, whole[2].shape))


def _merges_two(layout: Layout) -> bool:
    """Whether all that the view does is to merge the first two of four axes."""
    base = layout.base
    return len(base) == 4 and layout == reshape(identity(base), (base[0] * base[1], *base[2:]))


@handles("Sum")
def _sum(view: View, node: Node) -> Terms:
    if not is_float(node.outputs[0]):
        return None
    total, *rest = view.args(node)
    for term, value in zip(rest, node.inputs[1:], strict=True):
        total = view.algebra.add(total, term, flatten=(True, view.opened(value)))
    return [total]


@handles("Mul")
def _mul(view: View, node: Node) -> Terms:
    return [view.algebra.multiply(*view.args(node))] if is_float(node.outputs[0]) else None


@handles("Div")
def _div(view: View, node: Node) -> Terms:
    return [view.algebra.divide(*view.args(node))] if is_float(node.outputs[0]) else None


@handles("Neg")
def _neg(view: View, node: Node) -> Terms:
    return [view.algebra.negate(view.args(node)[0])] if is_float(node.outputs[0]) else None


@handles("Reciprocal")
def _reciprocal(view: View, node: Node) -> Terms:
    return [view.algebra.divide(view.algebra.number(1.0), view.args(node)[0])]


@handles("Sqrt")
def _sqrt(view: View, node: Node) -> Terms:
    return [view.algebra.power(view.args(node)[0], 0.5)]


@handles("Pow")
def _pow(view: View, node: Node) -> Terms:
    base, exponent = view.args(node)
    if not is_float(node.outputs[0]) or exponent.op != NUMBER or exponent.coefficient == 0:
        return None
    return [view.algebra.power(base, exponent.coefficient)]


@handles("Clip", "Relu6")
def _clip(view: View, node: Node) -> Terms:
    bounds = {"min": -math.inf, "max": math.inf}
    for position, name in enumerate(bounds, start=1):
        if name in node.attributes:
            bounds[name] = float(node.attributes[name])
        elif (value := node.input(position)) is not None:
            number = view.number(value)
            if number is None:
                return None
            bounds[name] = number
    return [view.algebra.operation("Clip", view.args(node)[:1], bounds)]


@handles("HardSigmoid")
def _hard_sigmoid(view: View, node: Node) -> Terms:
    attributes = plain_attributes(node) or {}
    slope, offset = attributes["alpha"], attributes["beta"]
    inner = view.algebra.add(view.algebra.scale(view.args(node)[0], slope), view.algebra.number(offset)) if offset else view.args(node)[0]
    return [view.algebra.operation("Clip", (inner,), {"min": 0.0, "max": 1.0})]


@handles("HardSwish")
def _hard_swish(view: View, node: Node) -> Terms:
    return [view.algebra.plain("HardSwish", view.args(node))]


@handles("Swish")
def _swish(view: View, node: Node) -> Terms:
    return [view.algebra.plain("Swish", view.args(node), {"alpha": float(node.attributes.get("alpha", 1.0))})]


def _mean_of(view: View, node: Node, term: Term) -> Term | None:
    """The mean of `term`, a function of the node's input, over the node's axes."""
    axes = axes_of(node, view)
    if axes is None:
        return None
    if not axes:
        if node.attributes.get("noop_with_empty_axes", 0) or node.inputs[0] is None or node.inputs[0].rank is None:
            return None
        axes = tuple(range(-node.inputs[0].rank, 0))
    return view.algebra.operation("Mean", (term,), {"axes": axes, "keepdims": bool(node.attributes.get("keepdims", 1))})


@handles("ReduceMean")
def _reduce_mean(view: View, node: Node) -> Terms:
    return [_mean_of(view, node, view.args(node)[0])]


def _scaled_mean(of: Callable[[View, Term], Term], root: bool = False) -> Callable[[View, Node], Terms]:
    """A sum over axes of known size as that size times the mean."""

    def handler(view: View, node: Node) -> Terms:
        axes = axes_of(node, view)
        size = size_of(node.inputs[0], axes) if axes is not None else None
        if not is_float(node.inputs[0]):
            return None
        if not isinstance(size, int) or size == 0:
            return [_plain_sum(view, node, of(view, view.args(node)[0]))] if not root else None
        mean = _mean_of(view, node, of(view, view.args(node)[0]))
        if mean is None:
            return None
        total = view.algebra.scale(mean, float(size))
        return [view.algebra.power(total, 0.5) if root else total]

    return handler


def _plain_sum(view: View, node: Node, term: Term) -> Term | None:
    axes = axes_of(node, view)
    if not axes:
        return None
    return view.algebra.operation("ReduceSum", (term,), {"axes": axes, "keepdims": bool(node.attributes.get("keepdims", 1))})


def _is_exp(view: View, node: Node) -> bool:
    term = view.term(node.inputs[0])
    return term is not None and term.op == "Exp"


@handles("ReduceSum")
def _reduce_sum(view: View, node: Node) -> Terms:
    if _is_exp(view, node):  # the denominator of a softmax
        return [_plain_sum(view, node, view.args(node)[0])]
    return _scaled_mean(lambda _, t: t)(view, node)


handles("ReduceSumSquare")(_scaled_mean(lambda view, t: view.algebra.power(t, 2.0)))
handles("ReduceL2")(_scaled_mean(lambda view, t: view.algebra.power(t, 2.0), root=True))


@handles("ReduceMax")
def _reduce_max(view: View, node: Node) -> Terms:
    axes = axes_of(node, view)
    if not axes:
        return None
    return [view.algebra.plain("ReduceMax", view.args(node)[:1], {"axes": axes, "keepdims": bool(node.attributes.get("keepdims", 1))})]


@handles("Softmax")
def _softmax(view: View, node: Node) -> Terms:
    """Below opset 13 softmax runs over all axes from `axis` on (default 1); they agree for the last axis."""
    old = view.graph.opset < 13
    axis = negative_axis(node.attributes.get("axis", 1 if old else -1), node.inputs[0])
    if axis is None or (old and axis != -1):
        return None
    merged = view.layout(node.inputs[0])
    if axis == -1 and merged is not None and not merged[2].is_identity and _keeps_last(merged[2]):
        inner = view.algebra.operation("Softmax", (view.algebra.scale(merged[1], merged[0]),), {"axis": -1})
        return view.view((1.0, inner, merged[2]), lambda layout: layout)
    return [view.algebra.operation("Softmax", view.args(node), {"axis": axis})]


def _keeps_last(layout: Layout) -> bool:
    """Whether the view only regroups the leading axes of its base, which has a last one."""
    if not layout.base:
        return False
    last = identity(layout.base).axes[-1]
    rest = [p for axis in layout.axes[:-1] for p in axis]
    return layout.axes[-1] == last and all(p.axis != len(layout.base) - 1 and p.axis >= 0 for p in rest) and not layout.fixed


@handles("Conv")
def _conv(view: View, node: Node) -> Terms:
    """All attributes as one, so that a pattern need not know which are written."""
    attributes = plain_attributes(node)
    return None if attributes is None else [view.algebra.plain("Conv", view.args(node), {"settings": tuple(sorted(attributes.items()))})]
