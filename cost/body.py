"""Counts of a fused op from its body: the FLOPs of all its nodes, the bytes of its own inputs and outputs alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import onnx
from onnx import helper, inliner

from onnxfuse import graph, shapes
from onnxfuse.cost.count import work
from onnxfuse.cost.types import byte_size, type_name
from onnxfuse.cost.work import Work, fuse
from onnxfuse.errors import ShapeError

Sizes = Sequence[Sequence[int] | None]


def body_work(
    function: onnx.FunctionProto,
    input_shapes: Sizes,
    dtypes: Sequence[int | str | None] | int | str,
    attributes: Mapping[str, Any] | None = None,
    *,
    name: str = "",
) -> Work:
    """What one call of the op that `function` defines costs as one fused kernel.

    input_shapes: one per formal input, None for an absent one. dtypes: one type for all inputs, or one for each.
    Raises ModelError when the body reads what nobody makes, ShapeError when its shapes do not fit or hang on values.
    """
    types = [dtypes] * len(input_shapes) if isinstance(dtypes, (int, str)) else list(dtypes)
    body = _body(function, input_shapes, types, attributes or {})
    parts = [_count(node) for node in body.nodes if node.op != "Constant"]
    read, written = sum(map(_bytes, body.inputs)), sum(map(_bytes, body.outputs))
    return fuse(
        name or function.name,
        parts,
        bytes_read=read,
        bytes_written=written,
        operands=len(body.inputs) + len(body.outputs),
        nodes=len(parts),
    )


def _body(function: onnx.FunctionProto, sizes: Sizes, types: Sequence[int | str | None], attributes: Mapping[str, Any]) -> graph.Graph:
    """The body as a graph of its own, with all shapes that can be known."""
    given = ["" if shape is None else name for name, shape in zip(function.input, sizes, strict=False)]
    inputs = [
        helper.make_tensor_value_info(name, onnx.TensorProto.DataType.Value(type_name(kind).upper()), shape)
        for name, shape, kind in zip(given, sizes, types, strict=True)
        if name and kind is not None
    ]
    node = helper.make_node(function.name, given, list(function.output), domain=function.domain, **attributes)
    node.overload = function.overload
    proto = helper.make_graph([node], function.name, inputs, [onnx.ValueInfoProto(name=output) for output in function.output])
    imports = [*function.opset_import, helper.make_opsetid(function.domain, 1)]
    caller = helper.make_model(proto, functions=[function], opset_imports=imports, ir_version=10)
    model = graph.load(inliner.inline_local_functions(caller))
    shapes.infer(model)
    return model.main


def _count(node: graph.Node) -> Work:
    operands = (*node.inputs, *node.outputs)
    power = node.input(1) if node.op == "Pow" else None
    exponent = graph.constant_value(power, 1) if power is not None else None
    return work(
        node.op,
        [None if value is None else _shape(value) for value in node.inputs],
        [None if value is None else _shape(value) for value in node.outputs],
        [None if value is None else value.dtype for value in operands],
        node.attributes,
        domain=node.domain,
        name=node.label,
        values={} if exponent is None or not exponent.size else {1: float(exponent.reshape(-1)[0])},
    )


def _bytes(value: graph.Value) -> int:
    return byte_size(prod(_shape(value)), type_name(value.dtype))


def _shape(value: graph.Value) -> tuple[int, ...]:
    """The shape as plain ints. Raises ShapeError when a size hangs on values."""
    shape = value.shape
    if shape is None or not all(isinstance(size, int) for size in shape):
        raise ShapeError(f"cost of {value.graph.name}: '{value.name}' must have a shape that follows from those of the inputs; got {shape}")
    return tuple(size for size in shape if isinstance(size, int))
