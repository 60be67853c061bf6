"""x tanh(log(1 + exp(x))), or of x + bias -> Mish(x, bias): three or four passes over memory become one."""

from onnxfuse.custom_ops.mish.op import MISH
from onnxfuse.pattern import Var, op, optional
from onnxfuse.rule import Rule, last_axis_vector

x, bias = Var("x"), Var("bias", constant=True)

RULE = Rule(
    before=op.Mish(x + optional(bias)),
    after=MISH(x, bias),
    where=[last_axis_vector(bias, x)],
    fires_on=[
        "g (float[2,8] x) => (float[2,8] y) { s = Softplus(x) t = Tanh(s) y = Mul(t, x) }",
        """g (float[n,8] x) => (float[n,8] y) {
            one = Constant<value = float {1.0}>()  e = Exp(x)  p = Add(one, e)  l = Log(p)  t = Tanh(l)  y = Mul(x, t)
        }""",
        """g (float[2,8] x) => (float[2,8] y) {
            far = Constant<value = float {20.0}>()  s = Softplus(x)  above = Greater(x, far)
            w = Where(above, x, s)  t = Tanh(w)  y = Mul(x, t)
        }""",
        """<opset_import: ["" : 18]> g (float[2,8] x) => (float[2,8] y) <float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}> {
            z = Add(b, x)  y = Mish(z)
        }""",
    ],
    declines={
        "must be read by nobody else": """g (float[2,8] x) => (float[2,8] y, float[2,8] t) {
            s = Softplus(x)  t = Tanh(s)  y = Mul(t, x)
        }""",
        "bias must be a vector as long as the last axis of x": """<opset_import: ["" : 18]> g (float[2,1] x) => (float[2,2] y)
        <float[2] b = {1, 2}> {
            z = Add(b, x)  y = Mish(z)
        }""",
    },
)
