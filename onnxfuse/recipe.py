"""What a candidate takes away and puts in, as kernels whose sizes are not numbers yet.

Layers repeat: what is equal but for its names is one `Kernel` and one `Recipe`, so it is counted and priced once.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from onnxfuse.candidate import Candidate, Written
from onnxfuse.graph import Graph, Node, Value, constant_value
from onnxfuse.op import Op
from onnxfuse.pattern import Call
from onnxfuse.rule import Made, NewConstant
from onnxfuse.symbolic import Dim, symbols
from onnxfuse.vanishing import helpers, vanished

Operand: TypeAlias = "Value | NewConstant | Made | None"
RUNTIME_DOMAINS = ("", "ai.onnx", "com.microsoft")


@dataclass(frozen=True)
class Tensor:
    """Shape and ONNX type of an operand; a shape of None is unknown."""

    shape: tuple[Dim, ...] | None
    dtype: int


@dataclass(frozen=True, eq=False)
class Kernel:
    """One operator call, equal to no other: `Recipes` hands the same one out for equal calls.

    values: scalar constants among the inputs that the cost depends on, by index. readers: who reads its result.
    """

    op: str
    domain: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]
    attributes: Mapping[str, Any]
    values: Mapping[int, float]
    readers: int = 1


@dataclass(frozen=True)
class Fusion:
    """The fused operator: `counted` where its own arithmetic is known, else that of what it replaces.

    own: it runs in our kernel, not in the runtime's.
    """

    name: str
    counted: Kernel | None
    read: tuple[Tensor, ...]
    written: tuple[Tensor, ...]
    operands: int
    is_attention: bool
    own: bool


@dataclass(frozen=True)
class Recipe:
    """The kernels of the nodes that vanish, and those that come: in front, the fused one, behind it.

    left: nodes among `before` that stay, which the runtime makes one kernel of with nodes that vanish. parts: nodes
    whose arithmetic the fused operator does.
    """

    before: tuple[Kernel, ...]
    left: tuple[Kernel, ...]
    parts: tuple[Kernel, ...]
    helpers: tuple[Kernel, ...]
    fused: Fusion
    steps: tuple[Kernel, ...]

    @property
    def symbols(self) -> set[str]:
        """Names of the symbolic dims in it."""
        kernels = (*self.before, *self.helpers, *self.steps)
        tensors = (*self.fused.read, *self.fused.written, *(t for k in kernels for t in (*k.inputs, *k.outputs)))
        return {name for t in tensors if t is not None for dim in t.shape or () for name in symbols(dim)}


@dataclass
class Recipes:
    """The kernels and recipes of one model.

    merged: for a node that the runtime makes one kernel of with others, all of those.
    """

    merged: dict[Node, frozenset[Node]] = field(default_factory=dict)
    _places: dict[Graph, dict[Node, int]] = field(default_factory=dict)
    _recipes: dict[int, tuple[Call, Recipe]] = field(default_factory=dict)  # by the call's id; it stays alive here
    _kernels: dict[Hashable, Kernel] = field(default_factory=dict)
    _nodes: dict[Node, Kernel | None] = field(default_factory=dict)
    _folded: dict[Node, bool] = field(default_factory=dict)

    def of(self, candidate: Candidate) -> Recipe:
        """What the candidate takes away and puts in."""
        call = candidate.call  # what copies of a candidate have in common
        if id(call) not in self._recipes:
            self._recipes[id(call)] = call, self._make(candidate)
        return self._recipes[id(call)][1]

    def _make(self, candidate: Candidate) -> Recipe:
        gone, call = vanished([candidate]), candidate.call
        free: frozenset[Node] = candidate.written.free if candidate.written is not None else frozenset()
        touched = gone.union(*(self.merged.get(node, ()) for node in gone)) - free
        return Recipe(
            self.kernels(candidate.view.graph, touched),
            self.kernels(candidate.view.graph, touched - gone),
            self._parts(candidate),
            tuple(self.made(made) for made in helpers(call.operands)),
            self._fused(candidate),
            tuple(self._kernel(s.op, "", (s, *s.operands), (s,), dict(s.attributes), {}) for s in call.then),
        )

    def node(self, node: Node) -> Kernel | None:
        """One node; None for what the runtime works out when it loads the model."""
        if node not in self._nodes:
            self._nodes[node] = (
                None
                if self._is_folded(node)
                else self._kernel(node.op, node.domain, node.inputs, node.outputs, _plain(node), _exponent(node), _readers(node))
            )
        return self._nodes[node]

    def order(self, graph: Graph) -> Sequence[Node]:
        """The nodes of a graph such that each stands close behind those that it reads, as the runtime runs them."""
        return list(self._placed(graph))

    def _placed(self, graph: Graph) -> Mapping[Node, int]:
        if graph not in self._places:
            self._places[graph] = {node: place for place, node in enumerate(close_order(graph))}
        return self._places[graph]

    def kernels(self, graph: Graph, nodes: Collection[Node]) -> tuple[Kernel, ...]:
        """These nodes in the order in which the runtime runs them."""
        places = self._placed(graph)
        return tuple(kernel for n in sorted(nodes, key=places.__getitem__) if (kernel := self.node(n)) is not None)

    def _parts(self, candidate: Candidate) -> tuple[Kernel, ...]:
        """What the fused operator computes: the nodes it replaces; one made for its place computes all at one shape."""
        written = candidate.written
        if written is None:
            return self.kernels(candidate.view.graph, candidate.removed)
        return tuple(self._spread(node, written) for node in candidate.region if node not in written.views)

    def _spread(self, node: Node, written: Written) -> Kernel:
        """The node at the shape of the whole, unless it works on what is left of rows."""
        read, made = ([v for v in side if v is not None] for side in (node.inputs, node.outputs))
        rank = len(written.shape)
        is_row = any(v.rank == rank and v.shape is not None and v.shape[-1:] == (1,) != written.shape[-1:] for v in made)
        shapes = {v: v.shape if is_row and v.shape != written.shape else written.shape for v in (*read, *made)}
        inputs, outputs = ([Tensor(shapes[v], v.dtype) for v in side] for side in (read, made))
        return self._counted(node.op, node.domain, inputs, outputs, _plain(node), _exponent(node))

    def made(self, made: Made) -> Kernel:
        """An operator that a rewrite adds in front of the fused one."""
        return self._kernel(made.op, "", made.operands, (made,), dict(made.attributes), {})

    def _kernel(
        self,
        op: str,
        domain: str,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        attributes: Mapping[str, Any],
        values: Mapping[int, float],
        readers: int = 1,
    ) -> Kernel:
        read, written = map(_tensor, inputs), map(_tensor, outputs)
        return self._counted(op, domain, tuple(read), tuple(written), attributes, values, readers)

    def _counted(
        self,
        op: str,
        domain: str,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor | None],
        attributes: Mapping[str, Any],
        values: Mapping[int, float],
        readers: int = 1,
    ) -> Kernel:
        read, written = tuple(inputs), tuple(outputs)
        key = (op, domain, read, written, str(sorted(attributes.items())), str(values), readers)
        if key not in self._kernels:
            self._kernels[key] = Kernel(op, domain, read, written, attributes, values, readers)
        return self._kernels[key]

    def _fused(self, candidate: Candidate) -> Fusion:
        """ONNX Runtime's own operators and attention are counted by themselves; the rest does what it replaces."""
        call, own = candidate.call, isinstance(candidate.call.op, Op)
        attention = candidate.rule.kind == "attention"
        counted = None
        if call.domain in RUNTIME_DOMAINS or (attention and own):
            attributes = {**call.op.attributes, **call.attributes} if own else call.attributes
            counted = self._kernel(call.name, call.domain, call.operands, candidate.outputs, attributes, {})
        unread: frozenset[Value] = candidate.written.unread if candidate.written is not None else frozenset()
        read = tuple(t for o in call.operands if o not in unread and (t := _tensor(o)) is not None)
        written = tuple(t for o in candidate.outputs if (t := _tensor(o)) is not None)
        operands = sum(o is not None for o in call.operands) + len(candidate.outputs)
        return Fusion(call.name, counted, read, written, operands, attention, own)

    def _is_folded(self, node: Node) -> bool:
        """Whether the runtime computes the node once, before any run: its inputs are constants, or its outputs known sizes."""
        if node not in self._folded:
            for other in node.graph.nodes:  # in order, so that what a node reads is known before it
                self._folded[other] = self._is_fixed(other)
        return self._folded[node]

    def _is_fixed(self, node: Node) -> bool:
        if node.op == "Constant" and not node.domain:
            return True
        if node.subgraphs or node.op.startswith("Random"):
            return False
        sizes = [v.elements for v in node.outputs if v is not None]
        known = bool(sizes) and all(e is not None and all(isinstance(n, int) for n in e) for e in sizes)
        return known or (bool(node.inputs) and all(map(self._is_constant, node.inputs)))

    def _is_constant(self, value: Value | None) -> bool:
        return value is None or value.is_constant or (value.producer is not None and self._folded.get(value.producer, False))


def close_order(graph: Graph) -> list[Node]:
    """The nodes in depth-first order: what a node reads comes before it, and whatever only serves it right before it."""
    placed: dict[Node, None] = {}
    ends = [v.producer for v in graph.outputs if v.producer is not None and v.graph is graph]
    for end in [*ends, *graph.nodes]:
        todo = [end]
        while todo:
            node = todo[-1]
            missing = [p for v in node.inputs if v is not None and (p := v.producer) is not None and p.graph is graph and p not in placed]
            if missing and node not in placed:
                todo += reversed(missing)
            else:
                placed.setdefault(todo.pop())
    return list(placed)


def _plain(node: Node) -> dict[str, Any]:
    """The attributes that a count may depend on."""
    return {k: v for k, v in node.attributes.items() if isinstance(v, (int, float, str, list, tuple))}


def _tensor(operand: Operand) -> Tensor | None:
    return None if operand is None else Tensor(operand.shape, operand.dtype)


def _readers(node: Node) -> int:
    """How many nodes read the result, and the caller; sums and products alone are looked at for it."""
    value = node.outputs[0] if node.op in ("Add", "MatMul", "Gemm") and node.outputs else None
    return 1 if value is None else len(value.users) + len(value.captured) + value.is_output


def _exponent(node: Node) -> dict[int, float]:
    """The power of a Pow by a constant: a square costs a product, any other power a logarithm and an exp."""
    power = node.input(1) if node.op == "Pow" else None
    constant = constant_value(power, 1) if power is not None else None
    return {} if constant is None or not constant.size else {1: float(constant.reshape(-1)[0])}
