"""Shape arithmetic: what only works out sizes becomes one operator, which reads them off the inputs of the graph.

Exporters take a tensor's shape apart and put others together, a handful of nodes for each Reshape. Where inference knows
what such a value holds as sizes of the graph's inputs, nothing of this has to run: the values that others read, sixteen of
one length to an operator, are computed from those sizes alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from onnxfuse.generated.flow import Block, Flow
from onnxfuse.generated.primitives import WHERE
from onnxfuse.generated.program import Program
from onnxfuse.generated.regions import MOST_OUTPUTS, is_held
from onnxfuse.generated.writer import Draft
from onnxfuse.graph import Graph, Node, Value, constant_value
from onnxfuse.symbolic import Dim, spelled, symbols

LONGEST = 8  # elements of one value
SIZE_TYPES = {onnx.TensorProto.INT64: "int64", onnx.TensorProto.INT32: "int32"}
PRIMITIVE = {"+": "Add", "*": "Mul", "//": "Div", "max": "Max", "min": "Min"}


@dataclass(frozen=True)
class Sizes:
    """Values of one length and type, what computes them now, and the program that does from now on.

    removed: nodes that nobody needs any more. region: those and others on the way, without the Shapes and the like that they start from.
    free: those that ONNX Runtime makes a constant of for a Reshape.
    inputs: graph inputs whose sizes are read. length: None for values of rank 0; else the program's last input counts up to it.
    """

    outputs: tuple[Value, ...]
    region: tuple[Node, ...]
    removed: frozenset[Node]
    free: frozenset[Node]
    inputs: tuple[Value, ...]
    length: int | None
    program: Program


def find_sizes(flow: Flow, most_nodes: int) -> Iterator[Sizes]:
    """All that can be worked out from the inputs of the graph, where it is the outermost one, in parts of so many nodes."""
    graph = flow.graph
    if graph.parent is not None:
        return
    known = frozenset(node for node in flow.blocks if _computes_sizes(node))
    sources = _sources(graph)
    for (kind, length), values in _wanted(flow, known, sources).items():
        for part, region in _parts(values, known, most_nodes):
            outputs = tuple(reversed(part))
            writer = _Writer(sources, kind, length)
            program = writer.program(outputs)
            removed = _removed(flow, region, frozenset(part))
            yield Sizes(outputs, region, removed, _free(outputs), tuple(writer.inputs), length, program)


def _parts(values: Sequence[Value], known: frozenset[Node], most_nodes: int) -> Iterator[tuple[list[Value], tuple[Node, ...]]]:
    """The values as many at a time as one operator may give, with what computes them now."""
    part: list[Value] = []
    cones: set[Node] = set()
    for value in values:
        cone = _cone(value, known)
        if len(cone) > most_nodes:
            continue
        if part and (len(part) == MOST_OUTPUTS or len(cones | cone) > most_nodes):
            yield part, tuple(sorted(cones, key=lambda node: node.index))
            part, cones = [], set()
        part.append(value)
        cones |= cone
    if part:
        yield part, tuple(sorted(cones, key=lambda node: node.index))


def _computes_sizes(node: Node) -> bool:
    made = node.outputs[0] if len(node.outputs) == 1 else None
    return not node.subgraphs and node.op != "Constant" and made is not None and made.elements is not None


def _is_source(node: Node) -> bool:
    """Whether sizes start here, as at a Shape: from something that is none itself."""
    return any(v is not None and v.elements is None and not v.is_constant for v in node.inputs)


def _sources(graph: Graph) -> dict[str, tuple[Value, int]]:
    """For each symbol the graph input, and its axis, that says what it stands for; the smallest tensor that does."""
    found: dict[str, tuple[Value, int]] = {}
    for value in sorted(graph.inputs, key=lambda v: v.rank or 0):
        for axis, dim in enumerate(value.shape or ()) if value.is_input else ():
            (name, *more) = (*symbols(dim), "")
            if name and str(dim) == name and more == [""]:
                found.setdefault(name, (value, axis))
    return found


def _wanted(flow: Flow, known: Collection[Node], sources: Mapping[str, tuple[Value, int]]) -> dict[tuple[str, int | None], list[Value]]:
    """The values that others than these nodes read and that can be worked out, by type and length."""
    inside = {flow.blocks[node] for node in known}
    found: dict[tuple[str, int | None], list[Value]] = defaultdict(list)
    for value in (v for node in flow.blocks if node in known and not _is_source(node) for v in node.outputs if v is not None):
        read = is_held(value) or not inside.issuperset(flow.readers.get(value, ()))
        if read and value.dtype in SIZE_TYPES and len(value.elements or ()) <= LONGEST and _is_spelled(value, sources):
            found[SIZE_TYPES[value.dtype], value.shape[0] if value.shape else None].append(value)  # type: ignore[index]  # known
    return found


def _is_spelled(value: Value, sources: Mapping[str, tuple[Value, int]]) -> bool:
    def known(name: str) -> bool:
        return name in sources

    def combined(op: str, one: bool, other: bool) -> bool:
        return one and other

    made: list[bool | None] = [spelled(d, _always, known, combined) for d in value.elements or ()]
    return all(made)


def _cone(value: Value, known: frozenset[Node]) -> set[Node]:
    """What computes the value now, up to the Shapes and the like that it starts from."""
    found: set[Node] = set()
    todo = [value.producer]
    while todo:
        node = todo.pop()
        if node is not None and node not in found and node in known and not _is_source(node):
            found.add(node)
            todo += [v.producer for v in node.inputs if v is not None]
    return found


def _always(number: int) -> bool:
    return True


def _removed(flow: Flow, region: Sequence[Node], given: frozenset[Value]) -> frozenset[Node]:
    """The nodes of the region that nobody needs once `given` is made."""
    removed: set[Node] = set()
    blocks: set[Block] = set()
    for node in reversed(region):
        rest = [v for v in node.outputs if v is not None and v not in given]
        if all(not is_held(v) and blocks.issuperset(flow.readers.get(v, ())) for v in rest):
            removed.add(node)
            blocks.add(flow.blocks[node])
    return frozenset(removed)


def _free(outputs: Sequence[Value]) -> frozenset[Node]:
    """What ONNX Runtime drops: a Concat of sizes in their places that only Reshapes read, all but one of them known or copied."""
    free: set[Node] = set()
    for value in outputs:
        concat = value.producer
        if (
            concat is not None
            and concat.op == "Concat"
            and value.users
            and all(u.op == "Reshape" and u.input(1) is value for u in value.users)
        ):
            copied = [_copied(v, place) for place, v in enumerate(concat.inputs) if v is not None and not v.is_constant]
            if sum(not nodes for nodes in copied) <= 1:
                free.update([concat], *copied)
    return frozenset(free)


def _copied(value: Value, place: int) -> list[Node]:
    """The Unsqueeze, Gather and Shape that take one size from the same place; none where it is anything else."""
    path: list[Node] = []
    for op in ("Unsqueeze", "Gather", "Shape"):
        node = value.producer
        if node is None or node.op != op or node.domain or node.input(0) is None:
            return []
        path.append(node)
        value = node.inputs[0] or value
    index = path[1].input(1)
    held = constant_value(index, 1) if index is not None else None
    return path if held is not None and held.size == 1 and int(held.reshape(())) == place else []


@dataclass
class _Writer:
    """Writes the program of values of one length."""

    sources: Mapping[str, tuple[Value, int]]
    kind: str
    length: int | None
    draft: Draft = field(default_factory=Draft)
    inputs: list[Value] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def program(self, outputs: Sequence[Value]) -> Program:
        named = sorted({name for v in outputs for d in v.elements or () for name in symbols(d)})
        self.inputs = list(dict.fromkeys(self.sources[name][0] for name in named))
        names = {v: self.draft.input(type_name(v)) for v in self.inputs}
        count = self.draft.input("int64") if self.length is not None or not self.inputs else ""
        dims = {name: self._dim(names[value], axis) for name, (value, axis) in self.sources.items() if value in names and name in named}
        self.places = [self.draft.step("Equal", "bool", count, self.draft.number(i, "int64")) for i in range(1, self.length or 0)]
        return self.draft.finish([self._value(v.elements or (), dims) for v in outputs])

    def _dim(self, name: str, axis: int) -> str:
        return self.draft.step("Dim", "int64", name, number=axis)

    def _value(self, elements: Sequence[Dim], dims: Mapping[str, str]) -> str:
        """Each element in its place."""
        made = [self._element(element, dims) for element in elements]
        whole = made[0] if made else self.draft.number(0, "int64")
        for place, element in zip(self.places, made[1:], strict=False):
            whole = whole if element == whole else self.draft.step(WHERE, "int64", place, element, whole)
        return self.draft.cast(whole, self.kind)

    def _element(self, element: Dim, dims: Mapping[str, str]) -> str:
        def combined(op: str, one: str, other: str) -> str:
            return self.draft.step(PRIMITIVE[op], "int64", one, other)

        made = spelled(element, lambda number: self.draft.number(number, "int64"), dims.__getitem__, combined)
        assert made is not None
        return made


def type_name(value: Value) -> str:
    """The name of a value's type."""
    return str(onnx.TensorProto.DataType.Name(value.dtype)).lower()
