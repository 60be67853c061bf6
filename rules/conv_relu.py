"""relu(conv(x) + z) -> com.microsoft FusedConv(x, z): the convolution's result is not read and written once more.

For --target contrib alone: ONNX Runtime has the operator, we have none, and no other runtime knows it.
"""

from onnxfuse.pattern import Call, Scalar, Var, op, optional, target
from onnxfuse.rule import Match, Rule, same_result

x, w, b, z, settings = Var("x"), Var("w"), Var("b"), Var("z"), Scalar("settings")


def build(match: Match) -> Call:
    operands = [match.value(hole) if match.has(hole) else None for hole in (x, w, b, z)]
    attributes = {name: list(value) if isinstance(value, tuple) else value for name, value in match.scalar(settings)}
    fused: Call = target("com.microsoft").FusedConv(*operands, activation="Relu", **attributes)
    return fused


RULE = Rule(
    before=op.Relu(op.Conv(x, w, optional(b), settings=settings) + optional(z)),
    after=build,
    where=[same_result(z)],
    kind="matmul",
    targets=["contrib"],
    fires_on=[
        """g (float[n,2,5,5] x) => (float[n,1,h,w] y) <float[1,2,1,1] k = {1, -2}> {
            c = Conv <strides = [2, 2]> (x, k)  y = Relu(c)
        }""",
        """g (float[2,2,5,5] x, float[2,3,5,5] z) => (float[2,3,5,5] y)
        <float[3,2,1,1] k = {1, -2, 3, -4, 5, 6}, float[3] b = {1, 2, 3}> {
            c = Conv(x, k, b)  s = Add(z, c)  y = Relu(s)
        }""",
    ],
    declines={
        "z must have the shape of the result, [2,3,2,2]; it is [3,1,1]": """g (float[2,2,2,2] x, float[3,1,1] z) => (float[2,3,2,2] y)
        <float[3,2,1,1] k = {1, -2, 3, -4, 5, 6}> {
            c = Conv(x, k)  s = Add(z, c)  y = Relu(s)
        }""",
    },
)
