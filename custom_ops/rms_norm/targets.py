"""RMSNorm in other operators: the standard RMSNormalization, and before opset 23 the runtime's SimplifiedLayerNormalization.

The latter is a contrib operator that ONNX Runtime keeps in the standard domain, where other tools do not know it.
"""

from __future__ import annotations

from onnxfuse.glue import norm_scale
from onnxfuse.kernels import SINCE
from onnxfuse.op import Attribute
from onnxfuse.pattern import Call
from onnxfuse.rule import Decline, Operand
from onnxfuse.target import Forms, Use


def _contrib(use: Use) -> Call:
    if use.opset >= SINCE["RMSNormalization"]:
        raise Decline("a model that can have RMSNormalization must not have SimplifiedLayerNormalization")
    operands, attributes = _parts(use)
    return use.contrib("SimplifiedLayerNormalization", *operands, **attributes)


def _standard(use: Use) -> Call:
    operands, attributes = _parts(use)
    return use.standard("RMSNormalization", *operands, **attributes)


def _parts(use: Use) -> tuple[tuple[Operand, Operand], dict[str, Attribute]]:
    axis = int(use.attribute("axis"))
    scale = norm_scale(use.operand("x"), use.get("scale"), axis)
    return (use.operand("x"), scale), {"axis": axis, "epsilon": use.number("epsilon")}


FORMS = Forms(contrib=_contrib, standard=_standard)
