"""relu(x)^2, or of x + bias -> SquaredRelu(x, bias): two or three passes over memory become one."""

from onnxfuse.custom_ops.squared_relu.op import SQUARED_RELU
from onnxfuse.pattern import Var, op, optional
from onnxfuse.rule import Rule, last_axis_vector

x, bias = Var("x"), Var("bias", constant=True)

RULE = Rule(
    before=op.Relu(x + optional(bias)) ** 2,
    after=SQUARED_RELU(x, bias),
    where=[last_axis_vector(bias, x)],
    fires_on=[
        "g (float[2,8] x) => (float[2,8] y) { r = Relu(x) y = Mul(r, r) }",
        "g (float[n,8] x) => (float[n,8] y) <float two = {2}, float zero = {0}> { r = Max(zero, x) y = Pow(r, two) }",
        "g (float[2,8] x) => (float[2,8] y) { r = Relu(x) y = Mul(x, r) }",
        """g (float[2,8] x) => (float[2,8] y) <float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}> {
            z = Add(b, x)  r = Relu(z)  y = Mul(r, r)
        }""",
    ],
    declines={
        "must be read by nobody else": "g (float[2,8] x) => (float[2,8] y, float[2,8] r) { r = Relu(x) y = Mul(r, r) }",
    },
)
