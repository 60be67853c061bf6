"""alpha x w + bias -> Linear(x, w, bias), where that is faster than the runtime's product: on a processor with AMX, for many rows."""

from onnxfuse.custom_ops.linear.op import LINEAR
from onnxfuse.matmul import held_weights
from onnxfuse.pattern import Call, Scalar, Var, optional
from onnxfuse.rule import Match, Rule, weight

x, w, bias, alpha = Var("x"), Var("w", constant=True), Var("bias", constant=True), Scalar("alpha")


def build(match: Match) -> Call:
    weights, is_transposed = held_weights(match, w)
    columns = weights.shape[0 if is_transposed else 1] if weights.shape else 0
    shift = weight(match, bias, (columns,)) if match.has(bias) else None
    return LINEAR(match.value(x), weights, shift, trans_weight=int(is_transposed), alpha=match.scalar(alpha))


W = "float[3,4] w = {1, -2, 3, -4, 5, -6, 7, -8, 9, 0.5, 0.25, 0}"
B = "float[4] b = {1, 2, 3, 4}"
RULE = Rule(
    before=alpha * (x @ w) + optional(bias),
    after=build,
    kind="matmul",
    targets=("onnxfuse",),
    levels=("cost",),
    retargets=True,
    fires_on=[
        f"g (float[n,s,3] x) => (float[n,s,4] y) <{W}, {B}> {{ m = MatMul(x, w)  y = Add(b, m) }}",
        f"g (float[n,3] x) => (float[n,4] y) <{W}, {B}> {{ y = Gemm <alpha = 0.5> (x, w, b) }}",
        f"g (float[n,s,3] x) => (float[n,s,4] y) <{W}> {{ y = MatMul(x, w) }}",
    ],
    declines={
        "w must have rank 2; 'w' is [1,3,2]": """
        g (float[1,5,3] x) => (float[1,5,2] y) <float[1,3,2] w = {1, 2, 3, 4, 5, 6}> { y = MatMul(x, w) }""",
    },
)
