"""x cos + rotate_half(x) sin -> RotaryEmbedding(x, cos, sin): six operators and their temporaries become one."""

from onnxfuse.custom_ops.rotary_embedding.op import ROTARY_EMBEDDING
from onnxfuse.pattern import Var, op
from onnxfuse.rule import Rule

x, cos, sin = Var("x"), Var("cos"), Var("sin")

RULE = Rule(before=x * cos + op.RotateHalf(x) * sin, after=ROTARY_EMBEDDING(x, cos, sin))
