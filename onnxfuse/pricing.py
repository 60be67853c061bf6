"""What a candidate is worth on a device: its nodes before and after, as the cost model's kernels."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from onnxfuse.candidate import Candidate
from onnxfuse.cost import count
from onnxfuse.cost.model import Model, Price, Work, fuse
from onnxfuse.cost.types import BITS
from onnxfuse.cost.work import Kind
from onnxfuse.errors import ShapeError, UsageError
from onnxfuse.graph import Node, Value, constant_value
from onnxfuse.op import TYPE_NAMES, Op
from onnxfuse.rule import Made, NewConstant, Operand
from onnxfuse.symbolic import Dim, broadcasts, substitute

Shape = tuple[int, ...]
RUNTIME_DOMAINS = ("", "ai.onnx", "com.microsoft")


@dataclass
class Pricer:
    """Prices the candidates of one graph at `sizes`, a number for each symbolic dim.

    Layers repeat: what is equal but for its names is counted and priced once.
    """

    model: Model
    sizes: Mapping[str, int]
    _works: dict[Node, Work | None] = field(default_factory=dict)
    _counted: dict[Hashable, Work | None] = field(default_factory=dict)
    _priced: dict[Hashable, Price] = field(default_factory=dict)

    def price(self, candidate: Candidate) -> Price:
        """Predicted times, bytes and launches of the nodes that vanish against those that come."""
        before = [w for n in sorted(candidate.removed, key=lambda n: n.index) if (w := self._node(n)) is not None]
        call = candidate.call
        after = [*self._helpers(call.operands), self._fused(candidate, before), *self._steps(call.then)]
        key = (tuple(before), tuple(after))
        if key not in self._priced:
            self._priced[key] = self.model.price(before, after)
        return self._priced[key]

    def _dims(self, value: Value | NewConstant | Made | None) -> Shape | None:
        return None if value is None or value.shape is None else tuple(map(self._size, value.shape))

    def _size(self, dim: Dim) -> int:
        if isinstance(dim, int):
            return dim
        try:
            number = substitute(dim, self.sizes)
        except ShapeError:  # sizes of this place that do not go together: any one of them will do
            number = max((self._size(d) for pair in broadcasts(dim) for d in pair), default=1)
        return max(number, 0) if isinstance(number, int) else 1

    def _node(self, node: Node) -> Work | None:
        """One node as a kernel; None for a constant and for one whose shapes are unknown."""
        if node not in self._works:
            attributes = {k: v for k, v in node.attributes.items() if isinstance(v, (int, float, str, list, tuple))}
            free = node.op == "Constant" and not node.domain
            self._works[node] = None if free else self._count(node.op, node.domain, node.inputs, node.outputs, attributes, _exponent(node))
        return self._works[node]

    def _count(
        self,
        op: str,
        domain: str,
        inputs: Sequence[Value | NewConstant | Made | None],
        outputs: Sequence[Value | Made | None],
        attributes: Mapping[str, Any],
        values: Mapping[int, float],
    ) -> Work | None:
        shapes = [[self._dims(v) for v in side] for side in (inputs, outputs)]
        types = [v.dtype if v is not None else None for v in (*inputs, *outputs)]
        key = (op, domain, str(shapes), str(types), str(sorted(attributes.items())), str(values))
        if key not in self._counted:
            try:
                self._counted[key] = count.work(op, *shapes, types, attributes, domain=domain, values=values)
            except (ShapeError, UsageError):
                self._counted[key] = None
        return self._counted[key]

    def _helpers(self, operands: Iterable[Operand]) -> Iterator[Work]:
        """Operators that the rewrite adds in front of the fused one."""
        for made in operands:
            if isinstance(made, Made):
                yield from self._helpers(made.operands)
                work = self._count(made.op, "", made.operands, [made], dict(made.attributes), {})
                if work is not None:
                    yield work

    def _steps(self, steps: Iterable[Made]) -> Iterator[Work]:
        """Operators that the rewrite adds behind the fused one: as much goes into each as comes out."""
        for step in steps:
            work = self._count(step.op, "", [step, *step.operands], [step], dict(step.attributes), {})
            if work is not None:
                yield work

    def _fused(self, candidate: Candidate, before: list[Work]) -> Work:
        """The new node: what ONNX Runtime's own costs, an attention as it skips blocks, or the arithmetic of what it replaces."""
        call, own = candidate.call, isinstance(candidate.call.op, Op)
        if call.domain in RUNTIME_DOMAINS or candidate.rule.kind == "attention" and own:
            attributes = {**call.op.attributes, **call.attributes} if own else call.attributes
            work = self._count(call.name, call.domain, call.operands, candidate.outputs, attributes, {})
            if work is not None:
                return replace(work, fused=own, name=call.name)
        operands = [o for o in call.operands if o is not None]
        read, written = sum(map(self._bytes, operands)), sum(self._bytes(o) for o in candidate.outputs if o is not None)
        kind: Kind | None = "attention" if candidate.rule.kind == "attention" else None
        work = fuse(call.name, before, bytes_read=read, bytes_written=written, operands=len(operands) + len(candidate.outputs), kind=kind)
        return replace(work, fused=own)

    def _bytes(self, value: Value | NewConstant | Made) -> int:
        shape = self._dims(value)
        return 0 if shape is None else prod(shape) * BITS.get(TYPE_NAMES.get(value.dtype, "float"), 32) // 8


def _exponent(node: Node) -> dict[int, float]:
    """The power of a Pow by a constant: a square costs a product, any other power a logarithm and an exp."""
    power = node.input(1) if node.op == "Pow" else None
    constant = constant_value(power, 1) if power is not None else None
    return {} if constant is None or not constant.size else {1: float(constant.reshape(-1)[0])}
