"""The graph that is matched: onnx-graphsurgeon's nodes and tensors, with what we know of each value.

Nothing here changes a model. A `Model` keeps the original ModelProto; every `Node` knows the NodeProto it
came from (by index), so that the rewriter can patch the original and leave the rest byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from onnxfuse.errors import ModelError
from onnxfuse.symbolic import Dim

STANDARD_DOMAINS = ("", "ai.onnx")


class Value:
    """One tensor of one graph. `shape` holds ints and symbolic dims; None means that not even the rank is known."""

    __slots__ = ("captured", "dtype", "elements", "graph", "is_input", "is_output", "name", "producer", "shape", "tensor", "users")

    def __init__(self, name: str, graph: Graph, tensor: gs.Tensor) -> None:
        self.name = name
        self.graph = graph
        self.tensor = tensor
        self.producer: Node | None = None
        self.users: list[Node] = []  # readers in the same graph, once per operand
        self.captured: list[Node] = []  # nodes of this graph whose body reads the value from outside
        self.is_input = False  # fed by the caller (an initializer that the caller may override counts)
        self.is_output = False
        self.dtype: int = onnx.TensorProto.UNDEFINED
        self.shape: tuple[Dim, ...] | None = None
        self.elements: tuple[Dim, ...] | None = None  # what a small integer tensor (rank 0 or 1) is known to hold

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def is_constant(self) -> bool:
        """Whether the value is the same in every run: an initializer that no caller can override, or a Constant."""
        return self.graph.constant_tensor(self) is not None

    def __repr__(self) -> str:
        dims = "?" if self.shape is None else ",".join(map(str, self.shape))
        return f"Value({self.name!r}, {onnx.TensorProto.DataType.Name(self.dtype).lower()}[{dims}])"


class Node:
    """One operator call. `index` is its place in the node list of its graph, as in the original proto."""

    __slots__ = ("graph", "index", "inputs", "origin", "outputs", "proto", "subgraphs")

    def __init__(self, graph: Graph, index: int, proto: onnx.NodeProto, origin: gs.Node) -> None:
        self.graph = graph
        self.index = index
        self.proto = proto
        self.origin = origin  # the graphsurgeon node
        self.inputs: list[Value | None] = []  # None: an absent optional input
        self.outputs: list[Value | None] = []
        self.subgraphs: list[Graph] = []

    @property
    def op(self) -> str:
        return self.proto.op_type

    @property
    def domain(self) -> str:
        return "" if self.proto.domain in STANDARD_DOMAINS else self.proto.domain

    @property
    def name(self) -> str:
        return self.proto.name

    @property
    def label(self) -> str:
        """What people can find the node by: its name, else its first output."""
        return self.proto.name or next((o for o in self.proto.output if o), f"#{self.index}")

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Decoded attributes; tensors arrive as graphsurgeon values, references as `gs.Node.AttributeRef`."""
        attributes: Mapping[str, Any] = self.origin.attrs
        return attributes

    def input(self, position: int) -> Value | None:
        return self.inputs[position] if position < len(self.inputs) else None

    def __repr__(self) -> str:
        return f"Node({self.op} {self.label!r})"


@dataclass(eq=False)
class Graph:
    """A scope: the main graph, the body of a control-flow node, or the body of a model-local function."""

    name: str
    model: Model
    parent: Node | None
    function: onnx.FunctionProto | None
    proto: onnx.GraphProto | onnx.FunctionProto
    opsets: Mapping[str, int]
    nodes: list[Node] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    initializers: dict[str, onnx.TensorProto] = field(default_factory=dict)

    @property
    def opset(self) -> int:
        return self.opsets.get("", 1)

    @cached_property
    def outer(self) -> Graph | None:
        return None if self.parent is None else self.parent.graph

    def lookup(self, name: str) -> Value | None:
        """The value that `name` means here: of this scope, else of the nearest one around it."""
        if name in self.values:
            return self.values[name]
        return self.outer.lookup(name) if self.outer is not None else None

    def constant_tensor(self, value: Value) -> onnx.TensorProto | None:
        """The tensor a constant holds, its data not loaded yet; None if the value is no constant."""
        if value.is_input:
            return None
        if value.producer is None:
            return self.initializers.get(value.name)
        if value.producer.op != "Constant" or value.producer.domain:
            return None
        return _constant_node_tensor(value.producer.proto)

    def walk(self) -> Iterator[Graph]:
        """This graph and every graph inside it, outermost first."""
        yield self
        for node in self.nodes:
            for body in node.subgraphs:
                yield from body.walk()


@dataclass(eq=False)
class Model:
    """A loaded model. Weights in external files stay there until a constant's value is asked for."""

    proto: onnx.ModelProto
    folder: Path | None  # where external data is found; None for a model that came from memory
    path: Path | None = None
    main: Graph = field(init=False)
    functions: list[Graph] = field(init=False, default_factory=list)

    def graphs(self) -> Iterator[Graph]:
        yield from self.main.walk()
        for function in self.functions:
            yield from function.walk()


def load(source: str | Path | onnx.ModelProto) -> Model:
    """Read a model and index its graphs. External data is not read.

    Raises ModelError when the file is no ONNX model, is cut short, is cyclic, or reads values nobody makes.
    """
    if isinstance(source, onnx.ModelProto):
        return index(source, None, None)
    path = Path(source)
    return index(read_proto(path), path.parent, path)


def read_proto(path: Path) -> onnx.ModelProto:
    """Parse an .onnx file without its external data. Raises ModelError with what to do about it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file. Check the path") from None
    except IsADirectoryError:
        raise ModelError(f"{path}: is a folder. Name the .onnx file in it") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}. Check its permissions") from None
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        raise ModelError(f"{path}: is no ONNX model, or is cut short ({len(data):,} bytes). Export or copy it again") from None
    if not model.HasField("graph") or not model.opset_import:
        raise ModelError(f"{path}: holds no ONNX graph with an opset import ({len(data):,} bytes). Is it an .onnx file?")
    return model


def index(proto: onnx.ModelProto, folder: Path | None, path: Path | None) -> Model:
    """Build the view of an already parsed model. Shapes are not inferred here (see `onnxfuse.shapes`)."""
    model = Model(proto, folder, path)
    opsets = _opsets(proto.opset_import)
    surgeon = gs.import_onnx(_without_weights(proto))
    model.main = _scope(proto.graph.name or "main graph", model, None, None, proto.graph, opsets, list(surgeon.nodes), proto.ir_version)
    for function in proto.functions:
        body = gs.import_onnx(_function_as_model(function, proto.ir_version))
        name = f"function {function.domain}::{function.name}"
        opsets = _opsets(function.opset_import)
        model.functions.append(_scope(name, model, None, function, function, opsets, list(body.nodes), proto.ir_version))
    return model


def constant_value(value: Value, limit: int | None = None) -> np.ndarray | None:
    """What a constant holds, or None when the value is no constant or has more than `limit` elements.

    External data is read here, and only here.
    """
    tensor = value.graph.constant_tensor(value)
    if tensor is None or (limit is not None and int(np.prod(tensor.dims, dtype=np.int64)) > limit):
        return None
    folder = value.graph.model.folder
    try:
        return numpy_helper.to_array(tensor, base_dir=str(folder) if folder else "")
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        reason = f"its data cannot be read: {error}. Put the external data file back beside the model"
        raise ModelError(f"initializer '{value.name}': {reason}") from None


def free_names(graph: Graph) -> set[str]:
    """Names that the nodes of a graph, or of the graphs inside it, read from outside of it."""
    return {name for node in graph.nodes for name in _reads(node.proto) if name not in graph.values}


def _opsets(imports: Any) -> dict[str, int]:
    return {("" if o.domain in STANDARD_DOMAINS else o.domain): o.version for o in imports}


def _scope(
    name: str,
    model: Model,
    parent: Node | None,
    function: onnx.FunctionProto | None,
    proto: onnx.GraphProto | onnx.FunctionProto,
    opsets: Mapping[str, int],
    surgeon_nodes: list[gs.Node],
    ir_version: int,
) -> Graph:
    graph = Graph(name, model, parent, function, proto, opsets)
    if isinstance(proto, onnx.GraphProto):
        graph.initializers = {t.name: t for t in proto.initializer}
        input_names = [i.name for i in proto.input]
        output_names = [o.name for o in proto.output]
    else:
        input_names, output_names = list(proto.input), list(proto.output)
    for initializer in graph.initializers:
        _value(graph, initializer)
    overridable = ir_version >= 4
    for input_name in input_names:
        value = _value(graph, input_name)
        value.is_input = overridable or input_name not in graph.initializers
        graph.inputs.append(value)
    for position, node_proto in enumerate(proto.node):
        _add_node(graph, position, node_proto, surgeon_nodes[position], ir_version)
    _check_order(graph)
    for output_name in output_names:
        made = graph.lookup(output_name)
        if made is None:
            raise ModelError(f"{graph.name}: output '{output_name}' is made by no node. Export the model again")
        if made.graph is graph:
            made.is_output = True
        else:
            _mark_captured(graph, made)
        graph.outputs.append(made)
    return graph


def _value(graph: Graph, name: str, tensor: gs.Tensor | None = None) -> Value:
    value = graph.values.get(name)
    if value is None:
        value = graph.values[name] = Value(name, graph, tensor if tensor is not None else gs.Variable(name))
    return value


def _add_node(graph: Graph, position: int, proto: onnx.NodeProto, origin: gs.Node, ir_version: int) -> None:
    node = Node(graph, position, proto, origin)
    tensors = {t.name: t for t in (*origin.inputs, *origin.outputs)}
    for name in proto.input:
        node.inputs.append(_read(graph, node, name, tensors) if name else None)
    for name in proto.output:
        if not name:
            node.outputs.append(None)
            continue
        value = _value(graph, name, tensors.get(name))
        if value.producer is not None:
            raise ModelError(f"{graph.name}: '{name}' is made twice, by {value.producer.label} and {node.label}. Export the model again")
        value.producer = node
        node.outputs.append(value)
    graph.nodes.append(node)
    for attribute in proto.attribute:
        bodies = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else list(attribute.graphs)
        surgeons = origin.attrs.get(attribute.name)
        for body, surgeon in zip(bodies, surgeons if isinstance(surgeons, list) else [surgeons], strict=False):
            name = f"{graph.name}/{node.label}.{attribute.name}"
            scope = _scope(name, graph.model, node, None, body, graph.opsets, list(surgeon.nodes), ir_version)
            node.subgraphs.append(scope)


def _read(graph: Graph, node: Node, name: str, tensors: dict[str, gs.Tensor]) -> Value:
    value = graph.values.get(name)
    if value is None and graph.outer is not None:
        outer = graph.outer.lookup(name)
        if outer is not None:
            _mark_captured(graph, outer)
            return outer
    if value is None:
        value = _value(graph, name, tensors.get(name))
    value.users.append(node)
    return value


def _mark_captured(graph: Graph, value: Value) -> None:
    """Note on `value` which node of its own graph holds the body that reads it."""
    holder = graph.parent
    while holder is not None and holder.graph is not value.graph:
        holder = holder.graph.parent
    if holder is not None and holder not in value.captured:
        value.captured.append(holder)


def _check_order(graph: Graph) -> None:
    for node in graph.nodes:
        for value in node.inputs:
            if value is None or value.graph is not graph:
                continue
            made = value.producer is not None or value.is_input or value.name in graph.initializers
            if not made and value not in graph.inputs and not _is_sparse(graph, value.name):
                reader = f"{graph.name}: node '{node.label}' ({node.op})"
                raise ModelError(f"{reader} reads '{value.name}', which nothing makes. Export the model again")
            if value.producer is not None and value.producer.index >= node.index:
                raise ModelError(
                    f"{graph.name}: node '{node.label}' ({node.op}) reads '{value.name}' before '{value.producer.label}' makes it: "
                    "the nodes are out of order or form a cycle. Sort them topologically, or export the model again"
                )


def _is_sparse(graph: Graph, name: str) -> bool:
    return isinstance(graph.proto, onnx.GraphProto) and any(s.values.name == name for s in graph.proto.sparse_initializer)


def _reads(proto: onnx.NodeProto) -> Iterator[str]:
    yield from filter(None, proto.input)
    for attribute in proto.attribute:
        bodies = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else list(attribute.graphs)
        for body in bodies:
            inside = {i.name for i in body.input} | {t.name for t in body.initializer}
            for node in body.node:
                yield from (name for name in _reads(node) if name not in inside)
                inside.update(node.output)
            yield from (o.name for o in body.output if o.name not in inside)


def _constant_node_tensor(proto: onnx.NodeProto) -> onnx.TensorProto | None:
    for attribute in proto.attribute:
        if attribute.ref_attr_name:
            return None
        if attribute.name == "value":
            return attribute.t
        if attribute.name == "value_float":
            return numpy_helper.from_array(np.array(attribute.f, np.float32))
        if attribute.name == "value_int":
            return numpy_helper.from_array(np.array(attribute.i, np.int64))
        if attribute.name == "value_floats":
            return numpy_helper.from_array(np.array(attribute.floats, np.float32))
        if attribute.name == "value_ints":
            return numpy_helper.from_array(np.array(attribute.ints, np.int64))
    return None


def _without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model as graphsurgeon needs to see it: the same nodes, no tensor data (it would be copied)."""
    bare = onnx.ModelProto()
    bare.ir_version = proto.ir_version
    bare.opset_import.extend(proto.opset_import)
    if "" not in _opsets(proto.opset_import):  # a model may leave it to its functions; graphsurgeon would warn
        bare.opset_import.add(domain="", version=onnx.defs.onnx_opset_version())
    bare.graph.name = proto.graph.name
    bare.graph.node.extend(proto.graph.node)
    return bare


def _function_as_model(function: onnx.FunctionProto, ir_version: int) -> onnx.ModelProto:
    bare = onnx.ModelProto()
    bare.ir_version = ir_version
    bare.opset_import.extend(function.opset_import)
    bare.graph.name = function.name
    bare.graph.node.extend(function.node)
    return bare
