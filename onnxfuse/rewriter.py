"""The only code that edits a model: puts chosen candidates into a copy of the original ModelProto.

Nodes that no candidate takes keep their bytes and their order. Everything a rewrite leaves unused (nodes,
initializers, value_info) goes with it; what was unused before stays.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import numpy_helper
from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter

from onnxfuse.candidate import Candidate
from onnxfuse.graph import Graph, Model, Value, constant_value
from onnxfuse.names import Names, names_in
from onnxfuse.op import TYPE_NAMES, VERSION, Instance, Op, variant_name
from onnxfuse.rule import Made, NewConstant, Operand
from onnxfuse.symbolic import substitute, symbols

Scope = onnx.GraphProto | onnx.FunctionProto
FUNCTIONS_IR = 8
CONTRIB_VERSIONS = {"com.microsoft": 1}


@dataclass(frozen=True)
class Rewrite:
    """One candidate as protos: what it takes out and what it puts in."""

    candidate: Candidate
    node: onnx.NodeProto
    helpers: tuple[onnx.NodeProto, ...]  # operators in front of it, see `rule.Made`; shared ones are in each rewrite
    constants: tuple[onnx.TensorProto, ...]  # shared ones are in each rewrite
    body: onnx.FunctionProto | None
    after: tuple[onnx.NodeProto, ...] = ()  # operators behind it, see `Call.then`

    @property
    def nodes(self) -> tuple[onnx.NodeProto, ...]:
        """All that it puts in, in order."""
        return (*self.helpers, self.node, *self.after)


@dataclass
class Rewritten:
    """The edited copy, and the name each chosen candidate's node got."""

    proto: onnx.ModelProto
    rewrites: list[Rewrite] = field(default_factory=list)


def rewrite(model: Model, chosen: Sequence[Candidate]) -> Rewritten:
    """A copy of the model with the chosen candidates in it; the model itself is not changed.

    The candidates must not overlap. Raises ValueError when their nodes would form a cycle.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    result = Rewritten(proto)
    if not chosen:
        return result
    names, bodies = Names(names_in(proto)), Bodies(proto)
    by_graph: dict[Graph, list[Candidate]] = defaultdict(list)
    for candidate in chosen:
        by_graph[candidate.view.graph].append(candidate)
    # inner graphs first: an edit moves the nodes that hold them
    for graph in sorted(_with_outer(by_graph), key=_depth, reverse=True):
        maker = _Maker(names, bodies)
        rewrites = [maker.make(candidate) for candidate in by_graph.get(graph, ())]
        _edit(_scope(proto, graph), graph, rewrites)
        result.rewrites += rewrites
    _import(proto, chosen, bodies)
    return result


def _with_outer(graphs: Iterable[Graph]) -> Iterable[Graph]:
    """The graphs, and those around them, whose values may lose their last reader."""
    found: dict[Graph, None] = {}
    for graph in graphs:
        outer: Graph | None = graph
        while outer is not None:
            found[outer] = None
            outer = outer.outer
    return found


def _depth(graph: Graph) -> int:
    return 0 if graph.parent is None else 1 + _depth(graph.parent.graph)


def _scope(proto: onnx.ModelProto, graph: Graph) -> Scope:
    """The part of the copy that `graph` was read from."""
    if graph.parent is not None:
        node = _scope(proto, graph.parent.graph).node[graph.parent.index]
        bodies = [b for a in node.attribute for b in ([a.g] if a.type == onnx.AttributeProto.GRAPH else a.graphs)]
        return bodies[graph.parent.subgraphs.index(graph)]
    if graph.function is not None:
        return proto.functions[list(graph.model.proto.functions).index(graph.function)]
    return proto.graph


# ---- the new node


class _Maker:
    """Makes the protos of the candidates of one graph; helper operators and constants that are equal are made once."""

    def __init__(self, names: Names, bodies: Bodies) -> None:
        self.names, self.bodies = names, bodies
        self.nodes: dict[Made, onnx.NodeProto] = {}
        self.constants: dict[NewConstant, onnx.TensorProto] = {}

    def make(self, candidate: Candidate) -> Rewrite:
        call = candidate.call
        needs = _Needs()
        inputs = [gs.Variable(self._operand(o, needs)) for o in call.operands]
        results = [o.name if o is not None else "" for o in candidate.outputs]
        name = self.names.fresh(f"{call.name}_0")
        results[0], after = self._after(call.then, name, results[0], needs)
        attributes = {k: v for k, v in call.attributes.items() if v is not None}
        node = _export(call.name, name, attributes, inputs, [gs.Variable(r) for r in results], call.domain)
        body = self.bodies.of(candidate) if isinstance(call.op, Op) else None
        if body is not None:
            node.op_type = body.name
        for made in (node, *after):
            _describe(made, candidate)
        return Rewrite(candidate, node, tuple(needs.nodes.values()), tuple(needs.constants.values()), body, after)

    def _operand(self, operand: Operand, needs: _Needs) -> str:
        """The operand's name; what has to be made for it is added to the needs."""
        if operand is None:
            return ""
        if isinstance(operand, Value):
            return operand.name
        if isinstance(operand, NewConstant):
            if operand not in self.constants:
                self.constants[operand] = numpy_helper.from_array(operand.array, self.names.fresh(operand.name))
            name = str(self.constants[operand].name)
            needs.constants[name] = self.constants[operand]
            return name
        if (joined := _joined(operand)) is not None:
            return self._operand(joined, needs)
        inputs = [gs.Variable(self._operand(o, needs)) for o in operand.operands]
        if operand not in self.nodes:
            name = self.names.fresh(f"{operand.op}_0")
            output = gs.Variable(self.names.fresh(f"{name}_output"))
            self.nodes[operand] = _export(operand.op, name, dict(operand.attributes), inputs, [output], "")
        result = str(self.nodes[operand].output[0])
        needs.nodes[result] = self.nodes[operand]
        return result

    def _after(self, steps: Sequence[Made], name: str, root: str, needs: _Needs) -> tuple[str, tuple[onnx.NodeProto, ...]]:
        """What the op's first output is called, and the operators that make the root from it."""
        values = [*(self.names.fresh(f"{name}_output") for _ in steps), root]
        made = []
        for step, source, result in zip(steps, values, values[1:], strict=False):
            inputs = [gs.Variable(n) for n in (source, *(self._operand(o, needs) for o in step.operands))]
            made.append(_export(step.op, self.names.fresh(f"{step.op}_0"), dict(step.attributes), inputs, [gs.Variable(result)], ""))
        return values[0], tuple(made)


def _joined(made: Made) -> NewConstant | None:
    """Constants joined now, where their data is in the file; what is in others stays there, to be joined when the model is loaded."""
    parts = [o for o in made.operands if isinstance(o, Value) and o.is_constant]
    if made.op != "Concat" or len(parts) < len(made.operands):
        return None
    tensors = [v.graph.constant_tensor(v) for v in parts]
    if any(t is None or t.data_location == onnx.TensorProto.EXTERNAL for t in tensors):
        return None
    arrays = [numpy_helper.to_array(t) for t in tensors if t is not None]
    return NewConstant(np.concatenate(arrays, axis=dict(made.attributes)["axis"]), parts[0])


@dataclass
class _Needs:
    """What one rewrite needs beside its node: operators in front of it, in order, and constants."""

    nodes: dict[str, onnx.NodeProto] = field(default_factory=dict)  # by what they make
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)  # by name


def _export(
    op: str, name: str, attributes: Mapping[str, object], inputs: list[gs.Variable], outputs: list[gs.Variable], domain: str
) -> onnx.NodeProto:
    node: onnx.NodeProto = OnnxExporter.export_node(gs.Node(op, name, dict(attributes), inputs, outputs, domain=domain or None))
    return node


def _describe(node: onnx.NodeProto, candidate: Candidate) -> None:
    """Keep the metadata and doc_string that all replaced nodes agree on, and say where the node came from."""
    sources = [n.proto for n in candidate.region if n in candidate.removed and n.op != "Constant"]
    common = set.intersection(*({(p.key, p.value) for p in s.metadata_props} for s in sources)) if sources else set()
    for key, value in sorted(common):
        node.metadata_props.add(key=key, value=value)
    if len({s.doc_string for s in sources}) == 1:
        node.doc_string = sources[0].doc_string


class Bodies:
    """The function bodies a model carries: one per op and meaning, told apart by name (see `op.variant_name`)."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        imports = [*proto.opset_import, *(o for f in proto.functions for o in f.opset_import)]
        self.opset = next(o.version for o in imports if o.domain in ("", "ai.onnx"))  # a model may leave it to its functions
        self.known = {(f.domain, f.name): f for f in proto.functions}
        self.added: list[onnx.FunctionProto] = []

    def of(self, candidate: Candidate) -> onnx.FunctionProto:
        """The body for this use of the op, made if no equal one is there."""
        op: Op = candidate.call.op
        body = op.body(instance(candidate, self.opset)) if candidate.written is None else _copy_of(candidate.written.body)
        for number in range(1, len(self.known) + 2):
            body.name = variant_name(op.name, number)
            known = self.known.setdefault((body.domain, body.name), body)
            if known is body:
                self.added.append(body)
            if known.SerializeToString(deterministic=True) == body.SerializeToString(deterministic=True):
                return known
        raise AssertionError("a new name is always free")


def _copy_of(body: onnx.FunctionProto) -> onnx.FunctionProto:
    copied = onnx.FunctionProto()
    copied.CopyFrom(body)
    return copied


def instance(candidate: Candidate, opset: int) -> Instance:
    """A candidate's call as the op's body sees it."""
    call, op = candidate.call, candidate.call.op
    given = {p.name: o for p, o in zip(op.inputs, call.operands, strict=False) if o is not None}
    types = {p.type: TYPE_NAMES[given[p.name].dtype] for p in op.inputs if p.name in given}
    types.setdefault(op.outputs[0].type, TYPE_NAMES[candidate.root.dtype])
    outputs = frozenset(p.name for p, o in zip(op.outputs, candidate.outputs, strict=False) if o is not None)
    return Instance({**op.attributes, **call.attributes}, frozenset(given), outputs, types, opset)


def _import(proto: onnx.ModelProto, chosen: Sequence[Candidate], bodies: Bodies) -> None:
    """Opset imports, function bodies and the IR version that the new nodes need."""
    for candidate in chosen:
        domain = candidate.call.domain
        version = VERSION if isinstance(candidate.call.op, Op) else CONTRIB_VERSIONS.get(domain, 1)
        for holder in (proto, _function(proto, candidate)):
            if holder is not None and domain not in ("", "ai.onnx") and all(o.domain != domain for o in holder.opset_import):
                holder.opset_import.add(domain=domain, version=version)
    if bodies.added:
        proto.functions.extend(bodies.added)
        if proto.ir_version < 4:
            _drop_default_inputs(proto.graph)
        proto.ir_version = max(proto.ir_version, FUNCTIONS_IR)


def _function(proto: onnx.ModelProto, candidate: Candidate) -> onnx.FunctionProto | None:
    graph = candidate.view.graph
    while graph.parent is not None:
        graph = graph.parent.graph
    scope = _scope(proto, graph)
    return scope if isinstance(scope, onnx.FunctionProto) else None


def _drop_default_inputs(graph: onnx.GraphProto) -> None:
    """Below IR 4 every initializer had to be listed as an input; from 4 on that would make it overridable."""
    names = {t.name for t in graph.initializer}
    kept = [i for i in graph.input if i.name not in names]
    del graph.input[:]
    graph.input.extend(kept)


# ---- the edit


def _edit(scope: Scope, graph: Graph, rewrites: Sequence[Rewrite]) -> None:
    removed = {n.index for r in rewrites for n in r.candidate.removed}
    keyed: list[tuple[int, onnx.NodeProto]] = [(i, n) for i, n in enumerate(scope.node) if i not in removed]
    placed: set[str] = set()  # names of values that are made: shared helpers and constants come but once
    for rewrite_ in rewrites:
        first = min(o.producer.index for o in rewrite_.candidate.outputs if o is not None and o.producer is not None)
        for constant in (c for c in rewrite_.constants if c.name not in placed):
            keyed += _add_constant(scope, constant, first)
        keyed += [(first, n) for n in rewrite_.nodes if n.output[0] not in placed]
        placed |= {c.name for c in rewrite_.constants} | {n.output[0] for n in rewrite_.nodes}
    live = _drop_dead(keyed, graph, scope)
    ordered = [_copy(node) for node in _sorted(live)]
    del scope.node[:]
    scope.node.extend(ordered)
    _clean(scope, graph)
    if isinstance(scope, onnx.GraphProto):
        _tell_shapes(scope, [o for r in rewrites for o in r.candidate.outputs if o is not None])


def _tell_shapes(scope: onnx.GraphProto, made: Sequence[Value]) -> None:
    """Say the types and shapes of what fused ops make: runtimes before 1.24 infer none for ops with optional inputs."""
    told = {v.name for v in (*scope.value_info, *scope.output)}
    for value in made:
        if value.name in told or value.shape is None:
            continue
        told.add(value.name)
        dims = [d if isinstance(d, int) else str(d) if symbols(d) == {str(d)} else None for d in value.shape]
        scope.value_info.append(onnx.helper.make_tensor_value_info(value.name, value.dtype, dims))


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    copied = onnx.NodeProto()
    copied.CopyFrom(node)
    return copied


def _add_constant(scope: Scope, constant: onnx.TensorProto, key: int) -> list[tuple[int, onnx.NodeProto]]:
    """An initializer, or in a function (which has none) a Constant node."""
    if isinstance(scope, onnx.GraphProto):
        scope.initializer.append(constant)
        return []
    return [(key, onnx.helper.make_node("Constant", [], [constant.name], value=constant))]


def _drop_dead(keyed: list[tuple[int, onnx.NodeProto]], graph: Graph, scope: Scope) -> list[tuple[int, onnx.NodeProto]]:
    """Without the nodes that nobody reads any more; a node that nobody read before stays."""
    outputs = {o.name for o in scope.output} if isinstance(scope, onnx.GraphProto) else set(scope.output)
    while True:
        read = outputs | {name for _, node in keyed for name in reads(node)}
        dead = {id(n) for _, n in keyed if not any(o in read for o in n.output) and _was_read(n, graph)}
        if not dead:
            return keyed
        keyed = [(k, n) for k, n in keyed if id(n) not in dead]


def _was_read(node: onnx.NodeProto, graph: Graph) -> bool:
    values = [graph.values[o] for o in node.output if o in graph.values]
    return any(v.users or v.captured or v.is_output for v in values)


def _sorted(keyed: list[tuple[int, onnx.NodeProto]]) -> list[onnx.NodeProto]:
    """Nodes in topological order, otherwise as they stood."""
    producer = {o: position for position, (_, node) in enumerate(keyed) for o in node.output if o}
    waiting, readers = [0] * len(keyed), defaultdict(list)
    for position, (_, node) in enumerate(keyed):
        for source in {producer[name] for name in reads(node) if name in producer}:
            waiting[position] += 1
            readers[source].append(position)
    ready = [(keyed[p][0], p) for p, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    ordered: list[onnx.NodeProto] = []
    while ready:
        _, position = heapq.heappop(ready)
        ordered.append(keyed[position][1])
        for reader in readers[position]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, (keyed[reader][0], reader))
    if len(ordered) != len(keyed):
        raise ValueError("the chosen fusions would form a cycle")
    return ordered


def reads(node: onnx.NodeProto) -> Iterable[str]:
    """Every name a node reads, those its bodies read from outside included."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for body in [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs:
            inside = {i.name for i in body.input} | {t.name for t in body.initializer}
            for inner in body.node:
                yield from (name for name in reads(inner) if name not in inside)
                inside.update(inner.output)
            yield from (o.name for o in body.output if o.name not in inside)


def _clean(scope: Scope, graph: Graph) -> None:
    """Drop initializers that lost their last reader, and what is said of values that are gone."""
    made = {o for n in scope.node for o in n.output}
    read = {name for n in scope.node for name in reads(n)}
    if isinstance(scope, onnx.GraphProto):
        read |= {o.name for o in scope.output}
        inputs = {i.name for i in scope.input}
        keep(scope.initializer, lambda t: t.name in read or t.name in inputs or not _had_reader(graph, t.name))
        keep(scope.sparse_initializer, lambda t: t.values.name in read or not _had_reader(graph, t.values.name))
        made |= inputs | {t.name for t in scope.initializer} | {t.values.name for t in scope.sparse_initializer}
        keep(scope.quantization_annotation, lambda a: a.tensor_name in made)
    keep(scope.value_info, lambda v: v.name in made or v.name not in graph.values)


def _had_reader(graph: Graph, name: str) -> bool:
    value = graph.values.get(name)
    return value is not None and bool(value.users or value.captured or value.is_output)


def keep(repeated, wanted) -> None:  # type: ignore[no-untyped-def]  # protobuf containers have no common type
    """Take out of a protobuf container what is not wanted."""
    gone = [i for i, item in enumerate(repeated) if not wanted(item)]
    for position in reversed(gone):
        del repeated[position]


# ---- one rewrite as two small models


def as_models(rewrite_: Rewrite, sizes: Mapping[str, int]) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """(what was replaced, what replaces it) as models of their own with the same inputs and outputs.

    `sizes` puts a number in for every symbolic dim, so both have static shapes. Constants and known sizes that the
    replaced nodes read are inside; external data is read for them.
    """
    candidate = rewrite_.candidate
    model, context = candidate.view.graph.model, candidate.call.context
    nodes = dict.fromkeys((*context, *candidate.region))
    inputs = _inputs(candidate, sizes)
    given = set(inputs) | {o for n in nodes for o in n.outputs if o is not None}
    read = dict.fromkeys(v for n in nodes for v in n.inputs if v is not None and v not in given)
    twins = [v for v in read if v in candidate.twins and not v.is_constant and candidate.twins[v] in candidate.inputs]
    wanted = [v for v in read if v not in twins]
    known = (v for v in candidate.inputs if _is_known(v, sizes))
    tensors = {v.name: _tensor(v, sizes) for v in (*wanted, *known) if v.producer not in nodes}
    outputs = [o for o in candidate.outputs if o is not None]
    same = [onnx.helper.make_node("Identity", [candidate.twins[v].name], [v.name]) for v in twins]
    replaced = [_copy(n.proto) for n in nodes if n not in context]
    around = [_copy(n.proto) for n in context]
    before = _small(model, [*around, *same, *replaced], inputs, outputs, tensors.values(), sizes)
    taken = {name for n in (*around, *rewrite_.nodes) for name in n.input}
    constants = [*(t for n, t in tensors.items() if n in taken), *rewrite_.constants]
    after = _small(model, [*around, *(_copy(n) for n in rewrite_.nodes)], inputs, outputs, constants, sizes)
    if rewrite_.body is not None:
        after.functions.append(rewrite_.body)
    domain = rewrite_.node.domain
    if domain and all(o.domain != domain for o in after.opset_import):
        after.opset_import.add(domain=domain, version=CONTRIB_VERSIONS.get(domain, VERSION))
    return before, after


def _inputs(candidate: Candidate, sizes: Mapping[str, int]) -> list[Value]:
    """What the small models are fed: a candidate's inputs, and where it relies on how some are made, what they are made from."""
    context = candidate.call.context
    made = {o for n in context for o in n.outputs}
    sources = (v for n in context for v in n.inputs if v is not None and v.elements is None)
    return [v for v in dict.fromkeys((*candidate.inputs, *sources)) if v not in made and not _is_known(v, sizes)]


def _is_known(value: Value, sizes: Mapping[str, int]) -> bool:
    """Whether it is a constant, or a size that `sizes` say."""
    said = value.elements is not None and all(isinstance(substitute(e, sizes), int) for e in value.elements)
    return value.is_constant or said


def _tensor(value: Value, sizes: Mapping[str, int]) -> onnx.TensorProto:
    """A constant, or a value of known content with `sizes` put in, as an initializer."""
    if value.elements is not None and not value.is_constant:
        numbers = [substitute(e, sizes) for e in value.elements]
        array = np.array(numbers, onnx.helper.tensor_dtype_to_np_dtype(value.dtype)).reshape((-1,) if value.rank else ())
        return numpy_helper.from_array(array, value.name)
    held = constant_value(value)
    assert held is not None, f"'{value.name}' is neither an input nor constant"
    return numpy_helper.from_array(np.ascontiguousarray(held).reshape(held.shape), value.name)  # which makes a row of a single number


def _small(
    model: Model,
    nodes: list[onnx.NodeProto],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    tensors: Iterable[onnx.TensorProto],
    sizes: Mapping[str, int],
) -> onnx.ModelProto:
    graph = onnx.helper.make_graph(nodes, "rewrite", [_info(v, sizes) for v in inputs], [_info(v, sizes) for v in outputs], list(tensors))
    small = onnx.helper.make_model(graph, opset_imports=list(model.proto.opset_import))
    small.ir_version = max(model.proto.ir_version, FUNCTIONS_IR)
    return small


def _info(value: Value, sizes: Mapping[str, int]) -> onnx.ValueInfoProto:
    numbers = [substitute(d, sizes) for d in value.shape or ()]
    shape = None if value.shape is None else [n if isinstance(n, int) else str(n) for n in numbers]
    return onnx.helper.make_tensor_value_info(value.name, value.dtype, shape)
