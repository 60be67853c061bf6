"""x min(max(x/6 + 1/2, 0), 1), or of x + bias -> HardSwish(x, bias): up to five passes over memory become one."""

from onnxfuse.custom_ops.hard_swish.op import HARD_SWISH
from onnxfuse.pattern import Var, op, optional
from onnxfuse.rule import Rule, last_axis_vector

x, bias = Var("x"), Var("bias", constant=True)

RULE = Rule(
    before=op.HardSwish(x + optional(bias)),
    after=HARD_SWISH(x, bias),
    where=[last_axis_vector(bias, x)],
    fires_on=[
        "g (float[2,8] x) => (float[2,8] y) { h = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x) y = Mul(x, h) }",
        """g (float[n,8] x) => (float[n,8] y) <float three = {3}, float six = {6}, float zero = {0}> {
            a = Add(x, three)  c = Clip(a, zero, six)  m = Mul(x, c)  y = Div(m, six)
        }""",
        """g (float[2,8] x) => (float[2,8] y) <float three = {3}, float six = {6}> {
            a = Add(x, three)  r = Relu(a)  c = Min(r, six)  m = Div(c, six)  y = Mul(m, x)
        }""",
        "g (float[2,8] x) => (float[2,8] y) <float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}> { z = Add(b, x) y = HardSwish(z) }",
    ],
    declines={
        "must be read by nobody else": """g (float[2,8] x) => (float[2,8] y, float[2,8] h) {
            h = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)  y = Mul(x, h)
        }""",
    },
)
