"""Shapes of standard ops that have no rule of ours: ONNX's own inference, asked about one node at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import defs, numpy_helper, shape_inference

from onnxfuse.shape_facts import NOTHING, Call, Fact
from onnxfuse.symbolic import Dim

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview.training")


def outputs(call: Call) -> list[Fact]:
    """What ONNX infers for the outputs of a node; nothing where it knows no such op or finds the node invalid."""
    node = call.node
    nothing = [NOTHING] * len(node.outputs)
    version = node.graph.opsets.get(node.domain)
    if node.domain not in DOMAINS or version is None or any(a.ref_attr_name for a in node.proto.attribute):
        return nothing
    dims: dict[str, Dim] = {}
    types = _types(call, dims)
    if not types.keys() >= set(filter(None, node.proto.input)):  # it insists on a type for every input
        return nothing
    try:
        schema = defs.get_schema(node.op, version, node.domain)
        found = shape_inference.infer_node_outputs(schema, node.proto, types, _data(call), opset_imports=_imports(call))
    except (defs.SchemaError, shape_inference.InferenceError, onnx.checker.ValidationError):
        return nothing
    return [_fact(call, i, found.get(v.name) if v is not None else None, dims) for i, v in enumerate(node.outputs)]


def _imports(call: Call) -> list[onnx.OperatorSetIdProto]:
    return [onnx.helper.make_opsetid(domain, version) for domain, version in call.node.graph.opsets.items()]


def _given(call: Call) -> Iterator[tuple[str, int, Fact]]:
    """Name, position and fact of each input whose type is known."""
    for position, name in enumerate(call.node.proto.input):
        fact = call.fact(position)
        if name and fact.dtype:
            yield name, position, fact


def _types(call: Call, dims: dict[str, Dim]) -> dict[str, onnx.TypeProto]:
    """Types of the inputs; symbolic sizes become names that `dims` turns back."""
    types = {}
    for name, _, fact in _given(call):
        shape = None if fact.shape is None else [d if isinstance(d, int) else _named(d, dims) for d in fact.shape]
        types[name] = onnx.helper.make_tensor_type_proto(fact.dtype, shape)
    return types


def _named(dim: Dim, dims: dict[str, Dim]) -> str:
    for name, known in dims.items():
        if known == dim:
            return name
    name = f"d{len(dims)}"
    dims[name] = dim
    return name


def _data(call: Call) -> dict[str, onnx.TensorProto]:
    """Inputs whose contents are known numbers."""
    data = {}
    for name, position, fact in _given(call):
        tensor = _tensor(call, position, fact)
        if tensor is not None:
            data[name] = tensor
    return data


def _tensor(call: Call, position: int, fact: Fact) -> onnx.TensorProto | None:
    if fact.elements is not None and fact.shape is not None and all(isinstance(e, int) for e in fact.elements):
        array = np.array(fact.elements, onnx.helper.tensor_dtype_to_np_dtype(fact.dtype))
        return numpy_helper.from_array(array.reshape([d for d in fact.shape if isinstance(d, int)]))
    value = call.node.input(position)
    tensor = value.graph.constant_tensor(value) if value is not None else None
    is_small = tensor is not None and int(np.prod(tensor.dims)) <= 64 and tensor.data_location != onnx.TensorProto.EXTERNAL
    return tensor if is_small else None


def _fact(call: Call, output: int, found: onnx.TypeProto | None, dims: dict[str, Dim]) -> Fact:
    if found is None or not found.HasField("tensor_type"):
        return NOTHING
    tensor = found.tensor_type
    if not tensor.HasField("shape"):
        return Fact(tensor.elem_type)
    sizes = (d.dim_value if d.HasField("dim_value") else dims.get(d.dim_param) for d in tensor.shape.dim)
    return Fact(tensor.elem_type, tuple(call.fresh(axis, output) if s is None else s for axis, s in enumerate(sizes)))
