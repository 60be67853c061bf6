"""A copy of a model that computes in float32 what the model computes in a half type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, inliner, numpy_helper, shape_inference

NARROW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "softmax_precision", "stash_type")


def has_narrow(model: onnx.ModelProto) -> bool:
    """Whether a half type goes in or out of a model."""
    return any(v.type.tensor_type.elem_type in NARROW for v in (*model.graph.input, *model.graph.output))


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its local functions inlined; itself if it has none."""
    return inliner.inline_local_functions(model) if model.functions else model


def widen(model: onnx.ModelProto, folder: Path | None = None, *, round_constants: bool = False) -> onnx.ModelProto:
    """Return the model in float32, its functions inlined. Casts to a half type no longer round.

    round_constants: casts of constants still do, for an epsilon that is 0 in the half type.
    External data of half tensors is read from `folder`.
    """
    wide = onnx.ModelProto()
    wide.CopyFrom(inlined(model))
    rounded = cast_constants(wide) if round_constants else {}
    _widen_graph(wide.graph, folder)
    if rounded:
        nodes = [part for node in wide.graph.node for part in _split_cast(node, rounded)]
        del wide.graph.node[:]
        wide.graph.node.extend(nodes)
    return wide


def has_cast_constants(model: onnx.ModelProto) -> bool:
    """Whether `round_constants` makes a difference."""
    return bool(cast_constants(inlined(model)))


def widen_feed(feed: dict[str, Any]) -> dict[str, Any]:
    """The same feed with half arrays in float32."""
    return {name: value.astype(np.float32) if is_narrow(value) else value for name, value in feed.items()}


def is_narrow(value: Any) -> bool:
    """Whether a value is an array of a half type."""
    return isinstance(value, np.ndarray) and value.dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def cast_constants(model: onnx.ModelProto) -> dict[str, int]:
    """Values of the main graph that are constants cast to a half type, and that type."""
    inferred = shape_inference.infer_shapes(model)
    types = {v.name: v.type.tensor_type.elem_type for v in (*inferred.graph.value_info, *inferred.graph.output)}
    constants = {t.name for t in model.graph.initializer} - {i.name for i in model.graph.input}
    found: dict[str, int] = {}
    for node in model.graph.node:
        if node.op_type == "Constant" or (node.op_type in ("Cast", "CastLike", "Identity") and node.input[0] in constants):
            constants.add(node.output[0])
            if node.op_type != "Constant" and types.get(node.output[0]) in NARROW:
                found[node.output[0]] = types[node.output[0]]
    return found


def _split_cast(node: onnx.NodeProto, rounded: dict[str, int]) -> list[onnx.NodeProto]:
    """A cast to float32 by way of the half type."""
    if node.output[0] not in rounded:
        return [node]
    middle = f"{node.output[0]}/rounded"
    return [
        helper.make_node("Cast", [node.input[0]], [middle], to=rounded[node.output[0]]),
        helper.make_node("Cast", [middle], [node.output[0]], to=TensorProto.FLOAT),
    ]


def _widen_graph(graph: onnx.GraphProto, folder: Path | None) -> None:
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type in NARROW:
            info.type.tensor_type.elem_type = TensorProto.FLOAT
    for tensor in graph.initializer:
        _widen_tensor(tensor, folder)
    for node in graph.node:
        for attribute in node.attribute:
            _widen_attribute(attribute, folder)


def _widen_attribute(attribute: onnx.AttributeProto, folder: Path | None) -> None:
    if attribute.type == onnx.AttributeProto.TENSOR:
        _widen_tensor(attribute.t, folder)
    elif attribute.type == onnx.AttributeProto.INT and attribute.name in TYPE_ATTRIBUTES and attribute.i in NARROW:
        attribute.i = TensorProto.FLOAT
    elif attribute.type == onnx.AttributeProto.GRAPH:
        _widen_graph(attribute.g, folder)
    for graph in attribute.graphs:
        _widen_graph(graph, folder)


def _widen_tensor(tensor: TensorProto, folder: Path | None) -> None:
    if tensor.data_type in NARROW:
        array = numpy_helper.to_array(tensor, base_dir=str(folder) if folder else "")
        tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), tensor.name))
