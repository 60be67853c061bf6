"""x cos + rotate(x) sin -> RotaryEmbedding(x, cos, sin): six operators and their temporaries become one.

Pairs are halves of the last axis or neighbours on it; the rotation is written with rotate(x), or in its two parts.
What is joined behind the rotated part is passed through by the op.
"""

from onnxfuse.custom_ops.rotary_embedding.op import ROTARY_EMBEDDING
from onnxfuse.graph import Value
from onnxfuse.layout import identity, reshape
from onnxfuse.pattern import Call, Scalar, Var, either, op
from onnxfuse.rotations import Whole, joined_halves, joined_pairs, joined_parts, seen
from onnxfuse.rule import Decline, Match, Rule
from onnxfuse.term import Term

x, cos, sin, a, b, rest = Var("x"), Var("cos"), Var("sin"), Var("a"), Var("b"), Var("rest")
sign, column, other_column, flat = Scalar("sign"), Scalar("column"), Scalar("other_column"), Scalar("flat")

halves = x * cos + op.RotateHalf(x) * sin
pairs = x * cos + op.RotatePairs(x).named("pairs") * sin
# a cos - b sin may come as -(b sin - a cos): then what is called a, b, cos, sin is b, a, sin, cos
first, second = a * cos - b * sin, b * cos + a * sin
first_column, second_column = op.View(first, layout=column), op.View(second, layout=other_column)
in_pairs = op.View(op.Concat(sign * first_column, second_column, axis=-1), layout=flat)
whole = either(halves, pairs, op.Concat(sign * first, second, axis=-1), in_pairs)
partial = either(op.Concat(either(halves, pairs, in_pairs), rest, axis=-1), op.Concat(sign * first, second, rest, axis=-1))


def build(match: Match) -> Call:
    turned, tables, interleaved = _turned(match)
    size = 0
    if match.has(rest):
        turned, size = _with_rest(match, turned)
    return ROTARY_EMBEDDING(match.holder(turned, "x"), *tables, interleaved=interleaved, rotary_dim=size)


def _turned(match: Match) -> tuple[Term, list[Value], int]:
    """What is rotated, its cos and sin, and whether in pairs of neighbours."""
    if match.has(x):
        return match.term(x), [match.value(cos), match.value(sin)], int(match.has("pairs"))
    order = 1 if match.scalar(sign) > 0 else -1
    one, other = (match.term(a), match.term(b))[::order]
    tables = [match.value(cos), match.value(sin)][::order]
    both: Whole | None = joined_pairs(one, other) if match.has(flat) else joined_halves(one, other)
    if both is None or abs(match.scalar(sign)) != 1:
        raise Decline("the parts that are rotated must be the halves, or the even and odd elements, of one value")
    if match.has(flat) and not _are_flattened_pairs(match):
        raise Decline("the rotated pairs must become neighbours on the last axis")
    return seen(match.view.algebra, both), tables, int(match.has(flat))


def _are_flattened_pairs(match: Match) -> bool:
    """Whether both parts get a last axis of their own, which is merged once they are joined."""
    columns, result = [match.scalar(column), match.scalar(other_column)], match.scalar(flat)
    unsqueezed = all(c == reshape(identity(c.base), (*c.base, 1)) for c in columns)
    return unsqueezed and result == reshape(identity(result.base), (*result.base[:-2], result.base[-2] * 2))


def _with_rest(match: Match, turned: Term) -> tuple[Term, int]:
    """(x, rotary_dim) where x is what is rotated with what is passed through behind it."""
    both = joined_parts(turned, match.term(rest))
    size = turned.attributes["layout"].shape[-1] if both is not None else None
    if both is None or not isinstance(size, int):
        raise Decline("what is passed through must follow, in the same value, on what is rotated, whose size must be known")
    return seen(match.view.algebra, both), size


RULE = Rule(
    before=either(partial, whole),
    after=build,
    fires_on=[
        """g (float[2,3,5,8] x, float[5,8] cos, float[5,8] sin) => (float[2,3,5,8] y)
        <int64[1] zero = {0}, int64[1] four = {4}, int64[1] end = {9223372036854775807}, int64[1] last = {-1}> {
            a = Slice(x, zero, four, last)  b = Slice(x, four, end, last)  n = Neg(b)  r = Concat <axis = -1> (n, a)
            c = Mul(x, cos)  s = Mul(r, sin)  y = Add(c, s)
        }""",
        """g (float[b,h,s,8] x, float[b,1,s,8] cos, float[b,1,s,8] sin) => (float[b,h,s,8] y) {
            a, b = Split <axis = 3> (x)  n = Neg(b)  r = Concat <axis = 3> (n, a)  s = Mul(sin, r)  c = Mul(cos, x)  y = Add(s, c)
        }""",
        """g (float16[2,3,5,8] x, float16[1,1,5,8] cos, float16[1,1,5,8] sin) => (float16[2,3,5,8] y) {
            a, b = Split <axis = -1> (x)  n = Neg(b)  r = Concat <axis = -1> (n, a)  c = Mul(x, cos)  s = Mul(r, sin)  y = Add(c, s)
        }""",
        """g (float[2,5,24] q, float[5,8] cos, float[5,8] sin) => (float[2,3,5,8] y) <int64[4] heads = {2, 5, 3, 8}> {
            h = Reshape(q, heads)  x = Transpose <perm = [0, 2, 1, 3]> (h)
            a, b = Split <axis = -1> (x)  n = Neg(b)  r = Concat <axis = -1> (n, a)  c = Mul(x, cos)  s = Mul(r, sin)  y = Add(c, s)
        }""",
        """g (float[2,3,5,8] x, float[5,4] cos, float[5,4] sin) => (float[2,3,5,8] y) {
            a, b = Split <axis = -1> (x)  ac = Mul(a, cos)  bs = Mul(b, sin)  p = Sub(ac, bs)
            bc = Mul(b, cos)  as = Mul(a, sin)  q = Add(bc, as)  y = Concat <axis = -1> (p, q)
        }""",
        """g (float[b,h,s,12] z, float[s,8] cos, float[s,8] sin) => (float[b,h,s,12] y) <int64[2] parts = {8, 4}> {
            x, rest = Split <axis = -1> (z, parts)  a, b = Split <axis = -1> (x)  n = Neg(b)  r = Concat <axis = -1> (n, a)
            c = Mul(x, cos)  s = Mul(r, sin)  t = Add(c, s)  y = Concat <axis = -1> (t, rest)
        }""",
        """g (float[2,3,5,12] z, float[5,4] cos, float[5,4] sin) => (float[2,3,5,12] y) <int64[3] parts = {4, 4, 4}> {
            a, b, rest = Split <axis = -1> (z, parts)  bs = Mul(b, sin)  ac = Mul(a, cos)  p = Sub(ac, bs)
            as = Mul(sin, a)  bc = Mul(cos, b)  q = Add(as, bc)  y = Concat <axis = -1> (p, q, rest)
        }""",
        """g (float[b,h,s,8] x, float[s,8] cos, float[s,8] sin) => (float[b,h,s,8] y)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] end = {9223372036854775807}, int64[1] last = {-1}> {
            e = Slice(x, zero, end, last, two)  o = Slice(x, one, end, last, two)  n = Neg(o)
            nu = Unsqueeze(n, last)  eu = Unsqueeze(e, last)  k = Concat <axis = -1> (nu, eu)  d = Shape(x)  r = Reshape(k, d)
            c = Mul(x, cos)  s = Mul(r, sin)  y = Add(c, s)
        }""",
        """g (float[b,s,3,12] z, float[s,1,8] cos, float[s,1,8] sin) => (float[b,s,3,12] y)
        <int64[2] parts = {8, 4}, int64[5] split = {0, 0, 3, 4, 2}, int64[4] flat = {0, 0, 3, 8}, int64[1] last = {-1}> {
            x, rest = Split <axis = -1> (z, parts)  p = Reshape(x, split)  e, o = Split <axis = -1> (p)  n = Neg(o)
            k = Concat <axis = -1> (n, e)  r = Reshape(k, flat)  c = Mul(x, cos)  s = Mul(r, sin)  t = Add(c, s)
            y = Concat <axis = -1> (t, rest)
        }""",
        """g (float[2,5,3,8] x, float[5,1,4] cos, float[5,1,4] sin) => (float[2,5,3,8] y)
        <int64[5] split = {2, 5, 3, 4, 2}, int64[4] flat = {2, 5, 3, 8}, int64 zero = {0}, int64 one = {1}, int64[1] last = {-1}> {
            p = Reshape(x, split)  e = Gather <axis = 4> (p, zero)  o = Gather <axis = 4> (p, one)
            ec = Mul(e, cos)  os = Mul(o, sin)  v = Sub(ec, os)  es = Mul(e, sin)  oc = Mul(o, cos)  w = Add(es, oc)
            vu = Unsqueeze(v, last)  wu = Unsqueeze(w, last)  k = Concat <axis = -1> (vu, wu)  y = Reshape(k, flat)
        }""",
    ],
    declines={
        "must be the halves, or the even and odd elements, of one value": """
        g (float[2,3,5,4] a, float[2,3,5,4] b, float[5,4] cos, float[5,4] sin) => (float[2,3,5,8] y) {
            ac = Mul(a, cos)  bs = Mul(b, sin)  p = Sub(ac, bs)  bc = Mul(b, cos)  as = Mul(a, sin)  q = Add(bc, as)
            y = Concat <axis = -1> (p, q)
        }""",
        "cos must broadcast to x [1,3,5,8] but for its last axis": """
        g (float[1,3,5,8] x, float[2,1,5,8] cos, float[2,1,5,8] sin) => (float[2,3,5,8] y) {
            a, b = Split <axis = -1> (x)  n = Neg(b)  r = Concat <axis = -1> (n, a)  c = Mul(x, cos)  s = Mul(r, sin)  y = Add(c, s)
        }""",
        "'r' (Concat) must be read by nobody else": """
        g (float[2,3,5,8] x, float[5,8] cos, float[5,8] sin) => (float[2,3,5,8] y, float[2,3,5,8] r) {
            a, b = Split <axis = -1> (x)  n = Neg(b)  r = Concat <axis = -1> (n, a)  c = Mul(x, cos)  s = Mul(r, sin)  y = Add(c, s)
        }""",
    },
)
