"""LayerNorm in other operators: the standard LayerNormalization, which ONNX Runtime has the kernel of, and which needs a scale."""

from __future__ import annotations

from onnxfuse.glue import norm_scale
from onnxfuse.pattern import Call
from onnxfuse.target import Forms, Use


def _standard(use: Use) -> Call:
    axis = int(use.attribute("axis"))
    scale = norm_scale(use.operand("x"), use.get("scale"), axis)
    return use.standard("LayerNormalization", use.operand("x"), scale, use.get("bias"), axis=axis, epsilon=use.number("epsilon"))


FORMS = Forms(standard=_standard)
