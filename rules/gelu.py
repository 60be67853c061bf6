"""x/2 (1 + erf(x / sqrt 2)) + its tanh form -> Gelu(x): five passes over memory become one."""

from onnxfuse.custom_ops.gelu.op import GELU
from onnxfuse.pattern import Scalar, Var, op
from onnxfuse.rule import Rule

x, approximate = Var("x"), Scalar("approximate")

RULE = Rule(
    before=op.Gelu(x, approximate=approximate),
    after=GELU(x, approximate=approximate),
    fires_on=[
        "g (float[2,8] x) => (float[2,8] y) { h = Constant<value = float {0.5}>() r = Constant<value = float {0.70710678}>() one = Constant<value = float {1.0}>() a = Mul(x, r) e = Erf(a) p = Add(one, e) m = Mul(x, p) y = Mul(m, h) }",
        "g (float[n,8] x) => (float[n,8] y) { r = Constant<value = float {1.4142135}>() two = Constant<value = float {2.0}>() one = Constant<value = float {1.0}>() a = Div(x, r) e = Erf(a) p = Add(e, one) m = Mul(p, x) y = Div(m, two) }",
    ],
    declines={
        "must be read by nobody else": "g (float[2,8] x) => (float[2,8] y, float[2,8] e) { h = Constant<value = float {0.5}>() r = Constant<value = float {0.70710678}>() one = Constant<value = float {1.0}>() a = Mul(x, r) e = Erf(a) p = Add(one, e) m = Mul(x, p) y = Mul(m, h) }",
    },
)
