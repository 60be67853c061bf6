"""RMSNorm(x + skip [+ x_bias]) -> SkipRMSNorm: the sum is made once and kept for the next residual."""

from onnxfuse.custom_ops.skip_rms_norm.op import SKIP_RMS_NORM
from onnxfuse.pattern import Call, Scalar, Var, op, optional
from onnxfuse.rule import Match, Rule, affine, last_axis_vector, same_shape

x, skip, x_bias = Var("x"), Var("skip"), Var("x_bias", constant=True)
scale, axes, epsilon = Var("scale"), Scalar("axes"), Scalar("epsilon")


def build(match: Match) -> Call:
    data, weight, _, _ = affine(match, x, scale, None, match.scalar(axes), last_only=True)
    extra = match.value(x_bias) if match.has(x_bias) else None
    return SKIP_RMS_NORM(data, match.value(skip), weight, extra, epsilon=match.scalar(epsilon))


RULE = Rule(
    before=op.RMSNormalization((x + skip + optional(x_bias)).named("sum"), axes=axes, epsilon=epsilon) * optional(scale),
    after=build,
    where=[same_shape(x, skip), last_axis_vector(x_bias, x)],
    outputs=["sum"],
)
