"""What a candidate is worth on a device: its nodes before and after, as the cost model's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from onnxfuse.candidate import Candidate
from onnxfuse.cost import count
from onnxfuse.cost.model import Model, Price, Work, fuse
from onnxfuse.cost.types import BITS
from onnxfuse.cost.work import Kind
from onnxfuse.errors import ShapeError
from onnxfuse.graph import Node, Value, constant_value
from onnxfuse.op import TYPE_NAMES, Op
from onnxfuse.rule import Made, NewConstant
from onnxfuse.symbolic import Dim, broadcasts, substitute

Shape = tuple[int, ...]


@dataclass
class Pricer:
    """Prices the candidates of one graph at `sizes`, a number for each symbolic dim."""

    model: Model
    sizes: Mapping[str, int]

    def price(self, candidate: Candidate) -> Price:
        """Predicted times, bytes and launches of the nodes that vanish against the one that comes."""
        before = [w for n in sorted(candidate.removed, key=lambda n: n.index) if (w := self._node(n)) is not None]
        return self.model.price(before, [self._fused(candidate, before)])

    def _dims(self, value: Value | None) -> Shape | None:
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
        if node.op == "Constant":
            return None
        attributes = {k: v for k, v in node.attributes.items() if isinstance(v, (int, float, str, list, tuple))}
        values = (*node.inputs, *node.outputs)
        shapes = [self._dims(v) for v in values]
        types = [TYPE_NAMES.get(v.dtype) if v is not None else None for v in values]
        split = len(node.inputs)
        try:
            return count.work(
                node.op, shapes[:split], shapes[split:], types, attributes, domain=node.domain, name=node.label, values=_exponent(node)
            )
        except ShapeError:
            return None

    def _fused(self, candidate: Candidate, before: list[Work]) -> Work:
        """The new node: all the arithmetic of what it replaces, moving only its own inputs and outputs."""
        operands = [o for o in candidate.call.operands if o is not None]
        read, written = sum(map(self._bytes, operands)), sum(self._bytes(o) for o in candidate.outputs if o is not None)
        kind: Kind | None = "attention" if candidate.rule.kind == "attention" else None
        count_of = len(operands) + len(candidate.outputs)
        work = fuse(candidate.call.name, before, bytes_read=read, bytes_written=written, operands=count_of, kind=kind)
        return replace(work, fused=isinstance(candidate.call.op, Op))

    def _bytes(self, value: Value | NewConstant | Made) -> int:
        shape = None if value.shape is None else tuple(map(self._size, value.shape))
        return 0 if shape is None else prod(shape) * BITS.get(TYPE_NAMES.get(value.dtype, "float"), 32) // 8


def _exponent(node: Node) -> dict[int, float]:
    """The power of a Pow by a constant: a square costs a product, any other power a logarithm and an exp."""
    power = node.input(1) if node.op == "Pow" else None
    constant = constant_value(power, 1) if power is not None else None
    return {} if constant is None or not constant.size else {1: float(constant.reshape(-1)[0])}
