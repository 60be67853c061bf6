"""RotaryEmbedding in other operators: that of com.microsoft and the standard one of opset 23.

Both take half a table, a row for each position; what is known to hold one half twice is cut. The contrib operator looks
rows up by position, so a table for each batch becomes one long table. x may also be [batch, seq, heads, size].
"""

from __future__ import annotations

from dataclasses import dataclass

from onnx import TensorProto

from onnxfuse.custom_ops.rotary_embedding.halves import half
from onnxfuse.glue import expanded, ints, joined, number, reshape_to, reshaped, shape_of, size, sizes
from onnxfuse.graph import Node
from onnxfuse.op import Attribute
from onnxfuse.pattern import Call
from onnxfuse.rule import Decline, Made
from onnxfuse.symbolic import Dim
from onnxfuse.target import Forms, GivenOperand, Use


@dataclass(frozen=True)
class Turn:
    """The op's operands, understood: tables of [..., rotary / 2], and where sequence and heads are in x."""

    x: GivenOperand
    cos: GivenOperand
    sin: GivenOperand
    seq_axis: int
    rotary: int
    own_batch: bool  # each batch has rows of its own
    known: tuple[Node, ...]  # that make both halves of a row of the tables agree

    @property
    def shape(self) -> tuple[Dim, ...]:
        return shape_of(self.x)

    @property
    def batch(self) -> Dim:
        return self.shape[0]

    @property
    def seq(self) -> Dim:
        return self.shape[self.seq_axis]

    @property
    def heads(self) -> Dim:
        return 1 if len(self.shape) == 3 else self.shape[3 - self.seq_axis]

    @property
    def by_seq(self) -> bool:
        """Whether x must be seen as [batch, seq, heads * size]."""
        return self.seq_axis == 1

    def input(self) -> GivenOperand:
        return reshaped(self.x, self._row()) if self.by_seq and len(self.shape) == 4 else self.x

    def _row(self) -> tuple[Dim, ...]:
        return self.batch, self.seq, self.heads * self.shape[-1]

    def steps(self) -> tuple[Made, ...]:
        """What brings the result back into the shape of x."""
        if not self.by_seq or len(self.shape) == 3:
            return ()
        return (Made("Reshape", (ints(self.x, *reshape_to(self._row(), self.shape)),), self.x.dtype, self.shape),)

    def attributes(self, use: Use, *, with_heads: bool) -> dict[str, Attribute]:
        found: dict[str, Attribute] = {"interleaved": use.attribute("interleaved")}
        partial = self.rotary != self.shape[-1]
        if partial:
            found["rotary_embedding_dim"] = self.rotary
        if partial or with_heads:
            if not isinstance(self.heads, int):
                raise Decline(f"the number of heads must be known; it is {self.heads}")
            found["num_heads"] = self.heads
        return found


def _turn(use: Use) -> Turn:
    x, shape = use.operand("x"), use.shape("x")
    rotary = int(use.attribute("rotary_dim")) or shape[-1]
    assert isinstance(rotary, int)  # a limit of the op
    if len(shape) not in (3, 4):
        raise Decline(f"x must have three or four axes; it has {len(shape)}")
    if use.shape("cos") != use.shape("sin"):
        raise Decline("cos and sin must have the same shape")
    table = (1,) * (len(shape) - len(use.shape("cos"))) + use.shape("cos")
    axis = next((a for a in range(len(shape) - 2, 0, -1) if _is_by_position(table, shape, a)), None)
    if axis is None:
        raise Decline(f"cos must have a row for each position, the same for all heads; it is [{','.join(map(str, table))}]")
    (cos, why_cos), (sin, why_sin) = (half(use, name, rotary) for name in ("cos", "sin"))
    return Turn(x, cos, sin, axis, rotary, own_batch=table[0] != 1, known=tuple(dict.fromkeys((*why_cos, *why_sin))))


def _is_by_position(table: tuple[Dim, ...], shape: tuple[Dim, ...], axis: int) -> bool:
    """Whether the table varies along `axis` of x and at most along the batch besides."""
    others = [d for i, d in enumerate(table[:-1]) if i not in (0, axis)]
    return table[axis] == shape[axis] and table[0] in (1, shape[0]) and all(d == 1 for d in others)


def _contrib(use: Use) -> Call:
    turn = _turn(use)
    if turn.own_batch:
        rows = reshaped(turn.cos, (turn.batch, turn.seq, turn.rotary // 2))
        positions: GivenOperand = _counted(rows)
    else:
        positions = ints(turn.x, 0)
    tables = (reshaped(table, (turn.batch * turn.seq if turn.own_batch else turn.seq, turn.rotary // 2)) for table in (turn.cos, turn.sin))
    call = use.contrib("RotaryEmbedding", turn.input(), positions, *tables, **turn.attributes(use, with_heads=False))
    return call.relying_on(*turn.known).followed_by(*turn.steps())


def _counted(rows: Made) -> Made:
    """0, 1, 2, ... as [batch, seq], for rows [batch, seq, size]."""
    shape, index = sizes(rows, 0, 2), TensorProto.INT64
    count = Made("ReduceProd", (shape,), index, (), (("keepdims", 0),))
    counted = Made("Range", (number(rows, 0, index), count, number(rows, 1, index)), index, None)
    return Made("Reshape", (counted, shape), index, shape_of(rows)[:2])


def _standard(use: Use) -> Call:
    turn = _turn(use)
    tables = (_for_each_batch(turn, table) for table in (turn.cos, turn.sin))
    call = use.standard("RotaryEmbedding", turn.input(), *tables, **turn.attributes(use, with_heads=turn.by_seq))
    return call.relying_on(*turn.known).followed_by(*turn.steps())


def _for_each_batch(turn: Turn, table: GivenOperand) -> GivenOperand:
    """[batch, seq, rotary / 2]"""
    rows = reshaped(table, (turn.batch if turn.own_batch else 1, turn.seq, turn.rotary // 2))
    if turn.own_batch or turn.batch == 1:
        return rows
    to = joined([size(turn.x, 0), ints(turn.x, 1, 1)])
    return expanded(rows, to, (turn.batch, turn.seq, turn.rotary // 2))


FORMS = Forms(contrib=_contrib, standard=_standard)
