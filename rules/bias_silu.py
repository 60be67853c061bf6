"""v sigmoid(alpha v) with v = x + bias -> Silu(x, bias): the sum never travels to memory."""

from onnxfuse.custom_ops.silu.op import SILU
from onnxfuse.pattern import Scalar, Var, op
from onnxfuse.rule import Rule, last_axis_vector

x, bias, alpha = Var("x"), Var("bias", constant=True), Scalar("alpha")

RULE = Rule(
    before=op.Swish(x + bias, alpha=alpha),
    after=SILU(x, bias, alpha=alpha),
    where=[last_axis_vector(bias, x)],
    fires_on=[
        "g (float[2,4] x) => (float[2,4] y) <float[4] b = {1, 2, 3, 4}> { v = Add(b, x) s = Sigmoid(v) y = Mul(s, v) }",
        """g (float[n,4] x) => (float[n,4] y) <float[4] b = {1, 2, 3, 4}, float a = {1.702}> {
            v = Add(x, b)  w = Mul(a, v)  s = Sigmoid(w)  y = Mul(v, s)
        }""",
    ],
    declines={
        "must be read by nobody else": """g (float[2,4] x) => (float[2,4] y, float[2,4] v) <float[4] b = {1, 2, 3, 4}> {
            v = Add(b, x)  s = Sigmoid(v)  y = Mul(s, v)
        }""",
        "bias must be a vector as long as the last axis of x": """g (float[2,3,4] x) => (float[2,3,4] y) <float[3,1] b = {1, 2, 3}> {
            v = Add(b, x)  s = Sigmoid(v)  y = Mul(s, v)
        }""",
    },
)
