"""alpha tanh(beta x), or of x + bias -> ScaledTanh(x, bias): a soft cap of logits in one pass over memory."""

from onnxfuse.custom_ops.scaled_tanh.op import SCALED_TANH
from onnxfuse.pattern import Scalar, Var, op, optional
from onnxfuse.rule import Rule, last_axis_vector

x, bias, alpha, beta = Var("x"), Var("bias", constant=True), Scalar("alpha"), Scalar("beta")

RULE = Rule(
    before=alpha * op.Tanh(beta * (x + optional(bias))),
    after=SCALED_TANH(x, bias, alpha=alpha, beta=beta),
    where=[last_axis_vector(bias, x)],
    fires_on=[
        "g (float[n,8] x) => (float[n,8] y) <float cap = {30}> { d = Div(x, cap)  t = Tanh(d)  y = Mul(t, cap) }",
        """g (float[2,8] x) => (float[2,8] y) <float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}, float half = {0.5}> {
            v = Add(b, x)  d = Mul(half, v)  t = Tanh(d)  y = Neg(t)
        }""",
        "g (float[2,8] x) => (float[2,8] y) <float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}> { v = Add(x, b)  y = Tanh(v) }",
    ],
    declines={
        "must be read by nobody else": """g (float[2,8] x) => (float[2,8] y, float[2,8] d) <float cap = {30}> {
            d = Div(x, cap)  t = Tanh(d)  y = Mul(t, cap)
        }""",
        "bias must be a vector as long as the last axis of x": """g (float[2,3,4] x) => (float[2,3,4] y) <float[3,1] b = {1, 2, 3}> {
            v = Add(b, x)  y = Tanh(v)
        }""",
    },
)
