"""Counts of one ONNX node: FLOPs, special functions, and the bytes it must move.

Shapes are plain ints: the caller puts sizes in for symbolic dims. Nothing here knows a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from onnxfuse.cost import count_attention, count_moves, count_products, count_rows
from onnxfuse.cost.call import Call, Counter, Shape, make
from onnxfuse.cost.types import type_name
from onnxfuse.cost.work import Work
from onnxfuse.errors import ShapeError

COUNTERS: Mapping[str, Counter] = {
    **count_rows.COUNTERS,
    **count_moves.COUNTERS,
    **count_products.COUNTERS,
    **count_attention.COUNTERS,
}


def work(
    op_type: str,
    input_shapes: Sequence[Sequence[int] | None],
    output_shapes: Sequence[Sequence[int] | None],
    dtypes: Sequence[int | str | None] | int | str,
    attributes: Mapping[str, Any] | None = None,
    *,
    domain: str = "",
    name: str = "",
    values: Mapping[int, float] | None = None,
) -> Work:
    """What one call of the ONNX op costs in FLOPs and bytes.

    Shapes are None for operands that are absent. dtypes: one ONNX type (number or name) for all operands, or one per
    input followed by one per output, None where the operand is absent. values: scalar constants among the inputs by
    index, where the cost depends on them (the exponent of Pow). An op that is not known counts one operation for each
    output element, and every operand moved once.
    Raises ShapeError when a shape that the count needs is absent, negative, or too low in rank.
    """
    inputs, outputs = _shapes(op_type, name, input_shapes), _shapes(op_type, name, output_shapes)
    types = _types(op_type, dtypes, len(inputs) + len(outputs))
    call = Call(op_type, name or op_type, inputs, outputs, types, attributes or {}, values or {}, domain)
    counter = COUNTERS.get(f"{domain}:{op_type}") or COUNTERS.get(op_type, other)
    present = sum(shape is not None for shape in (*inputs, *outputs))
    return replace(counter(call), operands=present)


def other(call: Call) -> Work:
    """One operation for each output element, every operand moved once."""
    elements = sum(prod(shape) for shape in call.outputs if shape is not None)
    return make(call, "other", "Identity", elements, part=call.op, elements=elements)


def _types(op: str, dtypes: Sequence[int | str | None] | int | str, count: int) -> tuple[str, ...]:
    if isinstance(dtypes, (int, str)):
        return (type_name(dtypes),) * count
    if len(dtypes) != count:
        raise ShapeError(f"cost of {op}: dtypes must be one type, or one for each of {count} inputs and outputs; got {len(dtypes)}")
    return tuple("float" if dtype is None else type_name(dtype) for dtype in dtypes)


def _shapes(op: str, name: str, shapes: Sequence[Sequence[int] | None]) -> tuple[Shape | None, ...]:
    for shape in shapes:
        if shape is not None and any(not isinstance(d, int) or d < 0 for d in shape):
            raise ShapeError(
                f"cost of {op} '{name}': dims must be integers of at least 0; got {list(shape)}. Put sizes in for symbolic dims"
            )
    return tuple(None if shape is None else tuple(shape) for shape in shapes)
