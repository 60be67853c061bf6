"""gelu(gate) * up -> GeGLU(gate, up), or GeGLU(x) where both are halves of x: the gate never travels to memory."""

from onnxfuse.custom_ops.geglu.op import GEGLU
from onnxfuse.pattern import Call, Scalar, Var, op
from onnxfuse.rule import Match, Rule, gated

gate, up, approximate = Var("gate"), Var("up"), Scalar("approximate")


def build(match: Match) -> Call:
    first, second, order = gated(match, gate, up)
    return GEGLU(first, second, approximate=match.scalar(approximate), gate_first=order)


RULE = Rule(
    before=op.Gelu(gate, approximate=approximate) * up,
    after=build,
    fires_on=[
        """<opset_import: ["" : 20]> g (float[2,8] gate, float[2,8] up) => (float[2,8] y) { a = Gelu(gate)  y = Mul(up, a) }""",
        """<opset_import: ["" : 20]> g (float[n,s,8] x) => (float[n,s,4] y) {
            gate, up = Split <axis = -1, num_outputs = 2> (x)  a = Gelu <approximate = "tanh"> (gate)  y = Mul(a, up)
        }""",
        """<opset_import: ["" : 20]> g (float[n,8] x) => (float[n,4] y)
        <int64[1] start = {0}, int64[1] middle = {4}, int64[1] end = {9223372036854775807}, int64[1] axis = {1}> {
            up = Slice(x, start, middle, axis)  gate = Slice(x, middle, end, axis)  a = Gelu(gate)  y = Mul(a, up)
        }""",
        """g (float16[2,6] gate, float16[2,6] up) => (float16[2,6] y)
        <float root_half = {0.70710678}, float one = {1.0}, float half = {0.5}> {
            w = Cast <to = 1> (gate)
            a = Mul(w, root_half)  e = Erf(a)  p = Add(e, one)  h = Mul(half, p)  m = Mul(w, h)
            n = Cast <to = 10> (m)  y = Mul(n, up)
        }""",
    ],
    declines={
        "gate and up must have the same shape; they are [2,8] and [2,1]": """<opset_import: ["" : 20]>
        g (float[2,8] gate, float[2,1] up) => (float[2,8] y) { a = Gelu(gate)  y = Mul(up, a) }""",
        "'a' (Gelu) must be read by nobody else; the graph's output reads it too": """<opset_import: ["" : 20]>
        g (float[2,8] gate, float[2,8] up) => (float[2,8] y, float[2,8] a) { a = Gelu(gate)  y = Mul(up, a) }""",
    },
)
