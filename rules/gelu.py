"""x/2 (1 + erf(x / sqrt 2)) + its tanh form -> Gelu(x): five passes over memory become one."""

from onnxfuse.custom_ops.gelu.op import GELU
from onnxfuse.pattern import Scalar, Var, op
from onnxfuse.rule import Rule

x, approximate = Var("x"), Scalar("approximate")

CONSTANTS = "half = Constant<value = float {0.5}>() one = Constant<value = float {1.0}>() two = Constant<value = float {2.0}>()"
ROOT_OF_HALF = "r = Constant<value = float {0.70710678}>()"
ROOT_OF_TWO = "r = Constant<value = float {1.4142135}>()"

RULE = Rule(
    before=op.Gelu(x, approximate=approximate),
    after=GELU(x, approximate=approximate),
    fires_on=[
        f"g (float[2,8] x) => (float[2,8] y) {{ {CONSTANTS} {ROOT_OF_HALF} "
        "a = Mul(x, r) e = Erf(a) p = Add(one, e) m = Mul(x, p) y = Mul(m, half) }",
        f"g (float[n,8] x) => (float[n,8] y) {{ {CONSTANTS} {ROOT_OF_TWO} "
        "a = Div(x, r) e = Erf(a) p = Add(e, one) m = Mul(p, x) y = Div(m, two) }",
    ],
    declines={
        "must be read by nobody else": f"g (float[2,8] x) => (float[2,8] y, float[2,8] e) {{ {CONSTANTS} {ROOT_OF_HALF} "
        "a = Mul(x, r) e = Erf(a) p = Add(one, e) m = Mul(x, p) y = Mul(m, half) }",
    },
)
