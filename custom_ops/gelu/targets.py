"""Gelu in other operators: Gelu, BiasGelu and FastGelu of com.microsoft, and the standard Gelu, which has no bias."""

from __future__ import annotations

from onnxfuse.pattern import Call
from onnxfuse.rule import Decline
from onnxfuse.target import Forms, Use


def _contrib(use: Use) -> Call:
    x, bias = use.operand("x"), use.get("bias")
    if use.attribute("approximate") == "tanh":
        return use.contrib("FastGelu", x, bias)
    return use.contrib("Gelu", x) if bias is None else use.contrib("BiasGelu", x, bias)


def _standard(use: Use) -> Call:
    if use.get("bias") is not None:
        raise Decline("the standard Gelu must have no bias; it stays an Add")
    return use.standard("Gelu", use.operand("x"), approximate=use.attribute("approximate"))


FORMS = Forms(contrib=_contrib, standard=_standard)
