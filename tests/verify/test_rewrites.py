"""Planted wrong rewrites are caught, and right ones pass, whatever the type."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from onnxfuse.errors import RuntimeMissingError, VerificationError
from onnxfuse.op import DOMAIN
from onnxfuse.verify import Difference, verify_rewrite

FLOATS = ["float", "float16", "bfloat16"]
HEAD = '<ir_version: 10, opset_import: ["": 20, "ai.onnxfuse": 1, "test.local": 1]>'

LAYER_NORM = """g (T[b,s,8] x, T[8] scale, T[8] bias) => (T[b,s,8] y) {
    two = Constant <value = float {2.0}> ()  two_ = CastLike(two, x)  eps = Constant <value = float {EPS}> ()  eps_ = CastLike(eps, x)
    axis = Constant <value = int64[1] {-1}> ()
    mean = ReduceMean(x, axis)  d = Sub(x, mean)  square = Pow(d, two_)  var = ReduceMean(square, axis)
    sum = Add(var, eps_)  root = Sqrt(sum)  n = Div(d, root)  scaled = Mul(n, scale)  y = Add(scaled, bias)
}"""
LAYER_NORM_OP = (
    "g (T[b,s,8] x, T[8] scale, T[8] bias) => (T[b,s,8] y) { y = LayerNormalization <axis = -1, epsilon = EPS> (x, scale, bias) }"
)
ATTENTION = """g (T[b,4,s,8] q, T[b,4,t,8] k, T[b,4,t,8] v, T[b,1,s,t] mask) => (T[b,4,s,8] y) {
    kt = Transpose <perm = [0,1,3,2]> (k)  dots = MatMul(q, kt)
    c = Constant <value = float {0.35355338}> ()  scale = CastLike(c, q)  scores = Mul(dots, scale)
    masked = Add(scores, mask)  p = Softmax <axis = -1> (masked)
    TAIL
}"""
KEPT, ZEROED = (
    "y = MatMul(p, v)",
    "n = IsNaN(p)  o = Constant <value = float {0.0}> ()  z = CastLike(o, q)  w = Where(n, z, p)  y = MatMul(w, v)",
)


def model(text: str, kind: str = "float", **parts: str) -> onnx.ModelProto:
    for name, part in parts.items():
        text = text.replace(name, part)
    return onnx.parser.parse_model(f"{HEAD}\n{text.replace('T[', f'{kind}[')}")


def check(before: onnx.ModelProto, after: onnx.ModelProto, **options: Any) -> Difference | None:
    return verify_rewrite(before, after, seed=1, **options)


@pytest.mark.parametrize("kind", FLOATS)
def test_a_rewrite_to_the_same_formula_passes(kind: str) -> None:
    before = model(LAYER_NORM, kind, EPS="0.00001")
    assert check(before, model(LAYER_NORM_OP, kind, EPS="0.00001")) is None
    assert check(model(ATTENTION, kind, TAIL=KEPT), model(ATTENTION, kind, TAIL=KEPT)) is None


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize(("eps", "changed"), [("0.00001", "0.000001"), ("0.00001", "0.00002"), ("0.001", "0.0"), ("0.00001", "0.0001")])
def test_a_changed_epsilon_is_caught(kind: str, eps: str, changed: str) -> None:
    assert check(model(LAYER_NORM, kind, EPS=eps), model(LAYER_NORM_OP, kind, EPS=changed)) is not None


@pytest.mark.parametrize("kind", FLOATS)
def test_a_lost_bias_is_caught(kind: str) -> None:
    lost = LAYER_NORM_OP.replace("(x, scale, bias) }", "(x, scale) }")
    assert check(model(LAYER_NORM, kind, EPS="0.00001"), model(lost, kind, EPS="0.00001")) is not None


@pytest.mark.parametrize("kind", FLOATS)
def test_an_ignored_mask_is_caught(kind: str) -> None:
    ignored = ATTENTION.replace("Add(scores, mask)", "Identity(scores)")
    found = check(model(ATTENTION, kind, TAIL=KEPT), model(ignored, kind, TAIL=KEPT))
    assert found is not None


@pytest.mark.parametrize("kind", FLOATS)
def test_a_masked_row_that_becomes_zero_instead_of_nan_is_caught(kind: str) -> None:
    found = check(model(ATTENTION, kind, TAIL=KEPT), model(ATTENTION, kind, TAIL=ZEROED))
    assert found is not None
    assert "NaN in other places" in str(found)
    assert "whole rows masked" in found.feed


def test_a_masked_row_of_a_boolean_mask_that_becomes_zero_is_caught() -> None:
    text = """g (float[b,s,t] x, bool[b,1,t] keep) => (float[b,s,t] y) {
        low = Constant <value = float {LOW}> ()  m = Where(keep, x, low)  p = Softmax <axis = -1> (m)  TAIL }"""
    kept, zeroed = "y = Identity(p)", "n = IsNaN(p)  z = Constant <value = float {0.0}> ()  y = Where(n, z, p)"
    before = model(text, LOW="-inf", TAIL=kept)
    assert check(before, before) is None
    assert check(before, model(text, LOW="-inf", TAIL=zeroed)) is not None
    assert check(model(text, LOW="-1000000000.0", TAIL=kept), before) is not None


@pytest.mark.parametrize("kind", FLOATS)
def test_tanh_in_place_of_erf_is_caught(kind: str) -> None:
    text = 'g (T[n,8] x) => (T[n,8] y) { y = Gelu <approximate = "FORM"> (x) }'
    exact = model(text, kind, FORM="none")
    assert check(exact, exact) is None
    found = check(exact, model(text, kind, FORM="tanh"))
    assert found is not None
    assert ("computed in float32" in found.reason) == (kind != "float")


def test_tanh_in_place_of_erf_is_caught_between_casts() -> None:
    text = 'g (float16[n,8] x) => (float16[n,8] y) { w = Cast <to = 1> (x)  g = Gelu <approximate = "FORM"> (w)  y = Cast <to = 10> (g) }'
    found = check(model(text, FORM="none"), model(text, FORM="tanh"))
    assert found is not None
    assert found.reason.startswith("computed in float32")


ERF_SPELLED = """g (T[n,8] x) => (T[n,8] y) {
    r = Constant <value = float {1.4142135}> ()  root = CastLike(r, x)  one = Constant <value = float {1.0}> ()  one_ = CastLike(one, x)
    h = Constant <value = float {0.5}> ()  half = CastLike(h, x)
    d = Div(x, root)  e = Erf(d)  s = Add(e, one_)  p = Mul(x, s)  y = Mul(p, half) }"""


def stored_in_half(made: onnx.ModelProto) -> onnx.ModelProto:
    """The same with the root of 2 as an initializer of the half type, as exporters write it."""
    value = numpy_helper.from_array(np.array(np.sqrt(2), np.float16), "root")
    made.graph.initializer.append(value)
    kept = [n for n in made.graph.node if n.output[0] not in ("r", "root")]
    del made.graph.node[:]
    made.graph.node.extend(kept)
    return made


@pytest.mark.parametrize("store", [stored_in_half, lambda made: made], ids=["stored", "cast"])
def test_a_constant_may_count_as_it_was_before_it_was_rounded_to_half(store: Any) -> None:
    before = store(model(ERF_SPELLED, "float16"))
    gelu = 'g (T[n,8] x) => (T[n,8] y) { y = Gelu <approximate = "FORM"> (x) }'
    assert check(before, model(gelu, "float16", FORM="none")) is None
    assert check(before, model(gelu, "float16", FORM="tanh")) is not None
    other = ERF_SPELLED.replace("1.4142135", "1.4175")
    assert check(before, model(other, "float16")) is not None


def test_masks_that_are_added_in_another_order_pass() -> None:
    text = """g (float[b,4,s,t] x, float[b,1,s,t] m, float[1,4,s,t] n) => (float[b,4,s,t] y) { ORDER  y = Softmax(q) }"""
    before = model(text, ORDER="p = Add(x, m)  q = Add(p, n)")
    assert check(before, model(text, ORDER="p = Add(m, n)  q = Add(x, p)")) is None
    assert check(before, model(text, ORDER="p = Add(m, m)  q = Add(x, p)")) is not None


@pytest.mark.parametrize("eps", ["0.00001", "0.0000100135803"])
def test_an_epsilon_counts_as_written_or_as_rounded_to_half(eps: str) -> None:
    assert check(model(LAYER_NORM, "float16", EPS="0.00001"), model(LAYER_NORM_OP, "float16", EPS=eps)) is None
    assert check(model(LAYER_NORM, "float16", EPS="0.00001"), model(LAYER_NORM_OP, "float16", EPS="0.0000103")) is not None


def test_a_subgraph_of_positive_numbers_is_given_such() -> None:
    text = "g (float[n,8] x) => (float[n,1] y) { l = Log(x)  a = Constant <value = int64[1] {-1}> ()  s = ReduceSum(l, a)  y = OP(s) }"
    assert check(model(text, OP="Identity"), model(text, OP="Identity")) is None
    assert check(model(text, OP="Identity"), model(text, OP="Sin")) is not None


def test_a_dropped_rounding_to_half_is_caught() -> None:
    before = model("g (float[n] x) => (float[n] y) { h = Cast <to = 10> (x)  y = Cast <to = 1> (h) }")
    assert check(before, model("g (float[n] x) => (float[n] y) { y = Identity(x) }")) is not None


def test_a_dropped_truncation_is_caught() -> None:
    before = model("g (float[n] x) => (float[n] y) { h = Cast <to = 6> (x)  y = Cast <to = 1> (h) }")
    assert check(before, model("g (float[n] x) => (float[n] y) { y = Identity(x) }")) is not None


def test_a_transposed_result_is_caught_where_the_sizes_agree() -> None:
    before = model("g (float[8,8] x) => (float[8,8] y) { y = Identity(x) }")
    found = check(before, model("g (float[8,8] x) => (float[8,8] y) { y = Transpose(x) }"))
    assert found is not None
    assert found.index is not None


def test_what_is_right_only_where_two_sizes_agree_is_caught() -> None:
    before = model("g (float[s,8] x) => (float[n,m] y) { t = Transpose(x)  y = MatMul(x, t) }")
    after = model("g (float[s,8] x) => (float[n,m] y) { t = Transpose(x)  y = MatMul(t, x) }")
    found = check(before, after)
    assert found is not None
    assert "shape" in found.reason


def test_an_output_that_takes_its_shape_from_one_operand_is_caught() -> None:
    before = model("g (float[p,8] x, float[n,8] z) => (float[m,8] y) { y = Add(x, z) }")
    after = model(
        """g (float[p,8] x, float[n,8] z) => (float[m,8] y) {
        s = Shape(x)  a = Add(x, z)  zero = Constant <value = int64[1] {0}> ()
        rows = Slice(s, zero, one)  one = Constant <value = int64[1] {1}> ()  y = Slice(a, zero, rows) }""".replace(
            "rows = Slice(s, zero, one)  one = Constant <value = int64[1] {1}> ()",
            "one = Constant <value = int64[1] {1}> ()  rows = Slice(s, zero, one)",
        )
    )
    assert check(before, before) is None
    found = check(before, after)
    assert found is not None
    assert "shape" in found.reason


def test_a_swapped_gate_is_caught() -> None:
    text = "g (float[n,5] a, float[n,5] b) => (float[n,5] y) { s = Sigmoid(a)  g = Mul(a, s)  y = Mul(g, b) }"
    swapped = text.replace("Sigmoid(a)", "Sigmoid(b)").replace("Mul(a, s)", "Mul(b, s)").replace("Mul(g, b)", "Mul(g, a)")
    assert check(model(text), model(swapped)) is not None


def test_a_wrong_result_for_an_empty_axis_is_caught() -> None:
    before = model("g (float[3,k] x, float[k,4] w) => (float[3,4] y) { y = MatMul(x, w) }")
    after = model(
        """g (float[3,k] x, float[k,4] w) => (float[3,4] y) {
        axis = Constant <value = int64[1] {0}> ()  e = Constant <value = float {-3.4e38}> ()  least = ReduceMax <keepdims = 1> (w, axis)
        big = Less(least, e)  a = MatMul(x, w)  one = Constant <value = float {1.0}> ()  y = Where(big, one, a) }"""
    )
    found = check(before, after)
    assert found is not None
    assert "an empty axis" in found.feed


def test_a_sum_of_thousands_in_another_order_passes() -> None:
    before = model("g (float[n,4096] x) => (float[n,1] y) { a = Constant <value = int64[1] {-1}> ()  y = ReduceSum(x, a) }")
    after = model(
        """g (float[n,4096] x) => (float[n,1] y) {
        s = Constant <value = int64[3] {-1, 64, 64}> ()  r = Reshape(x, s)  a = Constant <value = int64[1] {1}> ()
        part = ReduceSum <keepdims = 0> (r, a)  b = Constant <value = int64[1] {-1}> ()  y = ReduceSum(part, b) }"""
    )
    assert check(before, after) is None


def test_attention_with_the_scale_on_both_sides_passes_for_large_values() -> None:
    split = ATTENTION.replace("{0.35355338}", "{0.59460354}").replace("MatMul(q, kt)", "MatMul(q_, k_)")
    split = split.replace(
        "dots =", "c_ = Constant <value = float {0.59460354}> ()  r = CastLike(c_, q)  q_ = Mul(q, r)  k_ = Mul(kt, r)  dots ="
    )
    split = split.replace("scores = Mul(dots, scale)", "scores = Identity(dots)")
    assert check(model(ATTENTION, TAIL=KEPT), model(split, TAIL=KEPT)) is None


def test_what_rounding_alone_does_to_a_steep_function_passes() -> None:
    before = model(
        """g (float[n,8] x, float[8,5] w) => (float[n,5] y) {
        c = Constant <value = float {0.3}> ()  d = MatMul(x, w)  s = Mul(d, c)  y = Sin(s) }"""
    )
    after = model(
        """g (float[n,8] x, float[8,5] w) => (float[n,5] y) {
        c = Constant <value = float {0.3}> ()  s = Mul(x, c)  d = MatMul(s, w)  y = Sin(d) }"""
    )
    assert check(before, after) is None
    assert check(before, model("g (float[n,8] x, float[8,5] w) => (float[n,5] y) { d = MatMul(x, w)  y = Sin(d) }")) is not None


def test_half_arithmetic_that_rounds_less_than_before_passes() -> None:
    # a transposition is done in half, so what goes in is rounded there, and overflows where values are large
    text = "g (float16[n,8] x) => (float16[n,8] y) { s = Mul(x, x)  v = Mul(s, s)  t = Transpose(v)  u = Transpose(t)  y = Sqrt(u) }"
    after = model("g (float16[n,8] x) => (float16[n,8] y) { w = Cast <to = 1> (x)  s = Mul(w, w)  y = Cast <to = 10> (s) }")
    assert check(model(text), after) is None
    assert check(model(text), model("g (float16[n,8] x) => (float16[n,8] y) { y = Abs(x) }")) is not None


def test_sizes_without_names_are_made_to_fit() -> None:
    text = "g (float[?,?,8] x, float[?,?,8] z) => (float[?,?,8] y) { y = Concat <axis = 1> (x, z) }"
    assert check(model(text), model(text)) is None
    assert check(model(text), model(text.replace("(x, z) }", "(z, x) }"))) is not None


def test_rows_of_a_table_stay_below_its_row_count() -> None:
    text = "g (float[r,8] table, int64[b,s] ids) => (float[b,s,8] y) { y = Gather(table, ids) }"
    assert check(model(text), model(text)) is None


def test_a_shape_that_comes_in_fits_what_it_reshapes() -> None:
    text = "g (float[b,s,32] x, int64[4] shape) => (float[b,s,4,8] y) { y = Reshape(x, shape) }"
    assert check(model(text), model(text)) is None


def test_a_subgraph_that_no_input_runs_through_is_reported() -> None:
    before = model("g (float[n,4] x) => (float[n] y) { nine = Constant <value = int64 {9}> ()  y = Gather <axis = 1> (x, nine) }")
    with pytest.raises(VerificationError, match="runs on none of the inputs"):
        check(before, before)


def test_inputs_must_stay() -> None:
    with pytest.raises(VerificationError, match="must keep the inputs x; has z"):
        check(model("g (float[2] x) => (float[2] y) { y = Neg(x) }"), model("g (float[2] z) => (float[2] y) { y = Neg(z) }"))


def test_an_operator_that_nobody_registered_is_named() -> None:
    before = model("g (float[2] x) => (float[2] y) { y = test.local.Unknown(x) }")
    with pytest.raises(RuntimeMissingError, match=r"test\.local: Unknown"):
        check(before, before)


def test_a_fused_node_that_cannot_be_loaded_is_a_difference() -> None:
    found = check(
        model("g (float[2] x) => (float[2] y) { y = Neg(x) }"), model("g (float[2] x) => (float[2] y) { y = test.local.Lost(x) }")
    )
    assert found is not None
    assert "cannot be loaded" in found.reason
    assert "test.local: Lost" in found.reason


def with_body(text: str, body: str) -> onnx.ModelProto:
    made = model(text)
    made.functions.append(onnx.parser.parse_function(f'<domain: "{DOMAIN}", opset_import: ["": 20]>\n{body}'))
    return made


def test_a_fused_node_is_judged_by_its_kernel_and_by_its_body() -> None:
    before = model("g (float[n,8] x) => (float[n,8] y) { y = Gelu (x) }")
    fused = 'g (float[n,8] x) => (float[n,8] y) { y = ai.onnxfuse.Gelu <approximate = "none"> (x) }'
    right = "Gelu <approximate> (x, bias) => (y) { y = Gelu (x) }"
    assert check(before, with_body(fused, right)) is None
    wrong = check(before, with_body(fused, right.replace("Gelu (x) }", "Relu (x) }")))
    assert wrong is not None
    assert wrong.reason.startswith("without our library: ")
    assert check(model("g (float[n,8] x) => (float[n,8] y) { y = Relu (x) }"), with_body(fused, right)) is not None
