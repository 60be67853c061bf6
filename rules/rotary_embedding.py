"""x cos + rotate_half(x) sin -> RotaryEmbedding(x, cos, sin): six operators and their temporaries become one."""

from onnxfuse.custom_ops.rotary_embedding.op import ROTARY_EMBEDDING
from onnxfuse.pattern import Var, op
from onnxfuse.rule import Rule

x, cos, sin = Var("x"), Var("cos"), Var("sin")

RULE = Rule(
    before=x * cos + op.RotateHalf(x) * sin,
    after=ROTARY_EMBEDDING(x, cos, sin),
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
    ],
    declines={
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
