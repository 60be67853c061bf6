"""Shape inference: element types, symbolic shapes and small integer contents of every value of a model.

Our rules come first; what a model declares itself (value_info) fills the gaps; ONNX's own inference is asked about
standard ops that have no rule. Weights are never loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

from onnxfuse import (
    shape_rules_contents,
    shape_rules_layout,
    shape_rules_matrix,
    shape_rules_pointwise,
    shape_rules_types,
    shape_rules_window,
    symbolic,
)
from onnxfuse.graph import STANDARD_DOMAINS, Graph, Model, Node, Value
from onnxfuse.shape_engine import Engine, FunctionKey, join
from onnxfuse.shape_facts import INTEGERS, Bindings, Fact, with_unknown
from onnxfuse.symbolic import Dim

# Importing these enters their rules into the tables.
RULES = (shape_rules_contents, shape_rules_layout, shape_rules_matrix, shape_rules_pointwise, shape_rules_types, shape_rules_window)

UNNAMED = ("", "?", "-1", "None")  # what exporters write for a size they have no name for


def infer(model: Model) -> None:
    """Fill `dtype`, `shape` and `elements` of every value of every graph of the model, as far as they are known.

    A named input size is the symbol of that name; an unnamed one is the symbol `<input>.<axis>`. Two sizes are equal
    only if they are equal in every run that gives a result. What is not known stays UNDEFINED or None. Of a function,
    what holds in all its calls is noted.
    """
    functions = _functions(model)
    declared = _Declared(model)
    engine = Engine(functions, declared.refine)
    engine.run(model.main, [declared.input(value) for value in model.main.inputs], {})
    for function in _callers_first(model.main, functions):
        inputs, bindings = _over_all_calls(engine.calls.get(function, []))
        engine.run(function, inputs, bindings)
    for graph in model.graphs():
        for value in graph.values.values():
            _publish(value, engine.facts.get(value, Fact()))


def _publish(value: Value, fact: Fact) -> None:
    value.dtype = fact.dtype
    value.shape = fact.shape
    is_vector = fact.shape is not None and len(fact.shape) <= 1 and fact.dtype in INTEGERS
    value.elements = fact.elements if is_vector else None


class _Declared:
    """What the model says of its values itself."""

    def __init__(self, model: Model) -> None:
        self.main = model.main
        self.types: dict[Graph, dict[str, onnx.TypeProto]] = {}
        for graph in model.main.walk():
            if isinstance(graph.proto, onnx.GraphProto):
                infos = (*graph.proto.value_info, *graph.proto.output, *graph.proto.input)
                self.types[graph] = {info.name: info.type for info in infos}
        self.names = {d.dim_param for t in self.types[model.main].values() for d in t.tensor_type.shape.dim if d.dim_param}

    def input(self, value: Value) -> Fact:
        """An input of the main graph. What is not said of it is unknown, an unnamed size a symbol nobody else has."""
        found = self.types[self.main][value.name]
        tensor = found.tensor_type
        if not tensor.HasField("shape"):
            return Fact(tensor.elem_type)
        shape = tuple(self._size(value, axis, written) for axis, written in enumerate(tensor.shape.dim))
        return with_unknown(Fact(tensor.elem_type, shape), value.name)

    def _size(self, value: Value, axis: int, written: onnx.TensorShapeProto.Dimension) -> Dim:
        number = _number(written)
        if number is not None:
            return number
        if written.dim_param not in UNNAMED:
            return symbolic.symbol(written.dim_param)
        name = f"{value.name}.{axis}"
        while name in self.names:
            name += "'"
        return symbolic.symbol(name)

    def refine(self, value: Value, fact: Fact) -> Fact:
        """A fact with its gaps filled: type, rank, and numbers and names for sizes that nobody has named."""
        found = self.types.get(value.graph, {}).get(value.name)
        if found is None or not found.HasField("tensor_type"):
            return fact
        tensor = found.tensor_type
        dtype = fact.dtype or tensor.elem_type
        if not tensor.HasField("shape") or (fact.shape is not None and len(fact.shape) != len(tensor.shape.dim)):
            return fact._replace(dtype=dtype)
        known = fact.shape or [symbolic.fresh(f"{value.name}.{axis}") for axis in range(len(tensor.shape.dim))]
        shape = tuple(self._better(value.graph, d, written) for d, written in zip(known, tensor.shape.dim, strict=True))
        return Fact(dtype, shape, fact.elements)

    def _better(self, graph: Graph, dim: Dim, written: onnx.TensorShapeProto.Dimension) -> Dim:
        number = _number(written)
        cut = symbolic.clamped(dim)
        if cut is not None and cut[1] == number:
            return number  # of min(a, n) the model says that it is n: it is never run with less
        if symbolic.is_named(dim):
            return dim
        if number is not None:
            return number
        # inside a body a name may mean another size in every iteration
        is_free = graph is self.main and written.dim_param not in UNNAMED and symbolic.is_fresh(dim)
        return symbolic.symbol(written.dim_param) if is_free else dim


def _number(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def _functions(model: Model) -> dict[FunctionKey, Graph]:
    found = {}
    for graph in model.functions:
        assert graph.function is not None
        domain = "" if graph.function.domain in STANDARD_DOMAINS else graph.function.domain
        found[domain, graph.function.name, graph.function.overload] = graph
    return found


def _callers_first(main: Graph, functions: Mapping[FunctionKey, Graph]) -> list[Graph]:
    """All functions, each after those that call it."""
    order: list[Graph] = []
    entered: set[Graph] = set()
    for start in (*functions.values(), main):
        pending: list[tuple[Graph, bool]] = [(start, False)]
        while pending:
            graph, is_done = pending.pop()
            if is_done:
                order.append(graph)
            elif graph not in entered:
                entered.add(graph)
                pending.append((graph, True))
                pending.extend((called, False) for called in _called(graph, functions))
    return [graph for graph in reversed(order) if graph is not main]


def _called(graph: Graph, functions: Mapping[FunctionKey, Graph]) -> Iterable[Graph]:
    if not functions:
        return []
    keys = {_key(node) for scope in graph.walk() for node in scope.nodes}
    return [functions[key] for key in sorted(keys & functions.keys())]


def _key(node: Node) -> FunctionKey:
    return node.domain, node.op, node.proto.overload


def _over_all_calls(calls: list[tuple[list[Fact], Bindings]]) -> tuple[list[Fact], Bindings]:
    """Inputs and attributes as far as all calls of a function agree."""
    if not calls:
        return [], {}
    inputs, bindings = calls[0]
    for others, attributes in calls[1:]:
        inputs = [join(a, b) for a, b in zip(inputs, others, strict=True)]
        bindings = {name: a for name, a in bindings.items() if attributes.get(name) == a}
    return inputs, bindings
