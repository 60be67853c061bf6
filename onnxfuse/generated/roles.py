"""What a node can be to a generated operator: pointwise, a reduction of rows, a view, inputs that are joined; or why it has no part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, TypeAlias

import onnx

from onnxfuse.generated.primitives import CONCAT, MOST_PIECES, TYPES
from onnxfuse.generated.writer import POINTWISE, REDUCE, ROWS
from onnxfuse.graph import Node, Value, constant_value
from onnxfuse.symbolic import Dim, broadcast

Shape: TypeAlias = tuple[Dim, ...]
Kind = Literal["pointwise", "row", "reduce", "view", "join"]
VIEWS = ("Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Expand", "Dropout")
CUMULATIVE = ("CumSum", "CumProd")
AXES_INPUT_SINCE = 18


@dataclass(frozen=True)
class Role:
    """What a node does, and from which of its inputs.

    shape: of its result where that stands in one line with the operands; a reduction keeps its axes with size 1. axes: how
    many trailing axes form the row, 0 where there is none. dropped: a reduction whose own result has lost those axes. The
    operands of a join, a Concat, are read from outside.
    """

    kind: Kind
    operands: tuple[Value | None, ...]
    shape: Shape
    axes: int = 0
    dropped: bool = False


def role_of(node: Node) -> Role | str:
    """The role of a node, or why it has none."""
    reason = _reason_against(node)
    if reason is not None:
        return reason
    shape = node.outputs[0].shape if node.outputs and node.outputs[0] is not None else None
    assert shape is not None
    if node.op == CONCAT:
        return Role("join", tuple(v for v in node.inputs if v is not None), shape)
    if node.op in POINTWISE:
        operands = node.inputs[:1] if node.op == "CastLike" else node.inputs
        return Role("pointwise", tuple(operands), shape)
    if node.op in ROWS:
        return _row(node, shape)
    return _reduce(node, shape) if node.op in REDUCE else _view(node, shape)


def _reason_against(node: Node) -> str | None:
    if node.domain or node.subgraphs or node.op not in (*POINTWISE, *ROWS, *REDUCE, *VIEWS, CONCAT):
        if node.op in CUMULATIVE:
            return f"{node.op} is cumulative: each element waits for the one before it"
        return f"{node.op} is neither pointwise nor a reduction of rows"
    if node.op == CONCAT and len(node.inputs) > MOST_PIECES:
        return f"a Concat of {len(node.inputs)} is left as it is; of at most {MOST_PIECES} it would be taken"
    if node.op == "Dropout" and (len(node.outputs) > 1 and node.outputs[1] is not None or node.input(2) is not None):
        return "a Dropout whose mask or mode is used is no view"
    value = node.outputs[0] if node.outputs else None
    if value is None or value.shape is None:
        return "the rank of its result is not known"
    if value.elements is not None:
        return "it computes sizes, which are known or worked out elsewhere"
    if all(v is None or v.is_constant for v in node.inputs):
        return "it is a constant, worked out when the model is loaded"
    for operand in (value, *(v for v in node.inputs if v is not None)):
        if type_of(operand) not in TYPES:
            return f"'{operand.name}' is of a type that generated operators do not take"
        if operand.shape is None:
            return f"the rank of '{operand.name}' is not known"
    return None


def type_of(value: Value) -> str:
    """The name of a value's type: float16; "undefined" where it is not known."""
    return str(onnx.TensorProto.DataType.Name(value.dtype)).lower()


def _row(node: Node, shape: Shape) -> Role | str:
    """Softmax: over one axis, before opset 13 over all from that one on."""
    rank = len(shape)
    axis = int(node.attributes.get("axis", -1 if node.graph.opset >= 13 else 1))
    axis += rank if axis < 0 else 0
    if node.graph.opset >= 13 and axis != rank - 1:
        return f"its row must be the last axis; it is axis {axis} of {rank}"
    if not 0 <= axis < rank:
        return "it has no row"
    return Role("row", tuple(node.inputs), shape, rank - axis)


def _reduce(node: Node, shape: Shape) -> Role | str:
    source = node.input(0)
    assert source is not None and source.shape is not None
    rank = len(source.shape)
    axes = reduced_axes(node, rank)
    if axes is None:
        return "the axes that it reduces must be known"
    if not axes or axes != list(range(rank - len(axes), rank)):
        return f"the axes that it reduces must be the last ones; they are {axes} of {rank}"
    kept = (*source.shape[: rank - len(axes)], *[1] * len(axes))
    return Role("reduce", (source,), kept, len(axes), dropped=shape != kept)


def reduced_axes(node: Node, rank: int) -> list[int] | None:
    """The axes that a Reduce goes over, from 0 on and in order; None where they are not known."""
    given = node.attributes.get("axes")
    listed = node.input(1)
    if listed is not None:
        held = constant_value(listed)
        if held is None:
            return None
        given = held.reshape(-1).tolist()
    if not given:
        return [] if node.attributes.get("noop_with_empty_axes", 0) else list(range(rank))
    return sorted(int(axis) % rank for axis in given)


def _view(node: Node, shape: Shape) -> Role | str:
    source = node.input(0)
    assert source is not None and source.shape is not None
    if any(v is not None and not v.is_constant and v.elements is None for v in node.inputs[1:]):
        return "the shape that it gives must be known"
    if node.op == "Expand":
        return Role("view", (source,), shape)
    if _bare(source.shape) == _bare(shape):
        return Role("view", (source,), shape)
    if restores(node) is not None:
        return Role("view", (source,), shape)
    return f"{node.op} moves axes: elements that stood over each other no longer do"


def restores(node: Node) -> Node | None:
    """The reduction whose lost axes the node puts back, if it is one that does."""
    source = node.input(0)
    made = source.producer if source is not None else None
    if made is None or node.op not in ("Unsqueeze", "Reshape") or made.op not in REDUCE or made.domain or node.outputs[0] is None:
        return None
    role = _reduce(made, source.shape or ()) if source is not None and _reason_against(made) is None else None
    return made if isinstance(role, Role) and role.dropped and role.shape == node.outputs[0].shape else None


def _bare(shape: Shape) -> Shape:
    """Without the leading axes of size 1, which broadcasting puts there by itself."""
    first = next((i for i, d in enumerate(shape) if d != 1), len(shape))
    return shape[first:]


def common_shape(shapes: Sequence[Shape]) -> Shape:
    """What the shapes are broadcast to."""
    rank = max(map(len, shapes), default=0)
    made: list[Dim] = []
    for dims in zip(*((*[1] * (rank - len(s)), *s) for s in shapes), strict=True):
        made.append(reduce(broadcast, dims))
    return tuple(made)
