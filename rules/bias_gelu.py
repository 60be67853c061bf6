"""Gelu(x + bias) -> Gelu(x, bias): the sum never travels to memory."""

from onnxfuse.custom_ops.gelu.op import GELU
from onnxfuse.pattern import Scalar, Var, op
from onnxfuse.rule import Rule, last_axis_vector

x, bias, approximate = Var("x"), Var("bias", constant=True), Scalar("approximate")

RULE = Rule(
    before=op.Gelu(x + bias, approximate=approximate),
    after=GELU(x, bias, approximate=approximate),
    where=[last_axis_vector(bias, x)],
    fires_on=[
        """g (float[2,8] x) => (float[2,8] y)
        <float[8] b = {1, -1, 2, -2, 0.5, 0.25, 0, 3}, float root_half = {0.70710678}, float one = {1.0}, float half = {0.5}> {
            s = Add(b, x)  a = Mul(s, root_half)  e = Erf(a)  p = Add(e, one)  m = Mul(s, p)  y = Mul(m, half)
        }""",
        """<opset_import: ["" : 20]> g (float[n,s,4] x, float[4,4] w) => (float[n,s,4] y) {
            b = Constant <value = float[4] {1.0, -1.0, 2.0, -2.0}> ()
            m = MatMul(x, w)  s = Add(m, b)  y = Gelu <approximate = "tanh"> (s)
        }""",
        """<opset_import: ["" : 17, "com.microsoft" : 1]> g (float[n,4] x) => (float[n,4] y) <float[4] b = {1, -1, 2, -2}> {
            s = Sum(x, b)  y = com.microsoft.Gelu(s)
        }""",
    ],
    declines={
        "bias must be a vector as long as the last axis of x; they are [2,1] and [2,8]": """<opset_import: ["" : 20]>
        g (float[2,8] x) => (float[2,8] y) <float[2,1] b = {1, 2}> { s = Add(x, b)  y = Gelu(s) }""",
        "'s' (Add) must be read by nobody else; Neg 'z' reads it too": """<opset_import: ["" : 20]>
        g (float[2,4] x) => (float[2,4] y, float[2,4] z) <float[4] b = {1, -1, 2, -2}> { s = Add(x, b)  y = Gelu(s)  z = Neg(s) }""",
    },
)
