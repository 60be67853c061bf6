"""x sigmoid(gate) or x hard_sigmoid(gate), one gate for each row or channel of x -> ChannelGate(x, gate): the gates are made in passing."""

from onnxfuse.custom_ops.channel_gate.op import CHANNEL_GATE
from onnxfuse.pattern import Call, Scalar, Var, either, op
from onnxfuse.rule import Decline, Match, Rule

x, gate, alpha, beta = Var("x"), Var("gate"), Scalar("alpha"), Scalar("beta")


def build(match: Match) -> Call:
    data, factor = match.value(x), match.value(gate)
    if not match.has(alpha):
        if data.shape == factor.shape:
            raise Decline("the gate must be smaller than x; a gate for each element is for the rule glu")
        return CHANNEL_GATE(data, factor)
    return CHANNEL_GATE(data, factor, activation="hard_sigmoid", alpha=match.scalar(alpha), beta=match.scalar(beta))


RULE = Rule(
    before=either(op.Sigmoid(gate), op.HardSigmoid(gate, alpha=alpha, beta=beta)) * x,
    after=build,
    fires_on=[
        "g (float[n,3,h,w] x, float[n,3,1,1] s) => (float[n,3,h,w] y) { g = Sigmoid(s) y = Mul(x, g) }",
        """g (float[n,3,4,5] x, float[n,3,1,1] s) => (float[n,3,4,5] y) {
            g = HardSigmoid<alpha = 0.16666667, beta = 0.5>(s)  y = Mul(g, x)
        }""",
        "g (float[2,3,4] x, float[2,3,1] s) => (float[2,3,4] y) { g = Sigmoid(s) y = Mul(g, x) }",
    ],
    declines={
        "gate must have the leading axes of x": """g (float[2,3,4] x, float[2,1,4] s) => (float[2,3,4] y) {
            g = Sigmoid(s)  y = Mul(g, x)
        }""",
        "must be read by nobody else": """g (float[2,3,4] x, float[2,3,1] s) => (float[2,3,4] y, float[2,3,1] g) {
            g = Sigmoid(s)  y = Mul(g, x)
        }""",
        "a gate for each element is for the rule glu": """g (float[2,3] x, float[2,3] s) => (float[2,3] y) {
            g = Sigmoid(s)  y = Mul(g, x)
        }""",
    },
)
