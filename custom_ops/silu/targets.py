"""Silu in other operators: QuickGelu of com.microsoft, and the standard Swish; neither has a bias."""

from __future__ import annotations

from onnxfuse.pattern import Call
from onnxfuse.rule import Decline
from onnxfuse.target import Forms, GivenOperand, Use


def _contrib(use: Use) -> Call:
    return use.contrib("QuickGelu", _without_bias(use), alpha=use.number("alpha"))


def _standard(use: Use) -> Call:
    return use.standard("Swish", _without_bias(use), alpha=use.number("alpha"))


def _without_bias(use: Use) -> GivenOperand:
    if use.get("bias") is not None:
        raise Decline("Silu must have no bias in operators of others; it stays an Add")
    return use.operand("x")


FORMS = Forms(contrib=_contrib, standard=_standard)
