"""Half of a rotary table: operators of others take one number for both elements of a pair."""

from __future__ import annotations

import numpy as np

from onnxfuse.glue import first_of_last, shape_of
from onnxfuse.graph import Node, Value, constant_value
from onnxfuse.rule import Decline, NewConstant
from onnxfuse.target import GivenOperand, Use

ALIKE = ("Cos", "Sin", "Cast", "Identity", "Neg", "Mul", "Div", "Add", "Sub")  # element by element: halves that agree still do
MOVES = ("Reshape", "Unsqueeze", "Squeeze", "Expand")  # rows stay as they are where the last axis keeps its size


def half(use: Use, name: str, rotary: int) -> tuple[GivenOperand, tuple[Node, ...]]:
    """The table `name` ("cos", "sin") with rotary / 2 numbers a row, and the nodes that say why that is enough.

    Raises Decline where both halves are not known to agree.
    """
    table = use.operand(name)
    if shape_of(table)[-1] == rotary // 2:
        return table, ()
    interleaved = bool(use.attribute("interleaved"))
    if isinstance(table, Value) and (held := constant_value(table)) is not None:
        first, second = _pairs(held, interleaved=interleaved)
        if np.array_equal(first, second):
            return NewConstant(np.ascontiguousarray(first), table), ()
    elif isinstance(table, Value) and not interleaved and (known := _twice(table)) is not None:
        return first_of_last(table, rotary // 2), tuple(known)
    raise Decline(f"both elements of a pair must turn by the same angle; it is not known of {name} '{table.name}'")


def _pairs(table: np.ndarray, *, interleaved: bool) -> tuple[np.ndarray, np.ndarray]:
    if interleaved:
        return table[..., 0::2], table[..., 1::2]
    middle = table.shape[-1] // 2
    return table[..., :middle], table[..., middle:]


def _twice(value: Value) -> list[Node] | None:
    """The nodes, in order, that make the last axis of `value` the same half twice; None where that is not known."""
    node = value.producer
    if node is None or value.shape is None:
        return None
    if node.op == "Concat" and _joins_twice(node, len(value.shape)):
        return [node]
    if node.op == "Gather" and node.attributes.get("axis", 0) == 0:
        return [node] if _is_constant_twice(node.input(0)) else None
    source = _source(node)
    if source is None or source.shape is None or not source.shape or source.shape[-1] != value.shape[-1]:
        return None
    before = _twice(source)
    return None if before is None else [*before, node]


def _source(node: Node) -> Value | None:
    """The one value, scalars apart, that a node makes its result from row by row."""
    if node.op in MOVES:
        return node.input(0)
    others = [v for v in node.inputs if v is not None and not (v.is_constant and v.shape is not None and all(d == 1 for d in v.shape))]
    return others[0] if node.op in ALIKE and len(others) == 1 else None


def _joins_twice(node: Node, rank: int) -> bool:
    first, *others = node.inputs
    return len(others) == 1 and others[0] is first and node.attributes["axis"] in (-1, rank - 1)


def _is_constant_twice(value: Value | None) -> bool:
    """Whether each row of a constant holds its first half once more."""
    held = constant_value(value) if value is not None else None
    if held is None or held.ndim < 2 or held.shape[-1] % 2:
        return False
    return np.array_equal(*_pairs(held, interleaved=False))
