"""Queries, keys and values on their way into the layouts that operators of others want."""

from __future__ import annotations

from dataclasses import dataclass, replace

from onnxfuse.glue import expanded, ints, padded, reshape_to, reshaped, shape_of, transposed, unsqueezed
from onnxfuse.rule import Decline, Made
from onnxfuse.symbolic import Dim
from onnxfuse.target import GivenOperand, Use

AXES = {"BHSD": (0, 1, 2, 3), "BSHD": (0, 2, 1, 3), "BHDS": (0, 1, 3, 2)}  # where [batch, heads, seq, size] are


@dataclass(frozen=True)
class Laid:
    """An operand with its layout, and what it holds as [batch, heads, seq, size]; the number of heads is known."""

    operand: GivenOperand
    layout: str
    batch: Dim
    heads: int
    seq: Dim
    size: Dim

    @property
    def seq_axis(self) -> int:
        return {"BHSD": 2, "BHDS": 3}.get(self.layout, 1)

    def with_nothing(self) -> Laid:
        """With a key, or a value, of zeros behind the last."""
        return replace(self, operand=padded(self.operand, self.seq_axis, 0.0), seq=self.seq + 1)

    def transposes(self, layout: str) -> int:
        """How many transposes bring it into "BSE" or "BHSD"."""
        return int((self.layout in ("BSE", "BSHD")) != (layout == "BSE"))

    def as_bse(self) -> GivenOperand:
        """[batch, seq, heads * size]"""
        if self.layout == "BSE":
            return self.operand
        orders = {"BSHD": None, "BHSD": (0, 2, 1, 3), "BHDS": (0, 3, 1, 2)}
        order = orders[self.layout]
        by_seq = self.operand if order is None else transposed(self.operand, *order)
        return reshaped(by_seq, (self.batch, self.seq, self.heads * self.size))

    def as_bhsd(self) -> GivenOperand:
        """[batch, heads, seq, size]"""
        if self.layout == "BSE":
            return transposed(self._split(), 0, 2, 1, 3)
        return self.operand if self.layout == "BHSD" else transposed(self.operand, *AXES[self.layout])

    def _split(self) -> Made:
        return reshaped(self.operand, (self.batch, self.seq, self.heads, self.size))

    def repeated(self, times: int, opset: int) -> Laid:
        """Each head so many times in a row, as grouped queries share it."""
        if times == 1:
            return self
        heads = self.heads * times
        if self.layout in ("BHSD", "BHDS"):
            rows = shape_of(self.operand)[2:]
            return replace(self, operand=self._repeat(self.operand, 2, times, (self.batch, heads, *rows), opset), heads=heads)
        split = self._split() if self.layout == "BSE" else self.operand
        return replace(
            self, operand=self._repeat(split, 3, times, (self.batch, self.seq, heads * self.size), opset), layout="BSE", heads=heads
        )

    def _repeat(self, operand: GivenOperand, axis: int, times: int, shape: tuple[Dim, ...], opset: int) -> Made:
        apart = unsqueezed(operand, [axis], opset)
        repeats = [times if i == axis else 1 for i in range(5)]
        many = tuple(times if i == axis else d for i, d in enumerate(shape_of(apart)))
        return reshaped(expanded(apart, ints(operand, *repeats), many), shape)


def laid(use: Use, name: str) -> Laid:
    """The operand `q`, `k` or `v` of the use. Raises Decline when its number of heads is not known."""
    operand, layout = use.operand(name), str(use.attribute(f"{name}_layout"))
    shape = shape_of(operand)
    if layout == "BSE":
        own = int(use.attribute("q_num_heads"))
        heads: Dim = own if name == "q" else int(use.attribute("kv_num_heads")) or own
        return Laid(operand, layout, shape[0], _known(heads, name), shape[1], shape[2] // heads)
    batch, heads, seq, size = (shape[axis] for axis in AXES[layout])
    return Laid(operand, layout, batch, _known(heads, name), seq, size)


def _known(heads: Dim, name: str) -> int:
    if not isinstance(heads, int):
        raise Decline(f"the number of heads of {name} must be known; it is {heads}")
    return heads


def steps(use: Use, given: str, q: Laid, size: Dim) -> tuple[Made, ...]:
    """What brings a result that comes as "BSE" or "BHSD" into the layout that is wanted; value vectors have `size` elements."""
    wanted, dtype = str(use.attribute("y_layout")), use.match.root.dtype
    shapes: dict[str, tuple[Dim, ...]] = {
        "BSE": (q.batch, q.seq, q.heads * size),
        "BSHD": (q.batch, q.seq, q.heads, size),
        "BHSD": (q.batch, q.heads, q.seq, size),
    }
    made: list[Made] = []
    for before, after in _way(given, wanted):
        if "BSE" in (before, after):
            made.append(Made("Reshape", (ints(q.operand, *reshape_to(shapes[before], shapes[after])),), dtype, shapes[after]))
        else:
            made.append(Made("Transpose", (), dtype, shapes[after], (("perm", (0, 2, 1, 3)),)))
    return tuple(made)


def _way(given: str, wanted: str) -> list[tuple[str, str]]:
    """The layouts in between, pair by pair: only neighbours in BSE, BSHD, BHSD are one operator apart."""
    order = ["BSE", "BSHD", "BHSD"]
    first, last = order.index(given), order.index(wanted)
    passed = order[first : last + 1] if first <= last else order[last : first + 1][::-1]
    return list(zip(passed, passed[1:], strict=False))
