"""`--clean`: what a model does not need goes, fused or not. What stays computes what it did, from the same numbers.

Sizes that are known become constants; a Reshape is told -1 and 0 instead of sizes that others work out; what only
constants go into is worked out now, where the result is small; what is computed twice is computed once; operators that
change nothing, and pairs that undo each other, are passed by; what nobody reads goes. Control flow and the bodies of
functions stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import numpy_helper

from onnxfuse import runtime, shapes
from onnxfuse.canonical import View
from onnxfuse.canonical.view import UNREPEATABLE
from onnxfuse.errors import OnnxFuseError
from onnxfuse.graph import Graph, Model, Node, Value
from onnxfuse.names import Names, names_in
from onnxfuse.rewriter import keep, reads
from onnxfuse.symbolic import Dim

MAX_BYTES = 2**20  # of a folded result that is larger than all that went into it
NEVER_FOLDED = UNREPEATABLE | {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}  # runtimes look for these
MOVES = {"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand"}  # every number stays what it is
REASONS = ("known sizes", "constants", "computed twice", "no effect", "unread")


@dataclass
class Cleaned:
    """The model, and how many nodes went for each of REASONS."""

    proto: onnx.ModelProto
    gone: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        """`12 nodes: 7 known sizes, 5 unread`."""
        parts = [f"{self.gone[reason]} {reason}" for reason in REASONS if self.gone[reason]]
        return f"{sum(self.gone.values())} nodes went" + (f": {', '.join(parts)}" if parts else "")


def clean(model: Model) -> Cleaned:
    """The model without what it does not need; the one given stays as it is."""
    result = Cleaned(onnx.ModelProto())
    result.proto.CopyFrom(model.proto)
    shapes.infer(model)
    _Cleaner(model, result).run()
    return result


class _Cleaner:
    """Plans on the indexed model, and edits the copy; node by node, in graph order."""

    def __init__(self, model: Model, result: Cleaned) -> None:
        self.main, self.result, self.proto = model.main, result, result.proto.graph
        self.view = View(model.main)
        self.names = Names(names_in(result.proto))
        self.alias: dict[str, str] = {}
        self.tensors: dict[str, onnx.TensorProto] = {}
        self.reasons: dict[int, str] = {}
        self.folded: dict[Value, onnx.TensorProto] = {}

    def run(self) -> None:
        self._know_sizes()
        self._fold()
        for node in self.main.nodes:
            if node.index not in self.reasons and _is_movable(node):
                self._pass_by(node)
        self._edit()
        self._drop_unread()

    def _know_sizes(self) -> None:
        for node in self.main.nodes:
            made = [o for o in node.outputs if o is not None]
            known = [o.elements for o in made if o.elements is not None and all(isinstance(n, int) for n in o.elements)]
            if made and len(known) == len(made) and node.op != "Constant" and _is_movable(node):
                for value in made:
                    self.tensors[value.name] = _integers(value)
                self.reasons[node.index] = "known sizes"

    def _fold(self) -> None:
        """What constants go into, run in one small model."""
        constant = {v for v in self.main.values.values() if v.is_constant and not self._is_outside(v)}
        todo: list[Node] = []
        for node in self.main.nodes:
            ready = node.inputs and all(v is None or v in constant or v.name in self.tensors for v in node.inputs)
            if node.index not in self.reasons and ready and _is_foldable(node) and not node.domain:
                todo.append(node)
                constant |= {o for o in node.outputs if o is not None}
        made = dict.fromkeys(o for n in todo for o in n.outputs if o is not None)
        wanted = [v for v in made if v.is_output or v.captured or any(u not in todo for u in v.users)]
        for value, array in zip(wanted, self._worked_out(todo, made, wanted), strict=False):
            self.tensors[value.name] = numpy_helper.from_array(np.asarray(array), value.name)
        if all(v.name in self.tensors for v in wanted):
            self.reasons.update((n.index, "constants") for n in todo)

    def _worked_out(self, nodes: list[Node], made: Collection[Value], wanted: list[Value]) -> list[np.ndarray]:
        if not wanted:
            return []
        read = dict.fromkeys(v for n in nodes for v in n.inputs if v is not None and v not in made)
        tensors = [self.tensors[v.name] if v.name in self.tensors else _tensor(self.main, v) for v in read]
        outputs = [onnx.helper.make_tensor_value_info(v.name, v.dtype, None) for v in wanted]
        body = onnx.helper.make_graph([n.proto for n in nodes], "constants", [], outputs, tensors)
        small = onnx.helper.make_model(body, opset_imports=list(self.result.proto.opset_import), ir_version=self.result.proto.ir_version)
        try:
            return runtime.run(runtime.session(small, ["CPUExecutionProvider"], optimizations=False, register=False), {})
        except OnnxFuseError:  # what cannot be run alone stays
            return []

    def _is_outside(self, value: Value) -> bool:
        tensor = self.main.constant_tensor(value)
        return tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL

    def _pass_by(self, node: Node) -> None:
        made = [o for o in node.outputs if o is not None]
        others = [self._same(value) for value in made]
        if made and all(o is not None for o, _ in others):
            self.alias.update((value.name, other.name) for value, (other, _) in zip(made, others, strict=True) if other is not None)
            self.reasons[node.index] = others[0][1]

    def _same(self, value: Value) -> tuple[Value | None, str]:
        """(an earlier value that holds the very same, why), None where there is none, or where the name is needed."""
        if value.is_output or value.captured:
            return None, ""
        earlier = (v for v in self.view.values[self.view.terms[value]] if v is not value and _is_before(v, value))
        for other in filter(self._is_there, earlier):
            if (other.dtype, other.shape) != (value.dtype, value.shape):
                continue
            if other in self.view.twins(value):
                return other, "computed twice"
            if value.shape is not None and _source(other) is _source(value):
                return other, "no effect"
        return None, ""

    def _is_there(self, value: Value) -> bool:
        """Whether it still has its name, once what constants go into is worked out."""
        return value.name in self.tensors or value.producer is None or self.reasons.get(value.producer.index) != "constants"

    def _edit(self) -> None:
        nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for i, n in enumerate(self.proto.node) if i not in self.reasons]
        kept = [n for n in self.main.nodes if n.index not in self.reasons]
        for proto, node in zip(nodes, kept, strict=True):
            if (told := _told(node)) is not None:
                proto.input[1] = self.names.fresh(f"{proto.input[1]}_told")
                self.tensors[proto.input[1]] = numpy_helper.from_array(np.array(told, np.int64), proto.input[1])
            proto.input[:] = [self._now(name) for name in proto.input]
        del self.proto.node[:]
        self.proto.node.extend(nodes)
        self.proto.initializer.extend(self.tensors.values())
        self.result.gone.update(self.reasons.values())

    def _now(self, name: str) -> str:
        while name in self.alias:
            name = self.alias[name]
        return name

    def _drop_unread(self) -> None:
        read = Counter(name for node in self.proto.node for name in reads(node)) + Counter(o.name for o in self.proto.output)
        nodes = list(self.proto.node)
        for position in range(len(nodes) - 1, -1, -1):
            node = nodes[position]
            if any(read[o] for o in node.output):
                continue
            read.subtract(reads(node))
            self.result.gone["unread"] += node.op_type != "Constant"
            del self.proto.node[position]
        inputs = {i.name for i in self.proto.input}
        made = inputs | {o for n in self.proto.node for o in n.output}
        keep(self.proto.initializer, lambda t: bool(read[t.name]) or t.name in inputs)
        keep(self.proto.sparse_initializer, lambda t: bool(read[t.values.name]) or t.values.name in inputs)
        keep(self.proto.value_info, lambda v: v.name in made)


def _is_movable(node: Node) -> bool:
    return not node.subgraphs and node.op not in UNREPEATABLE - {"Dropout"}


def _is_foldable(node: Node) -> bool:
    """Whether what it gives is worth keeping in the file: small, or no larger than what goes into it."""
    sizes = [_bytes(v) for v in node.outputs if v is not None]
    if node.subgraphs or node.op in NEVER_FOLDED or None in sizes:
        return False
    given = sum(_bytes(v) or 0 for v in node.inputs if v is not None)
    return sum(n for n in sizes if n is not None) <= max(MAX_BYTES, given)


def _bytes(value: Value) -> int | None:
    known = [d for d in value.shape or () if isinstance(d, int)]
    if value.shape is None or len(known) < len(value.shape) or value.dtype == onnx.TensorProto.STRING:
        return None
    return int(np.prod(known, dtype=np.int64)) * onnx.helper.tensor_dtype_to_np_dtype(value.dtype).itemsize


def _integers(value: Value) -> onnx.TensorProto:
    array = np.array(value.elements, onnx.helper.tensor_dtype_to_np_dtype(value.dtype)).reshape((-1,) if value.rank else ())
    return numpy_helper.from_array(array, value.name)


def _tensor(scope: Graph, value: Value) -> onnx.TensorProto:
    held = onnx.TensorProto()
    found = scope.constant_tensor(value)
    assert found is not None, f"'{value.name}' is no constant"
    held.CopyFrom(found)
    held.name = value.name
    return held


def _is_before(other: Value, value: Value) -> bool:
    assert value.producer is not None
    return other.producer is None or (other.graph is value.graph and other.producer.index < value.producer.index)


def _source(value: Value) -> Value:
    """Where the numbers come from that operators have but moved."""
    while value.producer is not None and _moves(value.producer):
        (source,) = value.producer.inputs[:1]
        if source is None or source.graph is not value.graph:
            break
        value = source
    return value


def _moves(node: Node) -> bool:
    if node.domain:
        return False
    source = node.input(0)
    same_type = node.op == "Cast" and source is not None and node.outputs[0] is not None and source.dtype == node.outputs[0].dtype
    return node.op in MOVES or same_type


def _told(node: Node) -> list[int] | None:
    """The target of a Reshape as numbers, -1, and 0 for the size that stands there; None where others must work it out."""
    target, source = node.input(1), node.input(0)
    result = node.outputs[0]
    if node.op != "Reshape" or node.domain or target is None or source is None or result is None or target.is_constant:
        return None
    if source.shape is None or result.shape is None:
        return None
    if target.elements is not None and all(isinstance(n, int) for n in target.elements):
        return None  # they are constants by now
    return _written(source.shape, result.shape, zero_copies=not node.attributes.get("allowzero", 0))


def _written(source: tuple[Dim, ...], result: tuple[Dim, ...], *, zero_copies: bool) -> list[int] | None:
    if any(d == 0 for d in result):
        return None
    unknown = [i for i, d in enumerate(result) if not isinstance(d, int)]
    if len(unknown) == 1:  # all others are numbers above 0: -1 is that size, were it 0 too
        return [d if isinstance(d, int) else -1 for d in result]
    if zero_copies and all(i < len(source) and source[i] == result[i] for i in unknown):
        return [d if isinstance(d, int) else 0 for d in result]
    return None


__all__ = ["Cleaned", "clean"]
