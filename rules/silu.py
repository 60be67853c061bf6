"""x sigmoid(alpha x) -> Silu(x): SiLU with alpha 1, QuickGELU with 1.702; two passes over memory become one."""

from onnxfuse.custom_ops.silu.op import SILU
from onnxfuse.pattern import Scalar, Var, op
from onnxfuse.rule import Rule

x, alpha = Var("x"), Scalar("alpha")

RULE = Rule(
    before=op.Swish(x, alpha=alpha),
    after=SILU(x, alpha=alpha),
    fires_on=[
        """g (float[2,8] x) => (float[2,8] y) { s = Sigmoid(x)  y = Mul(s, x) }""",
        """g (float[b,s,8] x) => (float[b,s,8] y) <float alpha = {1.702}> { c = Mul(alpha, x)  s = Sigmoid(c)  y = Mul(x, s) }""",
        """g (float[2,8] x) => (float[2,8] y) <float[1] one = {1.0}> { n = Neg(x)  e = Exp(n)  p = Add(one, e)  y = Div(x, p) }""",
        """g (float[2,8] x) => (float[2,8] y) <float half = {0.5}, float one = {1.0}> {
            h = Mul(x, half)  t = Tanh(h)  p = Add(t, one)  y = Mul(h, p)
        }""",
        """g (float16[2,7] x) => (float16[2,7] y) { w = Cast <to = 1> (x)  s = Sigmoid(w)  m = Mul(s, w)  y = Cast <to = 10> (m) }""",
        """g (float[2,8] x, float[2,8] w) => (float[2,8] y) { z = Mul(x, w)  s = Sigmoid(z)  y = Mul(s, z) }""",
    ],
    declines={
        "'s' (Sigmoid) must be read by nobody else; the graph's output reads it too": """
        g (float[2,8] x) => (float[2,8] y, float[2,8] s) { s = Sigmoid(x)  y = Mul(s, x) }""",
        "the model must import opset 11 or later; it imports 9": """<opset_import: ["" : 9]>
        g (float[2,8] x) => (float[2,8] y) { s = Sigmoid(x)  y = Mul(s, x) }""",
        "x must be of type float or float16 or bfloat16; it is double": """
        g (double[2,8] x) => (double[2,8] y) { s = Sigmoid(x)  y = Mul(s, x) }""",
    },
)
