"""layer_norm(table[ids] + table_2[ids_2] (+ table_3[ids_3])) -> EmbedLayerNorm: rows go from the tables to the result, once."""

from itertools import permutations

from onnxfuse.custom_ops.embed_layer_norm.op import EMBED_LAYER_NORM
from onnxfuse.graph import Value
from onnxfuse.pattern import Call, Scalar, Var, op, optional
from onnxfuse.rule import Decline, Match, Rule, weight

tables = [Var(f"table_{i}") for i in (1, 2, 3)]
ids = [Var(f"ids_{i}") for i in (1, 2, 3)]
scale, bias, axes, epsilon = Var("scale"), Var("bias"), Scalar("axes"), Scalar("epsilon")

first, second, third = (op.Gather(t, i, axis=0) for t, i in zip(tables, ids, strict=True))


def build(match: Match) -> Call:
    if match.scalar(axes) != (-1,):
        raise Decline(f"only the last axis may be normalised; the axes are {list(match.scalar(axes))}")
    pairs = [(match.value(i), match.value(t)) for i, t in zip(ids, tables, strict=True) if match.has(i)]
    parts = [v for pair in _longest_first(match, pairs) for v in pair]
    tail = (match.root.shape or ())[-1:]
    weights = [weight(match, hole, tail) if match.has(hole) else None for hole in (scale, bias)]
    return EMBED_LAYER_NORM(*parts, *[None] * (6 - len(parts)), *weights, epsilon=match.scalar(epsilon))


def _longest_first(match: Match, pairs: list[tuple[Value, Value]]) -> list[tuple[Value, Value]]:
    """With indices for every row of the result in front: the others may be the same for several."""
    rows = (match.root.shape or ())[:-1]
    found = next((list(order) for order in permutations(pairs) if order[0][0].shape == rows), None)
    if found is None:
        raise Decline("one of the tables must be asked for a row for each row of the result")
    return found


RULE = Rule(
    before=op.LayerNormalization((first + second + optional(third)).named("sum"), axes=axes, epsilon=epsilon) * optional(scale)
    + optional(bias),
    after=build,
    outputs=["sum"],
    fires_on=[
        """g (int64[b,s] i, int64[b,s] k, float[4] w, float[4] c) => (float[b,s,4] y)
        <float[5,4] t = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2,1,2,3,4}, float[7,4] p = {1,0,2,0,3,0,4,0,5,0,6,0,7,0,1,1,2,2,3,3,4,4,5,5,6,6,7,7},
        float[4,4] q = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}, int64[1,3] j = {0, 1, 2}> {
            a = Gather(t, i)  d = Gather(q, k)  e = Add(a, d)  f = Gather(p, i)  z = Add(e, f)  y = LayerNormalization(z, w, c)
        }""",
        """g (int64[2,3] i, float[4] w) => (float[2,3,4] y, float[2,3,4] r)
        <float[5,4] t = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2,1,2,3,4}, float[3,4] p = {1,0,2,0,3,0,4,0,5,0,6,0}, int64[1,3] j = {0, 1, 2}> {
            a = Gather(t, i)  f = Gather(p, j)  z = Add(f, a)  y = LayerNormalization(z, w)  r = Relu(z)
        }""",
    ],
    declines={
        "one of the tables must be asked for a row for each row of the result": """
        g (int64[2,1] i, int64[1,3] j, float[4] w) => (float[2,3,4] y)
        <float[4,4] t = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2}, float[4,4] p = {1,0,2,0,3,0,4,0,5,0,6,0,1,1,2,2}> {
            a = Gather(t, i)  f = Gather(p, j)  z = Add(f, a)  y = LayerNormalization(z, w)
        }""",
    },
)
