"""x/2 (1 + erf(x / sqrt 2)) + its tanh form -> Gelu(x): five passes over memory become one."""

from onnxfuse.custom_ops.gelu.op import GELU
from onnxfuse.pattern import Scalar, Var, op
from onnxfuse.rule import Rule

x, approximate = Var("x"), Scalar("approximate")

RULE = Rule(
    before=op.Gelu(x, approximate=approximate),
    after=GELU(x, approximate=approximate),
    fires_on=[
        """g (float[2,8] x) => (float[2,8] y) <float root_half = {0.70710678}, float one = {1.0}, float half = {0.5}> {
            a = Mul(x, root_half)  e = Erf(a)  p = Add(one, e)  m = Mul(x, p)  y = Mul(m, half)
        }""",
        """g (float[n,8] x) => (float[n,8] y) <float[1] root_two = {1.4142135}, float[1,1] one = {1.0}> {
            half = Constant <value = float {0.5}> ()
            a = Div(x, root_two)  e = Erf(a)  p = Add(e, one)  h = Mul(half, p)  y = Mul(h, x)
        }""",
        """g (float[b,s,6] x) => (float[b,s,6] y, float[b,s,6] z) <float k = {0.79788456}, float c = {0.044715}, float three = {3.0}> {
            half = Constant <value_float = 0.5> ()  one = Constant <value_float = 1.0> ()
            q = Pow(x, three)  d = Mul(q, c)  s = Add(x, d)  i = Mul(s, k)  t = Tanh(i)  p = Add(one, t)  h = Mul(x, half)
            y = Mul(h, p)  z = Neg(y)
        }""",
        """g (float[2,3,8] x) => (float[2,3,8] y) <float k2 = {1.59576912}, float kc2 = {0.07135481}> {
            q = Mul(x, x)  d = Mul(q, kc2)  s = Add(d, k2)  i = Mul(s, x)  t = Sigmoid(i)  y = Mul(x, t)
        }""",
        """g (float16[2,8] x) => (float16[2,8] y) <float root_two = {1.4142135}, float one = {1.0}, float half = {0.5}> {
            w = Cast <to = 1> (x)
            a = Div(w, root_two)  e = Erf(a)  p = Add(e, one)  m = Mul(w, p)  h = Mul(m, half)
            y = Cast <to = 10> (h)
        }""",
        """g (float[4,3] x) => (float[3,4] y) <float root_half = {0.70710678}, float one = {1.0}, float half = {0.5}> {
            i = Identity(x)  t = Transpose(i)  a = Mul(t, root_half)  e = Erf(a)  p = Add(e, one)  m = Mul(p, t)  y = Mul(half, m)
        }""",
    ],
    declines={
        "'e' (Erf) must be read by nobody else; the graph's output reads it too": """g (float[2,8] x) => (float[2,8] y, float[2,8] e)
        <float root_half = {0.70710678}, float one = {1.0}, float half = {0.5}> {
            a = Mul(x, root_half)  e = Erf(a)  p = Add(one, e)  m = Mul(x, p)  y = Mul(m, half)
        }""",
        "'p' (Add) must be read by nobody else; Neg 'z' reads it too": """g (float[2,8] x) => (float[2,8] y, float[2,8] z)
        <float root_half = {0.70710678}, float one = {1.0}, float half = {0.5}> {
            a = Mul(x, root_half)  e = Erf(a)  p = Add(one, e)  m = Mul(x, p)  y = Mul(m, half)  z = Neg(p)
        }""",
        "rounds to float16 in the middle": """g (float[2,8] x) => (float[2,8] y)
        <float root_half = {0.70710678}, float one = {1.0}, float half = {0.5}> {
            a = Mul(x, root_half)  e = Erf(a)  n = Cast <to = 10> (e)  w = Cast <to = 1> (n)
            p = Add(one, w)  m = Mul(x, p)  y = Mul(m, half)
        }""",
        "x must be of type float or float16 or bfloat16; it is double": """g (double[2,8] x) => (double[2,8] y)
        <double root_half = {0.70710678}, double one = {1.0}, double half = {0.5}> {
            a = Mul(x, root_half)  e = Erf(a)  p = Add(one, e)  m = Mul(x, p)  y = Mul(m, half)
        }""",
        "the shape of x must be known": """g (float[2,8] x, int64[n] shape) => (float[] y)
        <float root_half = {0.70710678}, float one = {1.0}, float half = {0.5}> {
            r = Reshape(x, shape)  a = Mul(r, root_half)  e = Erf(a)  p = Add(one, e)  m = Mul(r, p)  y = Mul(m, half)
        }""",
    },
)
