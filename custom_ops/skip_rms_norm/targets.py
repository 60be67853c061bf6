"""SkipRMSNorm in other operators: SkipSimplifiedLayerNormalization of com.microsoft, for inputs of two or three axes."""

from __future__ import annotations

from onnxfuse.glue import norm_scale, of_two_or_three_axes
from onnxfuse.pattern import Call
from onnxfuse.target import Forms, Use


def _contrib(use: Use) -> Call:
    x, skip = of_two_or_three_axes(use.operand("x")), use.operand("skip")
    scale = norm_scale(x, use.get("scale"), -1)
    call = use.contrib("SkipSimplifiedLayerNormalization", x, skip, scale, use.get("x_bias"), epsilon=use.number("epsilon"))
    return call.giving(None, None, use.output("sum"))


FORMS = Forms(contrib=_contrib)
