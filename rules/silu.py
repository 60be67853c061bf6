"""x sigmoid(alpha x) -> Silu(x): SiLU with alpha 1, QuickGELU with 1.702; two passes over memory become one."""

from onnxfuse.custom_ops.silu.op import SILU
from onnxfuse.pattern import Scalar, Var, op
from onnxfuse.rule import Rule

x, alpha = Var("x"), Scalar("alpha")

RULE = Rule(before=op.Swish(x, alpha=alpha), after=SILU(x, alpha=alpha))
