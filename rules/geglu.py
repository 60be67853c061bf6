"""gelu(gate) * up -> GeGLU(gate, up), or GeGLU(x) where both are halves of x: the gate never travels to memory."""

from onnxfuse.custom_ops.geglu.op import GEGLU
from onnxfuse.pattern import Call, Scalar, Var, op
from onnxfuse.rule import Match, Rule, gated

gate, up, approximate = Var("gate"), Var("up"), Scalar("approximate")


def build(match: Match) -> Call:
    first, second, order = gated(match, gate, up)
    return GEGLU(first, second, approximate=match.scalar(approximate), gate_first=order)


RULE = Rule(before=op.Gelu(gate, approximate=approximate) * up, after=build)
