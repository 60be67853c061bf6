"""LayerNorm in other operators: the standard LayerNormalization, which needs a scale; before opset 17 it is a contrib operator.

ONNX Runtime keeps that one in the standard domain, at any opset, where other tools do not know it.
"""

from __future__ import annotations

from onnxfuse.glue import norm_scale
from onnxfuse.kernels import SINCE
from onnxfuse.op import Attribute
from onnxfuse.pattern import Call
from onnxfuse.rule import Decline, Operand
from onnxfuse.target import Forms, Use


def _contrib(use: Use) -> Call:
    if use.opset >= SINCE["LayerNormalization"]:
        raise Decline("a model that can have the standard LayerNormalization must not have the runtime's own")
    operands, attributes = _parts(use)
    return use.contrib("LayerNormalization", *operands, **attributes)


def _standard(use: Use) -> Call:
    operands, attributes = _parts(use)
    return use.standard("LayerNormalization", *operands, **attributes)


def _parts(use: Use) -> tuple[tuple[Operand, ...], dict[str, Attribute]]:
    axis = int(use.attribute("axis"))
    scale = norm_scale(use.operand("x"), use.get("scale"), axis)
    return (use.operand("x"), scale, use.get("bias")), {"axis": axis, "epsilon": use.number("epsilon")}


FORMS = Forms(contrib=_contrib, standard=_standard)
