"""A model as far as its inputs are concerned: who reads which value, which shape it has, what constants hold.

Weights are left out, model-local functions are inlined, shapes are inferred.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, inliner, numpy_helper, shape_inference

DimText: TypeAlias = "int | str | None"  # a number, a name or expression as the model spells it, or nothing known
Shape: TypeAlias = "tuple[DimText, ...]"

SMALL = 1024  # bytes; tensors up to this size keep their data: scales, axes and shapes are that small


@dataclass(frozen=True)
class Reader:
    """Operand `position` of `node`."""

    node: onnx.NodeProto
    position: int


@dataclass
class Sketch:
    """What is known of a model by value name. Names are taken to be unique over nested graphs."""

    proto: onnx.ModelProto
    readers: dict[str, list[Reader]] = field(default_factory=dict)
    makers: dict[str, onnx.NodeProto] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    tensors: dict[str, TensorProto] = field(default_factory=dict)
    links: dict[str, list[str]] = field(default_factory=dict)  # operand of a control-flow node -> the inputs of its bodies

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """Inputs the caller must or may feed, those with a default included."""
        return [i for i in self.proto.graph.input if i.name not in self.tensors or self.proto.ir_version >= 4]

    @cached_property
    def defaults(self) -> set[str]:
        """Inputs that have a default."""
        return {i.name for i in self.inputs} & {t.name for t in self.proto.graph.initializer}

    def constant(self, name: str) -> np.ndarray | None:
        """The value of a small constant, else None."""
        tensor = self.tensors.get(name)
        if tensor is None or name in self.defaults or not has_data(tensor):
            return None
        return numpy_helper.to_array(tensor)


def sketch(model: onnx.ModelProto) -> Sketch:
    """Index a model. Its weights are not copied."""
    result = Sketch(_inferred(_inlined(_bare(model))))
    _add_graph(result, result.proto.graph)
    return result


def shape_of(info: onnx.ValueInfoProto) -> Shape | None:
    """The declared shape of a tensor; None if not even the rank is declared."""
    tensor = info.type.tensor_type
    if not info.type.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    return tuple(_dim(d) for d in tensor.shape.dim)


def _dim(dim: onnx.TensorShapeProto.Dimension) -> DimText:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return dim.dim_param or None


def _bare(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with the data of large initializers gone."""
    bare = onnx.ModelProto(ir_version=max(model.ir_version, 4))
    bare.ir_version = model.ir_version
    bare.opset_import.extend(model.opset_import)
    bare.functions.extend(model.functions)
    bare.graph.name = model.graph.name or "g"
    bare.graph.node.extend(model.graph.node)
    bare.graph.input.extend(model.graph.input)
    bare.graph.output.extend(model.graph.output)
    bare.graph.value_info.extend(model.graph.value_info)
    bare.graph.initializer.extend(_without_data(t) for t in model.graph.initializer)
    return bare


def _without_data(tensor: TensorProto) -> TensorProto:
    if tensor.data_location != TensorProto.EXTERNAL and int(np.prod(tensor.dims, dtype=np.int64)) * 8 <= SMALL:
        return tensor
    return TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)


def has_data(tensor: TensorProto) -> bool:
    return 0 in tensor.dims or _data_size(tensor) > 0


def _data_size(tensor: TensorProto) -> int:
    """How many bytes or elements of data the message itself holds."""
    numbers = (tensor.float_data, tensor.double_data, tensor.int32_data, tensor.int64_data, tensor.uint64_data)
    return len(tensor.raw_data) + len(tensor.string_data) + sum(len(n) for n in numbers)


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    return inliner.inline_local_functions(model) if model.functions else model


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return shape_inference.infer_shapes(model, data_prop=True)
    except (shape_inference.InferenceError, RuntimeError):  # unknown operators and the like: go on with what is declared
        return model


def _add_graph(result: Sketch, graph: onnx.GraphProto) -> None:
    for info in (*graph.input, *graph.output, *graph.value_info):
        shape = shape_of(info)
        if shape is not None:
            result.shapes.setdefault(info.name, shape)
        result.types.setdefault(info.name, info.type.tensor_type.elem_type)
    for tensor in graph.initializer:
        result.tensors[tensor.name] = tensor
        result.shapes[tensor.name] = tuple(tensor.dims)
    for node in graph.node:
        _add_node(result, node)


def _add_node(result: Sketch, node: onnx.NodeProto) -> None:
    for position, name in enumerate(node.input):
        if name:
            result.readers.setdefault(name, []).append(Reader(node, position))
    for name in node.output:
        result.makers[name] = node
    if node.op_type == "Constant":
        _add_constant(result, node)
    for body in bodies(node):
        offset = len(node.input) - len(body.input)  # Loop and Scan pass their last operands on; If passes none
        for position, info in enumerate(body.input):
            if node.op_type in ("Loop", "Scan") and position + offset >= 0:
                result.links.setdefault(node.input[position + offset], []).append(info.name)
        _add_graph(result, body)


def _add_constant(result: Sketch, node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, TensorProto):
            result.tensors[node.output[0]] = value
        elif attribute.name in ("value_float", "value_floats"):
            result.tensors[node.output[0]] = numpy_helper.from_array(np.array(value, np.float32))
        elif attribute.name in ("value_int", "value_ints"):
            result.tensors[node.output[0]] = numpy_helper.from_array(np.array(value, np.int64))
    if node.output[0] in result.tensors:
        result.shapes[node.output[0]] = tuple(result.tensors[node.output[0]].dims)


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that a control-flow node holds."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs
