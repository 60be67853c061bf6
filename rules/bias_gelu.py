"""Gelu(x + bias) -> Gelu(x, bias): the sum never travels to memory."""

from onnxfuse.custom_ops.gelu.op import GELU
from onnxfuse.pattern import Scalar, Var, op
from onnxfuse.rule import Rule, last_axis_vector

x, bias, approximate = Var("x"), Var("bias", constant=True), Scalar("approximate")

RULE = Rule(
    before=op.Gelu(x + bias, approximate=approximate),
    after=GELU(x, bias, approximate=approximate),
    where=[last_axis_vector(bias, x)],
)
