"""silu(gate) * up -> SwiGLU(gate, up), or SwiGLU(x) where both are halves of x: the gate never travels to memory."""

from onnxfuse.custom_ops.swiglu.op import SWIGLU
from onnxfuse.pattern import Call, Scalar, Var, op
from onnxfuse.rule import Match, Rule, gated

gate, up, alpha = Var("gate"), Var("up"), Scalar("alpha")


def build(match: Match) -> Call:
    first, second, order = gated(match, gate, up)
    return SWIGLU(first, second, alpha=match.scalar(alpha), gate_first=order)


RULE = Rule(before=op.Swish(gate, alpha=alpha) * up, after=build)
