"""Runs the rules over graphs: node by node, into the bodies of control flow and of model-local functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import onnx
from onnx import TensorProto

from onnxfuse import shape_fallback, symbolic
from onnxfuse.errors import ModelError
from onnxfuse.graph import Graph, Node, Value, constant_value
from onnxfuse.shape_facts import (
    CONTENT_LIMIT,
    CONTENT_RULES,
    FLOATS,
    INTEGERS,
    NOTHING,
    SHAPE_RULES,
    TYPE_RULES,
    Bindings,
    Call,
    Fact,
    Shape,
    ShapeRule,
    key,
    with_unknown,
)
from onnxfuse.shape_ratio import Unknown
from onnxfuse.shape_rules_layout import agreed
from onnxfuse.symbolic import Dim

FunctionKey: TypeAlias = tuple[str, str, str]  # domain, name, overload
Refine: TypeAlias = Callable[[Value, Fact], Fact]

CALL_BUDGET = 100_000  # nodes visited inside function calls; nested calls could otherwise take exponentially long
ROUNDS = 3  # of a loop body, before all that the loop carries counts as unknown


class Engine:
    """Facts of all values of one run over a graph. `refine` adds what the model itself declares of a value."""

    def __init__(self, functions: Mapping[FunctionKey, Graph], refine: Refine) -> None:
        self.functions = functions
        self.refine = refine
        self.facts: dict[Value, Fact] = {}
        self.calls: dict[Graph, list[tuple[list[Fact], Bindings]]] = {}
        self.budget = [CALL_BUDGET]
        self.active: tuple[Graph, ...] = ()  # the functions that this run is inside of

    def run(self, graph: Graph, inputs: Sequence[Fact], bindings: Bindings) -> None:
        """Infer a graph whose inputs are known as far as `inputs` goes."""
        self._read_initializers(graph)
        for value, fact in zip(graph.inputs, inputs, strict=False):
            self.facts[value] = self.refine(value, fact)
        for value in graph.inputs[len(inputs) :]:
            self.facts[value] = self.refine(value, self.facts.get(value, NOTHING))
        for node in graph.nodes:
            self._visit(node, bindings)

    def _read_initializers(self, graph: Graph) -> None:
        for name, tensor in graph.initializers.items():
            value = graph.values[name]
            self.facts[value] = Fact(tensor.data_type, tuple(tensor.dims)) if value.is_input else _constant(value, tensor)
        for sparse in graph.proto.sparse_initializer if isinstance(graph.proto, onnx.GraphProto) else ():
            if sparse.values.name in graph.values:
                self.facts[graph.values[sparse.values.name]] = Fact(sparse.values.data_type, tuple(sparse.dims))

    def _visit(self, node: Node, bindings: Bindings) -> None:
        facts = self.facts
        call = Call(node, [None if v is None else facts.get(v, NOTHING) for v in node.inputs], bindings)
        for value, fact in zip(node.outputs, self._outputs(call), strict=False):
            if value is not None:
                facts[value] = self.refine(value, fact)

    def _outputs(self, call: Call) -> Sequence[Fact]:
        node = call.node
        function = self.functions.get((node.domain, node.op, node.proto.overload)) if self.functions else None
        if function is not None:
            return self._call(function, call)
        if node.op == "Constant" and not node.domain:
            value = node.outputs[0] if node.outputs else None
            tensor = None if value is None else value.graph.constant_tensor(value)
            if value is not None and tensor is not None:
                return [_constant(value, tensor)]
        return self._control(call) if node.subgraphs else rule_outputs(call)

    def _call(self, function: Graph, call: Call) -> list[Fact]:
        """Outputs of one call of a function: its body is run for these inputs, apart from all other calls."""
        inputs = [call.fact(i) for i in range(len(function.inputs))]
        bindings = _bound(function, call)
        if not self.active:
            self.calls.setdefault(function, []).append((inputs, bindings))
        self.budget[0] -= len(function.nodes)
        if function in self.active or self.budget[0] < 0:
            return [NOTHING] * len(call.node.outputs)
        inner = Engine(self.functions, _as_is)
        inner.active = (*self.active, function)
        inner.budget = self.budget
        inner.run(function, inputs, bindings)
        return [inner.facts.get(value, NOTHING) for value in function.outputs]

    def _control(self, call: Call) -> Sequence[Fact]:
        bodies = _bodies(call.node)
        op = call.node.op if not call.node.domain else ""
        if op == "If" and {"then_branch", "else_branch"} <= bodies.keys():
            return self._if(call, bodies["then_branch"], bodies["else_branch"])
        if op == "Loop" and "body" in bodies:
            return self._loop(call, bodies["body"])
        if op == "Scan" and "body" in bodies and call.opset >= 9:
            return self._scan(call, bodies["body"])
        for body in bodies.values():
            self.run(body, [], call.bindings)
        return [NOTHING] * len(call.node.outputs)

    def _if(self, call: Call, then: Graph, other: Graph) -> Sequence[Fact]:
        for body in (then, other):
            self.run(body, [], call.bindings)
        chosen, rejected = self._results(then), self._results(other)
        condition = call.fact(0).elements
        if condition in ((0,), (1,)):
            return chosen if condition == (1,) else rejected
        return [join(a, b) for a, b in zip(chosen, rejected, strict=False)]

    def _loop(self, call: Call, body: Graph) -> Sequence[Fact]:
        counter = Fact(TensorProto.INT64, (), (symbolic.fresh("iteration"),))
        going = Fact(TensorProto.BOOL, (), (1,))  # inside the body it holds, or there would be no iteration
        carried = self._settle(call, body, [counter, going], [call.fact(i) for i in range(2, len(call.inputs))], [])
        results = self._results(body)
        stays = call.fact(1).elements == (1,) or not call.has(1)
        limit = call.fact(0).elements
        is_counted = stays and results and results[0].elements == (1,) and limit
        trips = symbolic.maximum(limit[0], 0) if is_counted and limit else symbolic.fresh(f"{call.node.label}.trips")
        return [*carried, *(_stacked(fact, trips, 0) for fact in results[1 + len(carried) :])]

    def _scan(self, call: Call, body: Graph) -> Sequence[Fact]:
        try:
            scanned = call.integer("num_scan_inputs")
            first = len(call.inputs) - scanned
            if scanned < 0 or first < 0:
                raise Unknown
            axes = call.ints("scan_input_axes") or [0] * scanned
            stacked_axes = call.ints("scan_output_axes")
            sliced = [_sliced(call.fact(first + i), axis) for i, axis in enumerate(axes)]
        except Unknown:
            self.run(body, [], call.bindings)
            return [NOTHING] * len(call.node.outputs)
        states = self._settle(call, body, [], [call.fact(i) for i in range(first)], [fact for _, fact in sliced])
        lengths = [length for length, _ in sliced if length is not None]
        trips = agreed(lengths) if lengths else symbolic.fresh(f"{call.node.label}.trips")
        stacked = self._results(body)[len(states) :]
        placed = zip(stacked, stacked_axes or [0] * len(stacked), strict=False)
        return [*states, *(_stacked(fact, trips, axis) for fact, axis in placed)]

    def _results(self, body: Graph) -> list[Fact]:
        return [self.facts.get(value, NOTHING) for value in body.outputs]

    def _settle(self, call: Call, body: Graph, before: list[Fact], carried: list[Fact], after: list[Fact]) -> list[Fact]:
        """Run a loop body until what it carries is the same going in and coming out; returns that, as it is at the end."""
        varying: set[Dim] = set()
        skipped = 1 if before else 0  # a Loop body returns its condition first
        for _ in range(ROUNDS):
            self.run(body, [*before, *carried, *after], call.bindings)
            coming = self._results(body)[skipped : skipped + len(carried)]
            widened = [_widen(a, b, varying) for a, b in zip(carried, coming, strict=False)]
            if widened == carried:
                return [_at_the_end(fact, varying) for fact in carried]
            carried = widened
        carried = [NOTHING] * len(carried)
        self.run(body, [*before, *carried, *after], call.bindings)
        return carried


def rule_outputs(call: Call) -> list[Fact]:
    """What the rules say of the outputs of a node; ONNX's own inference where there is no rule."""
    node = call.node
    name = key(node.domain, node.op)
    count = len(node.outputs)
    types = _types(call, name, count)
    shape_rule = SHAPE_RULES.get(name)
    if shape_rule is None:
        return [fact if fact.dtype else Fact(dtype) for fact, dtype in zip(shape_fallback.outputs(call), types, strict=True)]
    shapes = _shapes(call, shape_rule, count)
    contents = _contents(call, name, types[0], shapes[0]) if count else []
    return [_fact(call, i, types[i], shapes[i], contents[i] if i < len(contents) else None) for i in range(count)]


def _shapes(call: Call, rule: ShapeRule, count: int) -> Sequence[Shape | None]:
    try:
        found = rule(call)
    except Unknown:
        return [None] * count
    if isinstance(found, tuple):
        return [found] * count
    return [*found, *[None] * (count - len(found))]


def _types(call: Call, name: str, count: int) -> Sequence[int]:
    rule = TYPE_RULES.get(name)
    try:
        found = rule(call) if rule is not None else TensorProto.UNDEFINED
    except Unknown:
        found = TensorProto.UNDEFINED
    if isinstance(found, int):
        return [found] * count
    return [*found, *[TensorProto.UNDEFINED] * (count - len(found))]


def _contents(call: Call, name: str, dtype: int, shape: Shape | None) -> Sequence[tuple[Any, ...]]:
    """What the outputs hold: ints and expressions, or ratios where they are floats."""
    rule = CONTENT_RULES.get(name)
    if rule is None or shape is None or dtype not in INTEGERS | FLOATS or not _is_small(shape):
        return []
    try:
        found = rule(call, shape)
    except Unknown:
        return []
    return [tuple(array.reshape(-1).tolist()) for array in (found if isinstance(found, list) else [found])]


def _is_small(shape: Shape) -> bool:
    count = 1
    for dim in shape:
        if not isinstance(dim, int):
            return False
        count *= dim
    return 0 <= count <= CONTENT_LIMIT


def _fact(call: Call, output: int, dtype: int, shape: Shape | None, contents: tuple[Any, ...] | None) -> Fact:
    if shape is None:
        return Fact(dtype)
    if any(isinstance(d, int) and d < 0 for d in shape):  # no run gets here
        return Fact(dtype, tuple(call.fresh(axis, output) if isinstance(d, int) and d < 0 else d for axis, d in enumerate(shape)))
    if contents is not None and (not _is_small(shape) or len(contents) != symbolic.product(shape)):
        contents = None
    if dtype in FLOATS:
        return Fact(dtype, shape, None, contents)
    value = call.node.outputs[output]
    return with_unknown(Fact(dtype, shape, contents), value.name if value is not None else call.node.label)


def _constant(value: Value, tensor: onnx.TensorProto) -> Fact:
    """Type and shape of a constant; its contents if it is a small integer tensor."""
    shape = tuple(tensor.dims)
    if tensor.data_type not in INTEGERS or not _is_small(shape):
        return Fact(tensor.data_type, shape)
    try:
        array = constant_value(value, CONTENT_LIMIT)
    except ModelError:  # its external data is not there, which is for others to report
        array = None
    return Fact(tensor.data_type, shape, None if array is None else tuple(int(v) for v in array.reshape(-1).tolist()))


def _as_is(_: Value, fact: Fact) -> Fact:
    return fact


def _bodies(node: Node) -> dict[str, Graph]:
    """The bodies of a node by the name of the attribute they are in."""
    names = [a.name for a in node.proto.attribute for _ in (a.graphs or ([a.g] if a.type == onnx.AttributeProto.GRAPH else []))]
    return dict(zip(names, node.subgraphs, strict=False))


def _bound(function: Graph, call: Call) -> dict[str, onnx.AttributeProto]:
    """What the attributes of a function are in a call: as written there, else their defaults."""
    assert function.function is not None
    bound = {a.name: a for a in function.function.attribute_proto}
    for attribute in call.node.proto.attribute:
        if not attribute.ref_attr_name:
            bound[attribute.name] = attribute
        elif attribute.ref_attr_name in call.bindings:
            bound[attribute.name] = call.bindings[attribute.ref_attr_name]
    return bound


def join(a: Fact, b: Fact) -> Fact:
    """What holds of a value that is one or the other."""
    if a == b:
        return a
    dtype = a.dtype if a.dtype == b.dtype else TensorProto.UNDEFINED
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return Fact(dtype)
    shape = tuple(x if x == y else symbolic.fresh("either") for x, y in zip(a.shape, b.shape, strict=True))
    return Fact(dtype, shape, a.elements if a.elements == b.elements else None, a.ratios if a.ratios == b.ratios else None)


def _widen(going: Fact, coming: Fact, varying: set[Dim]) -> Fact:
    """What holds of a carried value in every iteration; sizes that change are symbols noted in `varying`."""
    dtype = going.dtype or coming.dtype
    if going.shape is None or coming.shape is None or len(going.shape) != len(coming.shape):
        return Fact(dtype)
    dims = []
    for a, b in zip(going.shape, coming.shape, strict=True):
        if a != b and a not in varying:
            a = symbolic.fresh("varying")
            varying.add(a)
        dims.append(a)
    return Fact(dtype, tuple(dims), going.elements if going.elements == coming.elements else None)


def _at_the_end(fact: Fact, varying: set[Dim]) -> Fact:
    """A carried value after the last iteration: its varying sizes are not those of any iteration."""
    shape = None if fact.shape is None else tuple(symbolic.fresh("final") if d in varying else d for d in fact.shape)
    return fact._replace(shape=shape)


def _stacked(fact: Fact, count: Dim, axis: int) -> Fact:
    """What all iterations return together; an axis of the whole result."""
    if fact.shape is None or not -len(fact.shape) - 1 <= axis <= len(fact.shape):
        return Fact(fact.dtype)
    at = axis % (len(fact.shape) + 1)
    return Fact(fact.dtype, (*fact.shape[:at], count, *fact.shape[at:]))


def _sliced(fact: Fact, axis: int) -> tuple[Dim | None, Fact]:
    """The length of a scanned input, and what one iteration gets of it."""
    if fact.shape is None or not -len(fact.shape) <= axis < len(fact.shape):
        return None, Fact(fact.dtype)
    at = axis % len(fact.shape)
    return fact.shape[at], Fact(fact.dtype, fact.shape[:at] + fact.shape[at + 1 :])
