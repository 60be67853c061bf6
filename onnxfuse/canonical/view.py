"""The canonical view of a graph: for every value the term it is, and for every term the values that hold it.

The view is read, never written back. Casts between floating-point types are looked through (whoever uses a
match checks the narrowing ones: see `matcher`); layout operators become `View`s; standard and contrib ops that
are compositions (Gemm, LayerNormalization, BiasGelu, ...) are taken apart, so that one rule sees all spellings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, reduce
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from onnxfuse.graph import Graph, Node, Value, constant_value
from onnxfuse.identities import Canonical
from onnxfuse.layout import REPEAT, Layout, compose, expand, identity, without_axes
from onnxfuse.symbolic import Dim, broadcast
from onnxfuse.term import NUMBER, SUM, Term, product_of

T = onnx.TensorProto
FLOATS = (T.FLOAT, T.FLOAT16, T.BFLOAT16, T.DOUBLE)
SMALL = 4096  # constants up to this many elements are compared by what they hold
LeafKey = tuple[Any, ...]


class View:
    """Terms of all values of one graph. Values from outer scopes are leaves."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.algebra = Canonical()
        self.terms: dict[Value, Term] = {}
        self.values: dict[Term, list[Value]] = defaultdict(list)
        self._multiples: dict[Term, list[float]] = defaultdict(list)
        self._exact: dict[Value, int] = {}
        self._twins: dict[Value, list[Value]] = {}
        self._known: dict[Hashable, int] = {}
        self._filled: dict[Value, Term] = {}  # other terms for values, while a node is looked at where their shape matters or does not
        for value in graph.values.values():
            if value.producer is None:
                self._set(value, self._source(value))
        for node in graph.nodes:
            self._visit(node)

    def term(self, value: Value | None) -> Term | None:
        """What `value` is; None for an absent optional input."""
        if value is None:
            return None
        if value in self._filled:
            return self._filled[value]
        if value not in self.terms:  # of an outer scope
            self.terms[value] = self._source(value)
            self.values[self.terms[value]].append(value)
        return self.terms[value]

    def twins(self, value: Value) -> list[Value]:
        """Other values that hold the very same numbers, computed the same way: exporters repeat a mask in each layer.

        An equal term is not enough: terms look through casts, and a cast rounds.
        """
        if value not in self._twins:
            alike = self.values.get(self.terms[value], ()) if value in self.terms else ()
            others = [v for v in alike if v is not value and v.dtype == value.dtype]
            number = self._number_of(value) if others else 0
            self._twins[value] = [v for v in others if self._number_of(v) == number]
        return self._twins[value]

    def _number_of(self, value: Value) -> int:
        """The value number: equal for values made by the same operators from the same sources."""
        todo = [value] if value not in self._exact else []
        while todo:
            top = todo[-1]
            missing = [v for v in self._sources(top) if v not in self._exact]
            if missing and top not in self._exact:
                todo += missing
                continue
            self._exact.setdefault(top, self._known.setdefault(self._exact_key(top), len(self._known)))
            todo.pop()
        return self._exact[value]

    def _sources(self, value: Value) -> list[Value]:
        if value.elements is not None or value.producer is None or value.producer.graph is not self.graph:
            return []
        return [v for v in value.producer.inputs if v is not None]

    def _exact_key(self, value: Value) -> Hashable:
        if value.elements is not None:
            return "elements", value.dtype, value.rank, value.elements
        node, term = value.producer, self.term(value)
        if value.is_constant and term is not None and (term.op == NUMBER or isinstance(term.tag, _Constant)):
            return "constant", value.dtype, value.shape, term.id
        attributes = plain_attributes(node) if node is not None and node.graph is self.graph else None
        if node is None or attributes is None or node.subgraphs or node.op in UNREPEATABLE:
            return "value", value
        sources = tuple(None if v is None else self._exact[v] for v in node.inputs)
        return node.domain, node.op, node.outputs.index(value), tuple(sorted(attributes.items())), sources

    def number(self, value: Value | None) -> float | None:
        """The number a constant scalar holds, whatever its rank; None if it is something else."""
        term = self.term(value)
        return term.coefficient if term is not None and term.op == NUMBER else None

    def multiples(self, term: Term) -> list[float]:
        """The factors f for which some value of the graph is f * term, 1 first if it is among them."""
        coefficient, parts = product_of(term)
        factors = self._multiples.get(self.algebra.product(1.0, parts), ())
        return sorted((f / coefficient for f in factors), key=lambda f: f != 1)

    def _set(self, value: Value, term: Term) -> None:
        self.terms[value] = term
        self.values[term].append(value)
        coefficient, parts = product_of(term)
        if parts and len(self.values[term]) == 1:
            self._multiples[self.algebra.product(1.0, parts)].append(coefficient)

    def _source(self, value: Value) -> Term:
        """The term of a value that no operation of this graph explains."""
        if value.elements is not None and len(value.elements) == 1 and isinstance(value.elements[0], int):
            return self.algebra.number(float(value.elements[0]))
        array = constant_value(value, SMALL)
        if array is None or array.dtype.kind not in "fiub" and str(array.dtype) != "bfloat16":
            return self.algebra.leaf(value)
        if array.size == 1 and array.dtype.kind != "b":
            number = float(array.reshape(()))
            if not np.isnan(number):
                return self.algebra.number(number)
        kind = "f" if value.dtype in FLOATS else array.dtype.kind
        return self.algebra.leaf(_Constant(value.name, (kind, array.shape, array.astype(np.float64).tobytes())))

    def _visit(self, node: Node) -> None:
        outputs = [o for o in node.outputs if o is not None]
        if node.op == "Constant" and not node.domain:
            for value in outputs:
                self._set(value, self._source(value))
            return
        for value in outputs:
            if value.elements is not None and len(value.elements) == 1 and isinstance(value.elements[0], int):
                self._set(value, self.algebra.number(float(value.elements[0])))
        self._filled = self._unexpanded(node) if node.op in POINTWISE else {}
        terms = self._meaning(node)
        self._filled = {}
        if any(t is None or t.op != NUMBER for t in terms) and (filled := self._shaping(node)):
            self._filled = {v: self._as_filled(v) for v in filled}
            terms = self._meaning(node)
            self._filled = {}
        for position, output in enumerate(node.outputs):
            if output is not None and output not in self.terms:
                term = terms[position] if position < len(terms) else None
                self._set(output, term if term is not None else self.algebra.leaf(output))

    def _meaning(self, node: Node) -> Sequence[Term | None]:
        """A term per output, None where it is itself and nothing more."""
        if any(isinstance(a, gs.Node.AttributeRef) for a in node.attributes.values()):
            return [None] * len(node.outputs)  # what the node does is up to the caller of the function it is in
        handler = HANDLERS.get((node.domain, node.op))
        terms = handler(self, node) if handler else None
        return self._generic(node) if terms is None else terms

    def _unexpanded(self, node: Node) -> dict[Value, Term]:
        """Inputs that an Expand repeats as the operator would repeat them itself, as what they were before it."""
        shapes = {v: v.shape for v in node.inputs if v is not None}
        found: dict[Value, Term] = {}
        for value in shapes:
            source = self.layout(value) if value in self.terms and self.terms[value].op != NUMBER else None
            if source is None or not _is_expanded(source[2]):
                continue
            smaller = {**shapes, value: source[2].base}
            known = [s for s in smaller.values() if s is not None]
            if len(known) == len(smaller) and node.outputs[0] is not None and _broadcast(known) == node.outputs[0].shape:
                shapes, found[value] = smaller, self.algebra.scale(source[1], source[0])
        return found

    def _shaping(self, node: Node) -> list[Value]:
        """Constants of many equal elements whose shape matters here: a number alone does not say what the node gives.

        To pointwise operators it matters only where the others are broadcast to it.
        """
        numbers = [v for v in node.inputs if v is not None and v in self.terms and self.terms[v].op == NUMBER and v.shape != ()]
        if node.op not in POINTWISE:
            return [v for v in numbers if v.shape is None or any(d != 1 for d in v.shape)]
        others = [v.shape for v in node.inputs if v is not None and v not in numbers and v.shape != ()]
        if any(s is None for s in others):  # of unknown rank, but surely not 0
            return [v for v in numbers if v.shape != (1,)]
        joint = _broadcast([s for s in others if s is not None])
        return numbers if node.outputs[0] is not None and node.outputs[0].shape != joint else []

    def _as_filled(self, value: Value) -> Term:
        if value.shape is None:
            return self.algebra.leaf(value)
        return self.algebra.plain("Filled", (self.terms[value],), {"shape": value.shape})

    def _generic(self, node: Node) -> list[Term | None]:
        """An operation the view has nothing to say about, except that equal ones are equal."""
        attributes = plain_attributes(node)
        if attributes is None or node.subgraphs or node.domain or node.op in UNREPEATABLE:
            return [None] * len(node.outputs)
        args = [self.term(v) or self.algebra.leaf("absent") for v in node.inputs]
        name = f"onnx {node.op}" if node.op in OWN_FORM else node.op
        single = len([o for o in node.outputs if o is not None]) == 1 and len(node.outputs) == 1
        if single:
            return [self.algebra.operation(name, args, attributes)]
        return [self.algebra.plain(name, args, {**attributes, "output": i}) for i in range(len(node.outputs))]

    # ---- what handlers use

    def args(self, node: Node) -> list[Term]:
        return [t for t in map(self.term, node.inputs) if t is not None]

    def opened(self, value: Value | None) -> bool:
        """Whether a sum may be merged into the sum that reads it: only if nobody else does, nor what it is a multiple of."""
        if value is None or len(value.users) != 1 or value.captured or value.is_output:
            return False
        node = value.producer
        if node is None or node.op not in MULTIPLES or node.domain:
            return True
        return all(self.number(v) is not None or self.opened(v) for v in node.inputs)

    def layout(self, value: Value | None) -> tuple[float, Term, Layout] | None:
        """(factor, base, layout) with value = factor * view of base; None when the shape is unknown."""
        if value is None or value.shape is None:
            return None
        term = self.term(value)
        assert term is not None
        factor, parts = product_of(term)
        if len(parts) == 1 and parts[0][1] == 1 and parts[0][0].op == "View":
            view = parts[0][0]
            layout: Layout = view.attributes["layout"]
            if layout.shape == value.shape:
                return factor, view.args[0], layout
        return factor, self.algebra.product(1.0, parts), identity(value.shape)

    def view(self, source: tuple[float, Term, Layout] | None, change: Callable[[Layout], Layout | None]) -> list[Term | None] | None:
        """The term of a layout operator, or None when what it does to the layout is not known."""
        if source is None:
            return None
        factor, base, layout = source
        changed = change(layout)
        if changed is None:
            return None
        if base.op == NUMBER:  # a constant is the same from wherever it is looked at
            return [self.algebra.scale(base, factor)]
        pushed = self._into_sum(base, changed) if base.op == SUM else None
        seen = pushed if pushed is not None else self.algebra.operation("View", (base,), {"layout": changed})
        return [self.algebra.scale(seen, factor)]

    def _into_sum(self, total: Term, layout: Layout) -> Term | None:
        """A view of a sum as the sum of views, where one of its parts is a view itself (heads merged and parted again)."""
        if not any(t.op == "View" for t, _ in total.parts):
            return None
        seen_total = self.algebra.number(total.coefficient)
        for part, weight in total.parts:
            held = (v.shape for v in self.values.get(part, ()) if v.shape is not None)
            shape = part.attributes["layout"].shape if part.op == "View" else next(held, None)
            own = None if shape is None else without_axes(layout, shape)
            if own is None:
                return None
            source = part.args[0] if part.op == "View" else part
            seen = compose(own, part.attributes["layout"] if part.op == "View" else identity(own.base))
            if seen is None:
                return None
            viewed = self.algebra.scale(self.algebra.operation("View", (source,), {"layout": seen}), weight)
            seen_total = self.algebra.add(seen_total, viewed)
        return seen_total


class _Constant:
    """Tag of a leaf that is a constant: equal content, equal tag; the name is for people."""

    __slots__ = ("content", "name")

    def __init__(self, name: str, content: LeafKey) -> None:
        self.name = name
        self.content = content

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Constant) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.content)


# operators that go element by element, and so may have a number in place of a tensor of that number
POINTWISE = {"Add", "Sub", "Mul", "Div", "Pow", "Sum", "Where", "Max", "Min", "Mod", "And", "Or", "Xor", "Equal", "Less", "LessOrEqual",
             "Greater", "GreaterOrEqual"}  # fmt: skip
MULTIPLES = {"Mul", "Div", "Neg", "Reciprocal", "Pow", "Identity", "Cast", "Dropout"}  # a sum goes through these, with a factor
# names that stand for a canonical form with attributes of its own: an operator that has none of that form gets another
OWN_FORM = {"Mean", "ReduceSum", "ReduceMax", "LayerNormalization", "RMSNormalization", "GroupNormalization", "HardSigmoid", "Swish",
            "Gelu", "Softmax", "Concat"}  # fmt: skip
UNREPEATABLE = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout"}
HANDLERS: dict[tuple[str, str], Callable[[View, Node], Sequence[Term | None] | None]] = {}
Handler = Callable[[View, Node], "Sequence[Term | None] | None"]


def handles(*ops: str, domain: str = "") -> Callable[[Handler], Handler]:
    """Register the canonical form of standard ops (or of another domain's). None from it: nothing known here."""

    def register(handler: Handler) -> Handler:
        for op in ops:
            HANDLERS[domain, op] = handler
        return handler

    return register


@cache
def _defaults(op: str, opset: int) -> Mapping[str, Any]:
    try:
        schema = onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:
        return {}
    given = {n: a.default_value for n, a in schema.attributes.items() if a.default_value.type != onnx.AttributeProto.UNDEFINED}
    return {n: _plain(onnx.helper.get_attribute_value(v)) for n, v in given.items()}


def _broadcast(shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """The shape that values of these shapes are broadcast to."""
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    return tuple(reduce(broadcast, dims) for dims in zip(*padded, strict=True))


def _is_expanded(layout: Layout) -> bool:
    """Whether a view is its base broadcast to a larger shape, and no more."""
    if not any(p.axis == REPEAT for axis in layout.axes for p in axis) or len(layout.base) > len(layout.axes):
        return False
    return expand(identity(layout.base), layout.shape) == layout


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (list, tuple)):
        return tuple(_plain(v) for v in value)
    return value


def plain_attributes(node: Node) -> dict[str, Any] | None:
    """Attributes with defaults filled in, hashable; None if one of them is a tensor, a graph or a reference."""
    attributes = dict(_defaults(node.op, node.graph.opset)) if not node.domain else {}
    for name, value in node.attributes.items():
        if isinstance(value, (gs.Tensor, gs.Graph, gs.Node.AttributeRef)) or not isinstance(value, (int, float, str, bytes, list, tuple)):
            return None
        attributes[name] = _plain(value)
    return attributes


def axes_of(node: Node, view: View, position: int = 1) -> tuple[int, ...] | None:
    """Normalised negative axes, given as attribute or as input; None when unknown; () when all axes are meant."""
    data = node.input(0)
    given = node.attributes.get("axes")
    if given is None and (value := node.input(position)) is not None:
        given = value.elements
        if given is None or not all(isinstance(a, int) for a in given):
            return None
    if given is None:
        return ()
    if isinstance(given, int):
        given = (given,)
    if all(a < 0 for a in given):
        return tuple(sorted(given))
    if data is None or data.rank is None:
        return None
    return tuple(sorted(a - data.rank if a >= 0 else a for a in given))


def negative_axis(axis: int, value: Value | None) -> int | None:
    if axis < 0:
        return axis
    return axis - value.rank if value is not None and value.rank is not None else None


def size_of(value: Value | None, axes: tuple[int, ...]) -> Dim | None:
    """Elements a reduction over `axes` runs over."""
    if value is None or value.shape is None:
        return None
    size: Dim = 1
    for axis in axes or range(len(value.shape)):
        size = size * value.shape[axis]
    return size


def is_float(value: Value | None) -> bool:
    return value is not None and value.dtype in FLOATS
