"""(x - mean(x)) / sqrt(var(x) + epsilon) * scale + bias -> LayerNorm(x, scale, bias): one read and one write of x."""

from onnxfuse.custom_ops.layer_norm.op import LAYER_NORM
from onnxfuse.pattern import Call, Scalar, Var, op, optional
from onnxfuse.rule import Match, Rule, affine

x, scale, bias, axes, epsilon = Var("x"), Var("scale"), Var("bias"), Scalar("axes"), Scalar("epsilon")


def build(match: Match) -> Call:
    data, weight, shift, axis = affine(match, x, scale, bias, match.scalar(axes))
    return LAYER_NORM(data, weight, shift, axis=axis, epsilon=match.scalar(epsilon))


RULE = Rule(
    before=op.LayerNormalization(x, axes=axes, epsilon=epsilon) * optional(scale) + optional(bias),
    after=build,
)
