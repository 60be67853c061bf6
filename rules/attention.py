"""softmax(scale q k' + mask) v -> Attention(q, k, v, mask): the score matrix is never written to memory.

Masks are added, or choose a constant where they are false; exporters guard rows that are masked throughout with
Where(IsNaN(p), 0, p). Heads split by Reshape and Transpose, repeated for grouped queries, and a past joined in front
become attributes and inputs of the op.
"""

import math

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from onnxfuse.custom_ops.attention.op import ATTENTION
from onnxfuse.glue import reshaped, shape_of, unsqueezed
from onnxfuse.graph import Value
from onnxfuse.heads import Heads, folded, is_for_each_head, is_read_elsewhere, multiple, operand, result_layout, scaled_heads, unfolded
from onnxfuse.layout import Layout, Piece, identity
from onnxfuse.pattern import Call, Scalar, Var, either, op, optional
from onnxfuse.rule import Decline, Made, Match, NewConstant, Operand, Rule, broadcast_shapes, leaves
from onnxfuse.term import Term

q, k, v, mask, keep, drop = Var("q"), Var("k"), Var("v"), Var("mask"), Var("keep"), Var("drop")
sink, kept, temperature = Var("sink"), Scalar("kept"), Var("temperature")
scale, softcap, masked, lowest, layout = Scalar("scale"), Scalar("softcap"), Scalar("masked"), Scalar("lowest"), Scalar("layout")

plain = scale * op.MatMul(q, k)
capped = softcap * op.Tanh(plain)
heated = plain * temperature  # one for each head: it goes with the queries
scores = either(plain, heated, capped)
biased = scores + optional(mask)
bounded = either(biased, op.Max(biased, lowest))
replaced = either(op.Where(keep, biased, masked), op.Where(drop, masked, biased)).named("replaced")
apart = either(op.Where(keep, scores, masked), op.Where(drop, masked, scores)) + mask
masked_scores = either(bounded, replaced, apart)
probabilities = op.Softmax(masked_scores, axis=-1)
# a sink is one more score of each row: it takes its share of the softmax, and is cut off again
sunk = op.View(op.Softmax(op.Concat(masked_scores, sink, axis=-1), axis=-1), layout=kept)
# rows that are masked throughout give 0: exporters guard against NaN, or clear masked entries once more
guarded = op.NanToZero(probabilities).named("guarded")
cleared = either(
    op.Where(keep, op.Softmax(op.Where(keep, biased, masked), axis=-1), 0),
    op.Where(drop, 0, op.Softmax(op.Where(drop, masked, biased), axis=-1)),
).named("cleared")
result = op.MatMul(either(guarded, cleared, sunk, probabilities), v)
LOWEST = -1e30  # what is at most this is as good as -inf beside any score


def build(match: Match) -> list[Call]:
    """With the past as inputs of its own where there is one, else (or where that is no order) with the joined keys.

    Queries that are scaled, and are read by others too, are also taken as they are.
    """
    found = [_call(match, past=True), _call(match, past=False)]
    found = found if found[0].operands[4:5] != (None,) else found[1:]
    scaled = any(
        f != 1 and is_read_elsewhere(match, match.view.algebra.scale(match.term(q), f)) for f in match.view.multiples(match.term(q))
    )
    return [*found, _call(match, past=False, read=True)] if scaled else found


def _call(match: Match, *, past: bool, read: bool = False) -> Call:
    queries, of_q = multiple(match, match.term(q), "q", read=read)
    keys, of_k = multiple(match, match.term(k), "k", transposed=True, past=past)
    values = operand(match, match.term(v), "v", past=past)
    if past and ((keys.past is None) != (values.past is None) or keys.seq != values.seq):  # joined otherwise: no past for the op
        return _call(match, past=False)
    _check(match, queries, keys, values)
    if match.has(temperature):
        queries = scaled_heads(queries, match.operand(temperature))
    cap = match.scalar(softcap) if match.has(softcap) else 0.0
    choice, fill = _masks(match)
    wanted, order = result_layout(match.scalar(layout) if match.has(layout) else None, match.root.rank)
    call = ATTENTION(
        queries.value,
        keys.value,
        values.value,
        choice,
        keys.past,
        values.past,
        _sinks(match, queries),
        q_num_heads=_count(queries),
        kv_num_heads=_count(keys),
        q_layout=queries.layout,
        k_layout=keys.layout,
        v_layout=values.layout,
        y_layout=wanted,
        scale=match.scalar(scale) * (cap or 1.0) / (of_q * of_k),
        softcap=cap,
        mask_value=fill,
        zero_masked_rows=int(match.has("guarded") or match.has("cleared")),
    )
    if order is not None:
        call = call.followed_by(Made("Transpose", (), match.root.dtype, match.root.shape, (("perm", order),)))
    if match.root.rank == 5:
        call = call.followed_by(unfolded(match.root, match.holder(match.term(q), "q")))
    return call.giving(_needed(keys.present), _needed(values.present))


def _check(match: Match, queries: Heads, keys: Heads, values: Heads) -> None:
    if match.root.rank == 5 and {folded(shape_of(match.root))[:2]} != {(x.batch, x.heads) for x in (queries, keys, values)}:
        raise Decline("q, k and v of five axes must have the same first three sizes")
    if any(x.batch != queries.batch and 1 in (x.batch, queries.batch) for x in (keys, values)):
        shown = f"{queries.batch}, {keys.batch} and {values.batch}"
        raise Decline(f"q, k and v must have the same batch, none of them repeated; they have {shown}")
    if keys.seq != values.seq and any(match.has(m) and (match.operand(m).shape or (1,))[-1] == values.seq for m in (mask, keep, drop)):
        raise Decline(f"k and v must have as many rows as each other; they have {keys.seq} and {values.seq}")
    if keys.heads != values.heads:
        raise Decline(f"k and v must have as many heads as each other; they have {keys.heads} and {values.heads}")
    for name, heads in (("q", queries), ("k", keys), ("v", values)):
        if heads.layout == "BSE" and not isinstance(heads.heads, int):
            raise Decline(f"the number of heads of {name} must be known; it is {heads.heads}")


def _sinks(match: Match, queries: Heads) -> Operand:
    """The score of each head's sink as a vector, None where there is none."""
    if not match.has(sink):
        return None
    whole: Layout = match.scalar(kept)
    joined = identity(whole.base)
    if whole.fixed or whole.axes[:-1] != joined.axes[:-1] or whole.axes[-1] != (Piece(len(joined.axes) - 1, 1, whole.base[-1] - 1),):
        raise Decline("all scores but the sink must be kept after the softmax")
    value = match.operand(sink)
    if not is_for_each_head(value.shape, queries.heads):
        shape = "unknown" if value.shape is None else "[" + ",".join(map(str, value.shape)) + "]"
        raise Decline(f"sink must have a number for each of the {queries.heads} heads; its shape is {shape}")
    return reshaped(value, (queries.heads,))


def _count(heads: Heads) -> int:
    """The op asks for the number of heads only where the layout does not say it."""
    return heads.heads if isinstance(heads.heads, int) else 0


def _masks(match: Match) -> tuple[Operand, float]:
    """(mask, mask_value): a choice and an added mask together become one added mask."""
    fill = match.scalar(masked) if match.has(masked) else -math.inf
    if match.has("cleared"):
        fill = _cleared(match, fill)
    if match.has(lowest) and match.scalar(lowest) > LOWEST:
        raise Decline(f"scores may only be bounded by the lowest number; the bound is {match.scalar(lowest):g}")
    if fill == math.inf:
        raise Decline("what is not chosen must not be infinity")
    choice = _axes(match, match.operand(keep)) if match.has(keep) else None
    if match.has(drop):
        dropped = _axes(match, match.operand(drop))
        choice = Made("Not", (dropped,), dropped.dtype, dropped.shape)
    if not match.has(mask):
        return choice, fill
    added = _axes(match, match.operand(mask))
    if match.has(lowest):
        added = _bounded(match, added)
    if choice is None:
        return added, -math.inf
    if fill > LOWEST:
        raise Decline(f"beside an added mask, what is not chosen must be -inf or the lowest number; it is {fill:g}")
    zero, low = (NewConstant(np.array(x, tensor_dtype_to_np_dtype(added.dtype)), next(leaves([added]))) for x in (0.0, fill))
    shape = None if added.shape is None or choice.shape is None else broadcast_shapes(added.shape, choice.shape)
    if match.has("replaced"):  # whatever was added is replaced too
        return Made("Where", (choice, added, low), added.dtype, shape), -math.inf
    return Made("Add", (added, Made("Where", (choice, zero, low), added.dtype, choice.shape)), added.dtype, shape), -math.inf


def _cleared(match: Match, fill: float) -> float:
    """-inf, which makes rows that are masked throughout NaN, and NaN is made 0, for what is cleared after the softmax."""
    if fill > LOWEST:
        raise Decline(f"what is cleared after the softmax must be -inf or the lowest number before it; it is {fill:g}")
    if match.has(mask):
        raise Decline("what is cleared after the softmax must have no mask added before it: that may mask all the rest")
    return -math.inf


def _bounded(match: Match, added: Value | Made) -> Made:
    """max(s + mask, lowest) is s + max(mask, lowest): the lowest number takes up any score."""
    floor = NewConstant(np.array(match.scalar(lowest), tensor_dtype_to_np_dtype(added.dtype)), next(leaves([added])))
    return Made("Max", (added, floor), added.dtype, added.shape)


def _axes(match: Match, value: Value | Made) -> Value | Made:
    """The mask, the axis of heads put in where the scores have none."""
    if match.root.rank == 5 and any(d != 1 for d in (value.shape or ())[:-2]):
        raise Decline("beside five axes, the mask must be the same for all batches and heads")
    if value.shape is None or len(value.shape) > 4:
        raise Decline(
            f"the mask must have at most 4 axes; '{value.name}' has {'unknown rank' if value.shape is None else len(value.shape)}"
        )
    if len(value.shape) == 3 and value.shape[0] != 1 and _rank(match.term(q), match) == 3:
        return unsqueezed(value, (1,), match.view.graph.opset)
    return value


def _rank(term: Term, match: Match) -> int | None:
    return len(term.attributes["layout"].axes) if term.op == "View" else match.holder(term, "q").rank


def _needed(present: Value | None) -> Value | None:
    """The joined keys or values, if they leave the model or somebody else reads them."""
    return present if present is not None and (present.is_output or present.captured or len(present.users) > 1) else None


RULE = Rule(
    before=either(op.View(result, layout=layout), result),
    after=build,
    kind="attention",
    fires_on=[
        """g (float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v) => (float[2,3,5,6] y) <float scale = {0.5}> {
            t = Transpose <perm = [0, 1, 3, 2]> (k)  d = MatMul(q, t)  s = Mul(d, scale)  p = Softmax <axis = -1> (s)  y = MatMul(p, v)
        }""",
        """g (float[b,3,s,4] q, float[b,3,t,4] k, float[b,3,t,4] v, float[b,1,1,t] mask) => (float[b,3,s,4] y) <float root = {2.0}> {
            u = Transpose <perm = [0, 1, 3, 2]> (k)  d = MatMul(q, u)  s = Div(d, root)  m = Add(mask, s)  p = Softmax <axis = 3> (m)
            y = MatMul(p, v)
        }""",
        """g (float[b,s,12] x, float[b,t,12] z, float[b,t,12] w, bool[b,1,s,t] keep) => (float[b,s,12] y)
        <int64[4] heads = {0, 0, 3, 4}, int64[3] rows = {0, 0, 12}, float scale = {0.70710678}, float low = {-3.4028234e38}> {
            xh = Reshape(x, heads)  q = Transpose <perm = [0, 2, 1, 3]> (xh)
            zh = Reshape(z, heads)  k = Transpose <perm = [0, 2, 3, 1]> (zh)
            wh = Reshape(w, heads)  v = Transpose <perm = [0, 2, 1, 3]> (wh)
            qs = Mul(q, scale)  ks = Mul(k, scale)  d = MatMul(qs, ks)  m = Where(keep, d, low)  p = Softmax <axis = -1> (m)
            a = MatMul(p, v)  t = Transpose <perm = [0, 2, 1, 3]> (a)  y = Reshape(t, rows)
        }""",
        """g (float[2,6,5,4] q, float[2,2,7,4] k, float[2,2,7,4] v) => (float[2,6,5,4] y)
        <int64[1] two = {2}, int64[5] more = {2, 2, 3, 7, 4}, int64[4] four = {2, 6, 7, 4}, float scale = {0.5}> {
            k1 = Unsqueeze(k, two)  k2 = Expand(k1, more)  k3 = Reshape(k2, four)  kt = Transpose <perm = [0, 1, 3, 2]> (k3)
            v1 = Unsqueeze(v, two)  v2 = Expand(v1, more)  v3 = Reshape(v2, four)
            d = MatMul(q, kt)  s = Mul(scale, d)  p = Softmax <axis = -1> (s)  y = MatMul(p, v3)
        }""",
        """g (float16[2,3,5,4] q, float16[2,3,7,4] k, float16[2,3,7,4] v) => (float16[2,3,5,4] y) <float scale = {0.5}, float cap = {2.0}> {
            kt = Transpose <perm = [0, 1, 3, 2]> (k)  d = MatMul(q, kt)  w = Cast <to = 1> (d)  s = Mul(w, scale)
            c = Div(s, cap)  t = Tanh(c)  r = Mul(t, cap)  p = Softmax <axis = -1> (r)  n = Cast <to = 10> (p)  y = MatMul(n, v)
        }""",
        """g (float[2,3,1,4] q, float[2,3,4,4] past, float[2,3,1,4] now, float[2,3,5,4] v) => (float[2,3,1,4] y, float[2,3,5,4] k)
        <float scale = {0.5}> {
            k = Concat <axis = 2> (past, now)  kt = Transpose <perm = [0, 1, 3, 2]> (k)
            d = MatMul(q, kt)  s = Mul(d, scale)  p = Softmax <axis = -1> (s)  y = MatMul(p, v)
        }""",
        """g (float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,4] v, bool[5,7] keep) => (float[2,3,5,4] y)
        <float scale = {0.5}, float low = {-inf}, float zero = {0.0}> {
            kt = Transpose <perm = [0, 1, 3, 2]> (k)  d = MatMul(q, kt)  s = Mul(d, scale)  m = Where(keep, s, low)
            p = Softmax <axis = -1> (m)  i = IsNaN(p)  g = Where(i, zero, p)  y = MatMul(g, v)
        }""",
        """g (float[b,s,4] q, float[b,t,4] k, float[b,t,4] v, float[b,s,t] mask) => (float[b,s,4] y) {
            kt = Transpose <perm = [0, 2, 1]> (k)  d = MatMul(q, kt)  m = Add(d, mask)  p = Softmax <axis = -1> (m)  y = MatMul(p, v)
        }""",
        """g (float[2,3,5,4] q, float[2,3,4,7] k, float[2,3,7,4] v, bool[2,1,5,7] keep) => (float[2,3,5,4] y)
        <float low = {-3.4028234e38}, float zero = {0.0}> {
            d = MatMul(q, k)  m = Where(keep, d, low)  p = Softmax <axis = -1> (m)  c = Where(keep, p, zero)
            y = MatMul(c, v)
        }""",
        """g (float[b,3,s,4] q, float[b,3,t,4] k, float[b,3,t,4] v, float[b,1,s,t] mask) => (float[b,3,s,4] y)
        <float[1,3,1,1] sinks = {0.5, -0.5, 1.0}, float scale = {0.5}, int64[1] zero = {0}, int64[1] end = {-1}, int64[1] axis = {3}> {
            kt = Transpose <perm = [0, 1, 3, 2]> (k)  d = MatMul(q, kt)  a = Mul(d, scale)  m = Add(a, mask)
            n = Shape(m)  i = Constant <value = int64[3] {0, 1, 2}> ()  f = Gather(n, i)  o = Constant <value = int64[1] {1}> ()
            to = Concat <axis = 0> (f, o)  e = Expand(sinks, to)  c = Concat <axis = -1> (m, e)
            top = ReduceMax <axes = [-1]> (c)  l = Sub(c, top)  p = Softmax <axis = -1> (l)  r = Slice(p, zero, end, axis)  y = MatMul(r, v)
        }""",
        """g (float[b,s,12] x, float[b,3,4,t] k, float[b,3,t,4] v, float[1,3,s,t] bias, float[3,1,1] heat) => (float[b,3,s,4] y)
        <int64[4] heads = {0, 0, 3, 4}> {
            h = Reshape(x, heads)  q = Transpose <perm = [0, 2, 1, 3]> (h)  d = MatMul(q, k)  e = Exp(heat)  s = Mul(d, e)
            m = Add(s, bias)  p = Softmax <axis = -1> (m)  y = MatMul(p, v)
        }""",
        """g (float[b,3,2,s,4] q, float[b,3,2,7,4] k, float[b,3,2,7,6] v) => (float[b,3,2,s,6] y) <float scale = {0.5}> {
            t = Transpose <perm = [0, 1, 2, 4, 3]> (k)  d = MatMul(q, t)  s = Mul(d, scale)  p = Softmax <axis = -1> (s)  y = MatMul(p, v)
        }""",
    ],
    declines={
        "k and v must have as many rows as each other; they have c and t": """
        g (float[2,3,5,4] q, float[2,3,4,c] k, float[2,3,t,4] v, float[5,t] mask) => (float[2,3,5,4] y) {
            d = MatMul(q, k)  s = Add(d, mask)  p = Softmax <axis = -1> (s)  y = MatMul(p, v)
        }""",
        "beside five axes, the mask must be the same for all batches and heads": """
        g (float[2,2,1,5,4] q, float[2,2,1,4,7] k, float[2,2,1,7,4] v, float[2,1,5,7] mask) => (float[2,2,1,5,4] y) {
            d = MatMul(q, k)  s = Add(d, mask)  p = Softmax <axis = -1> (s)  y = MatMul(p, v)
        }""",
        "what is not chosen must not be infinity": """
        g (float[2,3,5,4] q, float[2,3,4,7] k, float[2,3,7,4] v, bool[5,7] keep) => (float[2,3,5,4] y) <float high = {inf}> {
            d = MatMul(q, k)  s = Where(keep, d, high)  p = Softmax <axis = -1> (s)  y = MatMul(p, v)
        }""",
        "sink must have a number for each of the 3 heads; its shape is [3,1,1,1]": """
        g (float[3,3,5,4] q, float[3,3,4,7] k, float[3,3,7,4] v, float[3,1,1,1] sink) => (float[3,3,5,4] y)
        <int64[4] to = {3, 3, 5, 1}, int64[1] none = {0}, int64[1] end = {-1}, int64[1] axis = {3}> {
            d = MatMul(q, k)  e = Expand(sink, to)  c = Concat <axis = -1> (d, e)  p = Softmax <axis = -1> (c)
            r = Slice(p, none, end, axis)  y = MatMul(r, v)
        }""",
        "what scores are multiplied by must be one number, or one for each of the 3 heads; its shape is [5,1]": """
        g (float[2,3,5,4] q, float[2,3,4,7] k, float[2,3,7,4] v, float[5,1] heat) => (float[2,3,5,4] y) {
            d = MatMul(q, k)  s = Mul(d, heat)  p = Softmax <axis = -1> (s)  y = MatMul(p, v)
        }""",
        "q, k and v of five axes must have the same first three sizes": """
        g (float[2,6,2,5,4] q, float[2,1,2,4,7] k, float[2,1,2,7,4] v) => (float[2,6,2,5,4] y) {
            d = MatMul(q, k)  p = Softmax <axis = -1> (d)  y = MatMul(p, v)
        }""",
        "'p' (Softmax) must be read by nobody else; the graph's output reads it too": """
        g (float[2,3,5,4] q, float[2,3,4,7] k, float[2,3,7,4] v) => (float[2,3,5,4] y, float[2,3,5,7] p) {
            d = MatMul(q, k)  p = Softmax <axis = -1> (d)  y = MatMul(p, v)
        }""",
        "q must have 4 axes [batch, heads, seq, dim], or 3, or 5": """
        g (float[2,1,1,3,5,4] q, float[2,1,1,3,4,7] k, float[2,1,1,3,7,4] v) => (float[2,1,1,3,5,4] y) {
            d = MatMul(q, k)  p = Softmax <axis = -1> (d)  y = MatMul(p, v)
        }""",
        "beside an added mask, what is not chosen must be -inf or the lowest number; it is -100": """
        g (float[2,3,5,4] q, float[2,3,4,7] k, float[2,3,7,4] v, float[5,7] bias, bool[5,7] keep) => (float[2,3,5,4] y)
        <float low = {-100.0}> {
            d = MatMul(q, k)  a = Add(d, bias)  m = Where(keep, a, low)  p = Softmax <axis = -1> (m)  y = MatMul(p, v)
        }""",
        "all scores but the sink must be kept after the softmax": """
        g (float[2,3,5,4] q, float[2,3,4,7] k, float[2,3,7,4] v) => (float[2,3,5,4] y)
        <float[2,3,5,1] sink = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3},
        int64[1] one = {1}, int64[1] end = {8}, int64[1] axis = {3}> {
            d = MatMul(q, k)  c = Concat <axis = -1> (d, sink)  p = Softmax <axis = -1> (c)  r = Slice(p, one, end, axis)  y = MatMul(r, v)
        }""",
        "what is cleared after the softmax must be -inf or the lowest number before it; it is -1": """
        g (float[2,3,5,4] q, float[2,3,4,7] k, float[2,3,7,4] v, bool[5,7] keep) => (float[2,3,5,4] y)
        <float low = {-1.0}, float zero = {0.0}> {
            d = MatMul(q, k)  m = Where(keep, d, low)  p = Softmax <axis = -1> (m)  c = Where(keep, p, zero)  y = MatMul(c, v)
        }""",
        "what is cleared after the softmax must have no mask added before it": """
        g (float[2,3,5,4] q, float[2,3,4,7] k, float[2,3,7,4] v, float[5,7] bias, bool[2,1,5,7] keep) => (float[2,3,5,4] y)
        <float low = {-3.4028234e38}, float zero = {0.0}> {
            d = MatMul(q, k)  a = Add(d, bias)  m = Where(keep, a, low)  p = Softmax <axis = -1> (m)  c = Where(keep, p, zero)
            y = MatMul(c, v)
        }""",
        "scores may only be bounded by the lowest number; the bound is 0.5": """
        g (float[2,3,5,4] q, float[2,3,4,7] k, float[2,3,7,4] v) => (float[2,3,5,4] y) <float low = {0.5}> {
            d = MatMul(q, k)  m = Max(d, low)  p = Softmax <axis = -1> (m)  y = MatMul(p, v)
        }""",
        "scores may only be bounded by the lowest number; the bound is -1": """
        g (float[2,3,5,4] q, float[2,3,4,7] k, float[2,3,7,4] v, float[5,7] bias) => (float[2,3,5,4] y) <float low = {-1.0}> {
            d = MatMul(q, k)  a = Add(d, bias)  m = Max(a, low)  p = Softmax <axis = -1> (m)  y = MatMul(p, v)
        }""",
    },
)
