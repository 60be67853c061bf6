"""x / sqrt(mean(x^2) + epsilon) * scale -> RMSNorm(x, scale): one read and one write of x."""

from onnxfuse.custom_ops.rms_norm.op import RMS_NORM
from onnxfuse.pattern import Call, Scalar, Var, op, optional
from onnxfuse.rule import Match, Rule, affine

x, scale, axes, epsilon = Var("x"), Var("scale"), Scalar("axes"), Scalar("epsilon")


def build(match: Match) -> Call:
    data, weight, _, axis = affine(match, x, scale, None, match.scalar(axes))
    return RMS_NORM(data, weight, axis=axis, epsilon=match.scalar(epsilon))


RULE = Rule(
    before=op.RMSNormalization(x, axes=axes, epsilon=epsilon) * optional(scale),
    after=build,
)
