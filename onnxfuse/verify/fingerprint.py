"""Equal questions are asked once: what makes two rewrites the same for the purpose of validating them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from onnxfuse.verify.compare import FILLER, Difference

MEANINGFUL = 64  # elements; a constant up to this size decides what is computed (an epsilon, a scale, an axis, a shape)
FEW = 4  # distinct values; a tensor of so few is a mask or a filler, not a weight
SYMBOL = re.compile(r"[A-Za-z_]\w*")


def fingerprint(model: onnx.ModelProto) -> str:
    """Return a text that two models share if they compute the same by structure, attributes, types and shapes.

    Names are erased. A constant counts by value if it is small, integer, or made of fillers or few distinct values;
    of other weights only type and shape count.
    """
    writer = _Writer()
    writer.add(sorted((o.domain, o.version) for o in model.opset_import))
    writer.add_graph(model.graph)
    for function in sorted(model.functions, key=lambda f: (f.domain, f.name, f.overload)):
        writer.add_function(function)
    return writer.digest.hexdigest()


class Verdicts:
    """What has been found about rewrites: each kind is validated once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Difference | None] = {}

    def get(self, before: onnx.ModelProto, after: onnx.ModelProto, validate: Callable[[], Difference | None]) -> Difference | None:
        """The verdict on an equal pair if there was one, else what `validate` says. Its errors are not kept."""
        key = fingerprint(before), fingerprint(after)
        if key not in self._found:
            self._found[key] = validate()
        return self._found[key]


class _Writer:
    """Feeds a digest; values and symbols are numbered as they come, so that their names do not count."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.values: dict[str, int] = {}
        self.symbols: dict[str, int] = {}

    def add(self, *parts: Any) -> None:
        self.digest.update(repr(parts).encode())

    def add_graph(self, graph: onnx.GraphProto) -> None:
        for kind, infos in (("in", graph.input), ("out", graph.output)):
            for info in infos:
                self.add(kind, self._value(info.name), self._type(info))
        for tensor in graph.initializer:
            self.add("constant", self._value(tensor.name), *_content(tensor))
        self._nodes(graph.node)
        self.add("end", [self._value(o.name) for o in graph.output])

    def add_function(self, function: onnx.FunctionProto) -> None:
        self.values = {}
        self.add("function", function.domain, function.name, function.overload)
        self.add(sorted((o.domain, o.version) for o in function.opset_import))
        self.add([self._value(n) for n in function.input], list(function.attribute))
        self._nodes(function.node)
        self.add([self._value(n) for n in function.output])

    def _nodes(self, nodes: Iterable[onnx.NodeProto]) -> None:
        for node in nodes:
            self.add("node", node.domain, node.op_type, node.overload, [self._value(n) for n in node.input])
            for attribute in sorted(node.attribute, key=lambda a: a.name):
                self._attribute(attribute)
            self.add([self._value(n) for n in node.output])

    def _attribute(self, attribute: onnx.AttributeProto) -> None:
        self.add(attribute.name, attribute.type, attribute.ref_attr_name)
        if attribute.type == onnx.AttributeProto.GRAPH:
            self.add_graph(attribute.g)
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            for graph in attribute.graphs:
                self.add_graph(graph)
        elif attribute.type == onnx.AttributeProto.TENSOR:
            self.add(*_content(attribute.t))
        else:
            self.add(attribute.SerializeToString(deterministic=True))

    def _value(self, name: str) -> int:
        return self.values.setdefault(name, len(self.values) + 1) if name else 0

    def _type(self, info: onnx.ValueInfoProto) -> str:
        tensor = info.type.tensor_type
        if not info.type.HasField("tensor_type"):
            return str(info.type.SerializeToString(deterministic=True))
        dims = [d.dim_value if d.HasField("dim_value") else SYMBOL.sub(self._symbol, d.dim_param) for d in tensor.shape.dim]
        return f"{tensor.elem_type} {dims if tensor.HasField('shape') else None}"

    def _symbol(self, match: re.Match[str]) -> str:
        return f"s{self.symbols.setdefault(match[0], len(self.symbols))}"


def _content(tensor: TensorProto) -> tuple[Any, ...]:
    """What of a constant counts."""
    head = (tensor.data_type, tuple(tensor.dims))
    if tensor.data_location == TensorProto.EXTERNAL:  # not read here: the place stands for the value
        return (*head, sorted((e.key, e.value) for e in tensor.external_data))
    array = numpy_helper.to_array(tensor)
    if array.dtype.kind == "O":
        return (*head, hashlib.sha256(repr(array.tolist()).encode()).hexdigest())
    if _is_weight(array):
        return (*head, "weights")
    return (*head, hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest())


def _is_weight(array: np.ndarray[Any, Any]) -> bool:
    if array.size <= MEANINGFUL or array.dtype.kind in "iub":
        return False
    values = array.astype(np.float64)
    if not np.isfinite(values).all() or np.abs(values).max() >= FILLER:
        return False
    sample = values.reshape(-1)[:: max(1, values.size // 1024)]
    return len(np.unique(sample)) > FEW
