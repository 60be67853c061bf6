"""Whole models for a target: what they become, what they keep, and why something is left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxfuse import api
from onnxfuse.decision import Verdict
from onnxfuse.errors import UsageError
from onnxfuse.op import DOMAIN
from onnxfuse.ruletest import parse
from onnxfuse.verify import verify_rewrite
from tests.engine.harness import feed, run
from tests.targets import texts
from tests.targets.harness import fused, operators, reasons
from tests.targets.texts import LOWEST, attention, chosen, masked, of_half_type, rotary

MHA, TO_ROWS, FROM_ROWS = "com.microsoft.MultiHeadAttention", ["Transpose", "Reshape"], ["Reshape", "Transpose"]
REPEATED = ["Unsqueeze", "Expand", "Reshape"]

CONTRIB = [
    ("gelu", texts.GELU, 17, ["Sin", "com.microsoft.Gelu"]),
    ("tanh gelu", texts.TANH_GELU, 17, ["com.microsoft.FastGelu"]),
    ("gelu with bias", texts.BIAS_GELU, 17, ["com.microsoft.BiasGelu"]),
    ("silu", texts.SILU, 17, ["com.microsoft.QuickGelu"]),
    ("gated silu", texts.SWIGLU, 17, ["com.microsoft.QuickGelu", "Mul"]),
    ("RMS norm", texts.RMS, 18, ["SimplifiedLayerNormalization"]),
    ("RMS norm where it is standard", texts.RMS, 23, ["RMSNormalization"]),
    ("RMS norm without scale", texts.BARE_RMS, 18, ["SimplifiedLayerNormalization"]),
    ("norm of a sum that is read again", texts.SKIP_NORM, 17, ["com.microsoft.SkipLayerNormalization"]),
    ("attention", texts.ATTENTION, 17, [*TO_ROWS, MHA, *FROM_ROWS]),
    ("attention into rows", texts.ROWS, 17, [*TO_ROWS, MHA]),
    ("mask of keys", masked("b,1,1,m"), 17, [*TO_ROWS, "Shape", "Slice", "Concat", "Expand", MHA, *FROM_ROWS]),
    ("mask as it is wanted", masked("1,1,n,m"), 17, [*TO_ROWS, MHA, *FROM_ROWS]),
    ("mask of two axes", masked("n,m"), 17, [*TO_ROWS, "Unsqueeze", MHA, *FROM_ROWS]),
    ("choice of the lowest number", chosen(LOWEST), 17, [*TO_ROWS, "Where", MHA, *FROM_ROWS]),
    ("rows that are cleared", texts.CLEARED, 17, [*TO_ROWS, "Pad", "Pad", "Equal", "Max", "Where", "Pad", MHA, *FROM_ROWS]),
    ("a past", texts.PAST_AND_PRESENT, 17, [*TO_ROWS, *TO_ROWS, *TO_ROWS, MHA, *FROM_ROWS]),
    ("a past that nobody needs to be joined", texts.PAST, 17, ["Concat", "Concat", *TO_ROWS, MHA, *FROM_ROWS]),
    ("shared heads", texts.GROUPED, 17, [*TO_ROWS, *REPEATED, *REPEATED, MHA, *FROM_ROWS]),
    ("shared heads where the standard operator has them", texts.GROUPED, 23, ["Attention"]),
]
STANDARD = [
    ("gelu", texts.GELU, 20, ["Sin", "Gelu"]),
    ("tanh gelu", texts.TANH_GELU, 20, ["Gelu"]),
    ("gelu after a bias", texts.BIAS_GELU, 20, ["Add", "Gelu"]),
    ("silu", texts.SILU, 24, ["Swish"]),
    ("RMS norm", texts.RMS, 23, ["RMSNormalization"]),
    ("attention", texts.ATTENTION, 23, ["Attention"]),
    ("attention into rows", texts.ROWS, 23, ["Attention", "Transpose", "Reshape"]),
    ("choice of the lowest number", chosen(LOWEST), 23, ["Where", "Attention"]),
    ("rows that are cleared", texts.CLEARED, 23, ["Equal", "Max", "Where", "Attention"]),
    ("a past", texts.PAST_AND_PRESENT, 23, ["Attention"]),
    ("a past that nobody needs to be joined", texts.PAST, 23, ["Concat", "Concat", "Attention"]),
    ("softcap", texts.CAPPED, 23, ["Attention"]),
    ("shared heads", texts.GROUPED, 23, ["Attention"]),
]
LEFT = [
    ("gelu", "standard", texts.GELU, 17, "must import opset 20 or later for Gelu; it imports 17"),
    ("silu", "standard", texts.SILU, 18, "must import opset 24 or later for Swish; it imports 18"),
    ("gated silu", "standard", texts.SWIGLU, 18, "standard ONNX must have an operator that does what SwiGLU does"),
    ("softcap", "contrib", texts.CAPPED, 18, "MultiHeadAttention must have no softcap; it is 2"),
    ("softcap and mask", "standard", texts.CAPPED_MASK, 23, "beside a softcap there must be no mask"),
    ("choice of a number that counts", "contrib", chosen(-1e4), 18, "masked scores must be -inf or the lowest number"),
    ("choice of a number that counts", "standard", chosen(-1e4), 23, "masked scores must be -inf or the lowest number"),
    ("a mask that may hide a row", "standard", masked("1,1,n,m"), 23, "an added mask must be a constant that masks no row throughout"),
    ("halves that may differ", "contrib", rotary("float[b,n,8] ff", ""), 18, "both elements of a pair must turn by the same angle"),
]


def check(to: str, text: str, opset: int, want: Sequence[str]) -> api.Result:
    """The model has these operators and the numbers it had, imports what it imported, and needs no library."""
    model = parse(text, opset)
    result = fused(model, to)
    assert operators(result.model) == list(want), reasons(result)
    assert not result.model.functions and DOMAIN not in {o.domain for o in result.model.opset_import}
    assert [o.version for o in result.model.opset_import if o.domain == ""] == [opset]
    for seed in (1, 2):
        values = feed(model, seed)
        for one, other in zip(run(result.model, values, register=False), run(model, values), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    return result


@pytest.mark.parametrize(("text", "opset", "want"), [c[1:] for c in CONTRIB], ids=[c[0] for c in CONTRIB])
def test_becomes_contrib_operators(text: str, opset: int, want: Sequence[str]) -> None:
    check("contrib", text, opset, want)


@pytest.mark.parametrize(("text", "opset", "want"), [c[1:] for c in STANDARD], ids=[c[0] for c in STANDARD])
def test_becomes_standard_operators(text: str, opset: int, want: Sequence[str]) -> None:
    onnx.checker.check_model(check("standard", text, opset, want).model, full_check=True)


@pytest.mark.parametrize(("to", "text", "opset", "why"), [c[1:] for c in LEFT], ids=[f"{c[0]}, {c[1]}" for c in LEFT])
def test_is_left_with_the_reason(to: str, text: str, opset: int, why: str) -> None:
    result = fused(parse(text, opset), to)
    assert why in reasons(result)
    assert not [d for d in result.report.decisions if d.verdict is Verdict.ROLLED_BACK]
    told = "\n".join(d.reason for d in api.explain(parse(text, opset), target=to, level="all").decisions)
    assert why in told


@pytest.mark.parametrize("angles", ["float[b,n,4] f", "float[1,n,4] f"], ids=["of each batch", "of all batches"])
@pytest.mark.parametrize(("to", "opset", "name"), [("contrib", 18, "com.microsoft.RotaryEmbedding"), ("standard", 23, "RotaryEmbedding")])
def test_rotary_tables_that_hold_a_half_twice_are_cut(angles: str, to: str, opset: int, name: str) -> None:
    result = fused(parse(rotary(angles), opset), to)
    assert name in operators(result.model), reasons(result)
    assert not {"Mul", "Neg", "Add"} & set(operators(result.model))


def test_a_type_without_a_kernel_is_left() -> None:
    result = fused(parse(of_half_type(texts.SILU), 17), "contrib")
    assert "must have a kernel of com.microsoft.QuickGelu for float16 on cpu; it has one for float" in reasons(result)


def test_another_device_has_other_kernels() -> None:
    report = api.explain(parse(of_half_type(texts.SILU), 17), target="contrib", level="all", device="a100")
    assert [d.target for d in report.fused] == ["com.microsoft.QuickGelu"]


def test_glue_that_is_equal_is_made_once() -> None:
    result = fused(parse(texts.TWICE_CHOSEN, 17), "contrib")
    assert operators(result.model).count(MHA) == 2
    assert operators(result.model).count("Where") == 1
    onnx.checker.check_model(result.model)


def test_glue_is_priced() -> None:
    (only,) = fused(parse(attention(), 17), "contrib", shapes={"b": 2, "n": 16, "m": 16}).report.fused
    unfused, made = 3, 3  # a product with its transpose and scale, a softmax, a product; two transposes and the operator
    assert only.price is not None
    assert only.price.saved_launches == unfused - made


def test_a_rule_that_writes_operators_of_others_is_held_to_the_target(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from onnxfuse.pattern import Var, op, target\nfrom onnxfuse.rule import Rule\n"
        "x = Var('x')\nRULE = Rule(before=op.Sin(op.Cos(x)), after=target('com.microsoft').Gelu(x))\n"
    )
    model = parse("g (float[n,8] x) => (float[n,8] y) { c = Cos(x) y = Sin(c) }", 18)
    told = {to: api.explain(model, target=to, level="all", rules=[file], only=["mine"]) for to in ("contrib", "standard")}
    assert [d.target for d in told["contrib"].fused] == ["com.microsoft.Gelu"]
    (declined,) = told["standard"].decisions
    assert declined.reason == "with --target standard the result must be of standard ONNX; the rule writes com.microsoft.Gelu"


def test_the_report_says_the_target() -> None:
    result = fused(parse(texts.GELU, 17), "contrib")
    assert result.report.target == "contrib"
    assert [d.target for d in result.report.fused] == ["com.microsoft.Gelu"]


def test_an_unknown_target_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="target 'trt' is unknown. Use one of onnxfuse, contrib, standard"):
        fused(parse(texts.GELU, 17), "trt")


def test_what_only_another_device_has_a_kernel_for_is_compared_in_float32() -> None:
    before = parse(of_half_type(texts.SILU), 17)
    for alpha, right in (("1.0", True), ("1.1", False)):
        imports = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
        after = parse(f"{imports} g (float16[n,8] x) => (float16[n,8] y) {{ y = com.microsoft.QuickGelu<alpha = {alpha}>(x) }}")
        assert (verify_rewrite(before, after, seed=0) is None) == right
