"""sigmoid(gate) up, or relu(gate) up -> GLU(gate, up), or GLU(x) where both are halves of x: the gate never travels to memory."""

from onnxfuse.custom_ops.glu.op import GLU
from onnxfuse.pattern import Call, Var, either, op
from onnxfuse.rotations import joined_halves
from onnxfuse.rule import Match, Rule, gated

gate, up = Var("gate"), Var("up")


def build(match: Match) -> Call:
    activation = "relu" if match.has("relu") else "sigmoid"
    for axis in range(-1, -(match.root.rank or 0) - 1, -1):
        for order, (first, second) in ((1, (gate, up)), (0, (up, gate))):
            whole = joined_halves(match.term(first), match.term(second), axis)
            if whole is not None and whole[1].is_identity:
                both = match.holder(whole[0], "gate", shape=whole[1].shape)
                return GLU(both, None, activation=activation, axis=axis, gate_first=order)
    one, other, _ = gated(match, gate, up)
    return GLU(one, other, activation=activation)


RULE = Rule(
    before=either(op.Sigmoid(gate), op.Relu(gate).named("relu")) * up,
    after=build,
    fires_on=[
        "g (float[2,8] a, float[2,8] b) => (float[2,8] y) { s = Sigmoid(b) y = Mul(s, a) }",
        "g (float[2,8] a, float[2,8] b) => (float[2,8] y) { r = Relu(b) y = Mul(a, r) }",
        "g (float[n,8] x) => (float[n,4] y) { a, b = Split<axis = -1>(x) s = Sigmoid(b) y = Mul(a, s) }",
        "g (float[n,8] x) => (float[n,4] y) { a, b = Split<axis = -1>(x) r = Relu(a) y = Mul(r, b) }",
        "g (float[2,6,t] x) => (float[2,3,t] y) { a, b = Split<axis = 1>(x) s = Sigmoid(b) y = Mul(a, s) }",
    ],
    declines={
        "gate and up must have the same shape": """g (float[2,8] a, float[8] b) => (float[2,8] y) {
            s = Sigmoid(b)  y = Mul(s, a)
        }""",
        "must be read by nobody else": """g (float[2,8] a, float[2,8] b) => (float[2,8] y, float[2,8] s) {
            s = Sigmoid(b)  y = Mul(s, a)
        }""",
    },
)
