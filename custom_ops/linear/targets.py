"""Linear in other operators: FusedGemm of com.microsoft, and the standard Gemm where all that is added is one matrix."""

from __future__ import annotations

from collections.abc import Mapping

from onnxfuse.op import Attribute
from onnxfuse.pattern import Call
from onnxfuse.rule import Decline, Operand
from onnxfuse.target import Forms, Use

FUSED_GEMM = {"relu": "Relu", "leaky_relu": "LeakyRelu", "sigmoid": "Sigmoid", "tanh": "Tanh", "hard_sigmoid": "HardSigmoid"}
NUMBERS = {"leaky_relu": ("activation_alpha",), "hard_sigmoid": ("activation_alpha", "activation_beta")}


def _contrib(use: Use) -> Call:
    activation = str(use.attribute("activation"))
    if activation not in FUSED_GEMM:
        raise Decline(f"the activation of FusedGemm must be one of {', '.join(FUSED_GEMM)}; it is {activation}")
    numbers = {name: use.number(name) for name in NUMBERS.get(activation, ())}
    name = FUSED_GEMM[activation]
    return use.contrib("FusedGemm", _matrix(use), use.operand("weight"), _added(use), activation=name, **_product(use), **numbers)


def _standard(use: Use) -> Call:
    if use.attribute("activation") != "none":
        raise Decline("Gemm must have no activation; it stays an operator of its own")
    return use.standard("Gemm", _matrix(use), use.operand("weight"), _added(use), **_product(use))


def _product(use: Use) -> Mapping[str, Attribute]:
    return {"alpha": use.number("alpha"), "transB": int(use.number("trans_weight"))}


def _matrix(use: Use) -> Operand:
    x = use.operand("x")
    if len(use.shape("x")) != 2:
        raise Decline(f"x must have two axes for a Gemm; '{x.name}' has {len(use.shape('x'))}")
    return x


def _added(use: Use) -> Operand:
    """What is added to the product: a bias or a residual."""
    bias, residual = use.get("bias"), use.get("residual")
    if bias is not None and residual is not None:
        raise Decline("a Gemm must have a bias or a residual, not both")
    if residual is not None and use.attribute("residual_last") and use.attribute("activation") != "none":
        raise Decline("the residual of a Gemm must be added before the activation")
    return residual if bias is None else bias


FORMS = Forms(contrib=_contrib, standard=_standard)
