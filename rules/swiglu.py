"""silu(gate) * up -> SwiGLU(gate, up), or SwiGLU(x) where both are halves of x: the gate never travels to memory."""

from onnxfuse.custom_ops.swiglu.op import SWIGLU
from onnxfuse.pattern import Call, Scalar, Var, op
from onnxfuse.rule import Match, Rule, gated

gate, up, alpha = Var("gate"), Var("up"), Scalar("alpha")


def build(match: Match) -> Call:
    first, second, order = gated(match, gate, up)
    return SWIGLU(first, second, alpha=match.scalar(alpha), gate_first=order)


RULE = Rule(
    before=op.Swish(gate, alpha=alpha) * up,
    after=build,
    fires_on=[
        """g (float[2,8] gate, float[2,8] up) => (float[2,8] y) { s = Sigmoid(gate)  a = Mul(gate, s)  y = Mul(a, up) }""",
        """g (float[n,s,8] x) => (float[n,s,4] y) {
            gate, up = Split <axis = 2> (x)  s = Sigmoid(gate)  m = Mul(s, up)  y = Mul(m, gate)
        }""",
        """g (float[n,8] x) => (float[n,4] y) <float alpha = {1.702}> {
            up, gate = Split <axis = -1> (x)  c = Mul(gate, alpha)  s = Sigmoid(c)  a = Mul(s, gate)  y = Mul(a, up)
        }""",
        """g (float[2,5,4] x, float[4,6] w, float[4,6] v) => (float[2,5,6] y) <float one = {1.0}> {
            gate = MatMul(x, w)  up = MatMul(x, v)
            n = Neg(gate)  e = Exp(n)  p = Add(e, one)  a = Div(gate, p)  y = Mul(up, a)
        }""",
        """g (float16[2,6] gate, float16[2,6] up) => (float16[2,6] y) { s = Sigmoid(gate)  a = Mul(gate, s)  y = Mul(a, up) }""",
    ],
    declines={
        "gate and up must have the same shape; they are [2,8] and [8]": """g (float[2,8] gate, float[8] up) => (float[2,8] y) {
            s = Sigmoid(gate)  a = Mul(gate, s)  y = Mul(a, up)
        }""",
        "gate and up must have the same shape; they are [2,a] and [2,b]": """g (float[2,a] gate, float[2,b] up) => (float[2,c] y) {
            s = Sigmoid(gate)  t = Mul(gate, s)  y = Mul(t, up)
        }""",
        "'s' (Sigmoid) must be read by nobody else; the graph's output reads it too": """
        g (float[2,8] gate, float[2,8] up) => (float[2,8] y, float[2,8] s) { s = Sigmoid(gate)  a = Mul(gate, s)  y = Mul(a, up) }""",
    },
)
