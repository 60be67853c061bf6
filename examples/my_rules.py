"""act(x + bias) in one operator, where x is what a linear layer gives: the sum never travels to memory."""

from onnxfuse.custom_ops.silu.op import SILU
from onnxfuse.pattern import Scalar, Var, op, target
from onnxfuse.rule import Rule, last_axis_vector

x, bias, alpha = Var("x"), Var("bias", constant=True), Scalar("alpha")
fits = last_axis_vector(bias, x)  # a reader of the report is told when it does not

GELU = Rule(before=op.Gelu(x + bias, approximate="none"), after=target("com.microsoft").BiasGelu(x, bias), where=[fits])
SILU_OF_SUM = Rule(before=op.Swish(x + bias, alpha=alpha), after=SILU(x, bias, alpha=alpha), where=[fits])
