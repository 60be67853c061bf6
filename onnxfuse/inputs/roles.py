"""What each input of a model means, read off the nodes that its values reach.

An input that (through casts, views and arithmetic with constants) picks rows of a table must stay below the row
count; one that is compared, negated or subtracted from 1 is a mask of 0 and 1; one added in front of a Softmax is
an additive mask; one that says a shape must be small and positive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
import onnx
from onnx import TensorProto

from onnxfuse.inputs.sketch import DimText, Reader, Sketch


class Kind(Enum):
    """What to fill an input with."""

    FLOAT = "floats"
    INTEGER = "small integers"
    INDEX = "rows of a table"
    POSITION = "positions, increasing"
    KEEP = "a mask of 0 and 1, 1 where a value counts"
    DROP = "a mask of 0 and 1, 1 where a value is left out"
    ADDITIVE = "a mask that is added to scores"
    SIZE = "sizes"
    AXIS = "an axis"
    BOOL = "true and false"
    STRING = "text"


@dataclass(frozen=True)
class Bound:
    """0 <= scale * value + offset < rows must hold of every value; rows None: unknown."""

    rows: DimText
    scale: float
    offset: float


@dataclass(frozen=True)
class Role:
    """What an input is for. `like`: the value whose shape a SIZE input spells; `tokens`: constants it is compared with."""

    kind: Kind
    bounds: tuple[Bound, ...] = ()
    tokens: tuple[int, ...] = ()
    like: str | None = None


@dataclass(frozen=True)
class _Flow:
    """A value on its way from an input: scale * input + offset, up to views, casts and (inexact) other arithmetic."""

    name: str
    scale: float = 1.0
    offset: float = 0.0
    exact: bool = True  # False behind arithmetic that is no scale or offset


@dataclass
class _Evidence:
    bounds: list[Bound] = field(default_factory=list)
    tokens: set[int] = field(default_factory=set)
    like: str | None = None
    is_size: bool = False
    is_axis: bool = False
    is_mask: bool = False
    is_dropped: bool = False
    is_additive: bool = False


VIEWS = {"Cast", "CastLike", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand", "Tile", "Slice", "Split",
         "Concat", "Dropout", "Pad", "ScatterND", "ScatterElements", "Where", "Min", "Max", "Clip", "Gather", "GatherND", "GatherElements",
         "Trilu"}  # fmt: skip
# (operator, operand): the operand whose rows it picks
TABLES = {("Gather", 1): 0, ("GatherElements", 1): 0, ("GatherND", 1): 0, ("ScatterND", 1): 0, ("ScatterElements", 1): 0,
          ("EmbedLayerNormalization", 0): 2, ("EmbedLayerNormalization", 1): 4, ("EmbedLayerNormalization", 7): 3,
          ("RotaryEmbedding", 3): 1}  # fmt: skip
CONTRIB_TABLES = {("RotaryEmbedding", 1): 2}
SIZES = {("Reshape", 1), ("Expand", 1), ("ConstantOfShape", 0), ("Range", 0), ("Range", 1), ("Range", 2), ("Slice", 1), ("Slice", 2),
         ("Slice", 4), ("Tile", 1), ("TopK", 1),
         ("Pad", 1), ("Resize", 3), ("Loop", 0), ("Split", 1), ("OneHot", 1), ("Trilu", 1)}  # fmt: skip
AXES = {("Slice", 3), ("CumSum", 1), ("Unsqueeze", 1), ("Squeeze", 1)}
REDUCTIONS = re.compile(r"Reduce\w+")
LOGIC = {"Not", "And", "Or", "Xor", "NonZero", "CumSum"}
COMPARISONS = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}
KEEP_OPERANDS = {("MultiHeadAttention", 4), ("Attention", 3), ("EmbedLayerNormalization", 6)}
MANY = 1e4  # a factor or filler of at least this size is there to drive a score out of a Softmax
NAMED_MASK = re.compile(r"mask|(^|[_.])pad(ding)?($|[_.])|keep", re.IGNORECASE)
NAMED_DROP = re.compile(r"pad", re.IGNORECASE)
NAMED_POSITION = re.compile(r"(^|[_.])pos(ition)?(s|_?ids?)?($|[_.])", re.IGNORECASE)
INTEGERS = {TensorProto.INT64, TensorProto.INT32, TensorProto.INT16, TensorProto.INT8, TensorProto.UINT8, TensorProto.UINT16,
            TensorProto.UINT32, TensorProto.UINT64}  # fmt: skip
REACH = 400  # values followed from one input; what matters stands near it


def roles(model: Sketch) -> dict[str, Role]:
    """Return the role of every input tensor, by name."""
    return {info.name: _role(model, info) for info in model.inputs if info.type.HasField("tensor_type")}


def _role(model: Sketch, info: onnx.ValueInfoProto) -> Role:
    dtype = info.type.tensor_type.elem_type
    if dtype == TensorProto.STRING:
        return Role(Kind.STRING)
    found = _evidence(model, info.name, dtype)
    if dtype == TensorProto.BOOL:
        kind = _mask_kind(info.name, found) if found.is_mask or NAMED_MASK.search(info.name) else Kind.BOOL
        return Role(kind)
    if dtype not in INTEGERS:
        return Role(_float_kind(info.name, found))
    return Role(_integer_kind(info.name, found), tuple(found.bounds), tuple(sorted(found.tokens)), found.like)


def _float_kind(name: str, found: _Evidence) -> Kind:
    if found.is_additive:
        return Kind.ADDITIVE
    return _mask_kind(name, found) if found.is_mask or NAMED_MASK.search(name) else Kind.FLOAT


def _integer_kind(name: str, found: _Evidence) -> Kind:
    if NAMED_POSITION.search(name):
        return Kind.POSITION
    if found.bounds and not NAMED_MASK.search(name):
        return Kind.INDEX
    if found.is_axis:
        return Kind.AXIS
    if found.is_size:
        return Kind.SIZE
    if found.is_mask or NAMED_MASK.search(name):
        return _mask_kind(name, found)
    return Kind.INTEGER


def _mask_kind(name: str, found: _Evidence) -> Kind:
    return Kind.DROP if found.is_dropped or NAMED_DROP.search(name) else Kind.KEEP


def _evidence(model: Sketch, name: str, dtype: int) -> _Evidence:
    """Follow an input through the nodes that keep its values, and note what the others use it for."""
    found, seen, queue = _Evidence(), {name}, [_Flow(name)]
    while queue and len(seen) < REACH:
        flow = queue.pop(0)
        for reader in model.readers.get(flow.name, []):
            _note(model, flow, reader, dtype, found)
            for after in _onward(model, flow, reader):
                if after.name not in seen:
                    seen.add(after.name)
                    queue.append(after)
        inner = [replace(flow, name=inside) for inside in model.links.get(flow.name, []) if inside not in seen]
        seen.update(f.name for f in inner)
        queue += inner
    return found


def _note(model: Sketch, flow: _Flow, reader: Reader, dtype: int, found: _Evidence) -> None:
    node, place = reader.node, (reader.node.op_type, reader.position)
    table = (CONTRIB_TABLES if node.domain else {}).get(place, TABLES.get(place))
    if table is not None and flow.exact:
        found.bounds.append(_bound(model, node, table, flow))
    if place in SIZES:
        found.is_size = True
        found.like = found.like or (node.output[0] if place[0] in ("Reshape", "Expand", "ConstantOfShape") else None)
    if place in AXES or (REDUCTIONS.fullmatch(place[0]) and place[1] == 1):
        found.is_axis = True
    if flow.exact and flow.name in node.input:
        _note_mask(model, flow, reader, dtype, found)


def _bound(model: Sketch, node: onnx.NodeProto, table: int, flow: _Flow) -> Bound:
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    shape = model.shapes.get(node.input[table]) if table < len(node.input) else None
    rows = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
    return Bound(rows, flow.scale, flow.offset)


def _note_mask(model: Sketch, flow: _Flow, reader: Reader, dtype: int, found: _Evidence) -> None:
    node, operator = reader.node, reader.node.op_type
    if operator in LOGIC or (operator, reader.position) in KEEP_OPERANDS:
        found.is_mask = found.is_mask or dtype in INTEGERS or dtype == TensorProto.BOOL
        found.is_additive = found.is_additive or operator == "Attention" and dtype not in INTEGERS and dtype != TensorProto.BOOL
    elif operator == "Where" and reader.position == 0:
        found.is_mask = True
        found.is_dropped = found.is_dropped or _is_filler(model, node.input[1])
    elif operator == "Cast" and _cast_to(node) == TensorProto.BOOL:
        found.is_mask = True
    elif operator in COMPARISONS:
        constant = _scalar(model, node.input[1 - reader.position])
        if constant is not None and constant in (0, 1) and not flow.offset:
            found.is_mask = True
        if constant is not None and constant == int(constant):
            found.tokens.add(int(constant))
    elif operator == "Sub" and reader.position == 1 and _scalar(model, node.input[0]) == 1:
        found.is_mask = True
    elif operator == "Mul":
        factor = _scalar(model, node.input[1 - reader.position]) or 0.0
        found.is_mask = found.is_mask or abs(factor) >= MANY
        found.is_dropped = found.is_dropped or factor * flow.scale <= -MANY  # 1 drives the score down
    elif operator == "Add" and dtype not in INTEGERS and flow.scale == 1:
        found.is_additive = found.is_additive or _reaches_softmax(model, node.output[0])


def _onward(model: Sketch, flow: _Flow, reader: Reader) -> Iterator[_Flow]:
    """The outputs of a node that still carry the values of the input."""
    node, position = reader.node, reader.position
    if node.op_type in VIEWS:
        if (node.op_type, position) not in (SIZES | AXES | TABLES.keys() | {("Where", 0)}):
            yield from (replace(flow, name=name) for name in node.output if name)
        return
    step = ARITHMETIC.get(node.op_type)
    if step is None or len(node.input) != 2:
        return
    constant = _scalar(model, node.input[1 - position])
    moved = step(flow, position, constant) if constant is not None else None
    yield replace(moved or replace(flow, exact=False), name=node.output[0])


def _add(flow: _Flow, position: int, constant: float) -> _Flow:
    return replace(flow, offset=flow.offset + constant)


def _sub(flow: _Flow, position: int, constant: float) -> _Flow:
    if position == 0:
        return replace(flow, offset=flow.offset - constant)
    return replace(flow, scale=-flow.scale, offset=constant - flow.offset)


def _mul(flow: _Flow, position: int, constant: float) -> _Flow | None:
    return replace(flow, scale=flow.scale * constant, offset=flow.offset * constant) if constant else None


def _div(flow: _Flow, position: int, constant: float) -> _Flow | None:
    return _mul(flow, position, 1 / constant) if constant and position == 0 else None


ARITHMETIC: dict[str, Callable[[_Flow, int, float], _Flow | None]] = {"Add": _add, "Sub": _sub, "Mul": _mul, "Div": _div}


def _scalar(model: Sketch, name: str) -> float | None:
    """The value of a numeric constant of one element, else None."""
    constant = model.constant(name)
    if constant is None or constant.size != 1 or constant.dtype.kind in "OUS":
        return None
    return float(constant.reshape(()).astype(np.float64))


def _is_filler(model: Sketch, name: str) -> bool:
    value = _scalar(model, name)
    return value is not None and value <= -MANY


def _cast_to(node: onnx.NodeProto) -> int:
    return next((a.i for a in node.attribute if a.name == "to"), 0)


def _reaches_softmax(model: Sketch, name: str, depth: int = 6) -> bool:
    """Whether a value arrives at a Softmax with nothing but views and further masks on its way."""
    if depth == 0:
        return False
    for reader in model.readers.get(name, []):
        if reader.node.op_type in ("Softmax", "LogSoftmax"):
            return True
        keeps = reader.node.op_type in VIEWS | {"Add", "Mul", "Div"}
        if keeps and _reaches_softmax(model, reader.node.output[0], depth - 1):
            return True
    return False
