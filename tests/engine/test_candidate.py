"""What becomes a candidate, and what is declined: the fused op sees all that its outputs depend on, and nothing needed vanishes."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfuse.custom_ops.gelu.op import GELU
from onnxfuse.custom_ops.silu.op import SILU
from onnxfuse.pattern import Call, Var, op, target
from onnxfuse.rule import Decline, Match, Rule
from tests.engine.harness import GELU_CONSTANTS, assert_fuses, assert_kept, assert_same_numbers, feed, fuse, gelu, parse, shipped

x, y = Var("x"), Var("y")
READ_TOO = "must be read by nobody else"


# ---- what somebody else needs


@pytest.mark.parametrize("value", ["g2", "g3", "g4"])
def test_a_value_inside_that_is_an_output_of_the_graph_is_kept(value: str) -> None:
    assert_kept(f"g (float[2,8] x) => (float[2,8] y, float[2,8] {value}) {GELU_CONSTANTS} {{ {gelu('x', 'y')} }}", because=READ_TOO)


@pytest.mark.parametrize("value", ["g1", "g2", "g3", "g4"])
def test_a_value_inside_that_another_node_reads_is_kept(value: str) -> None:
    """And the reason names both."""
    text = f"g (float[2,8] x) => (float[2,8] y, float[2,8] z) {GELU_CONSTANTS} {{ {gelu('x', 'y')} z = Exp({value}) }}"
    done = assert_kept(text, because=READ_TOO)
    assert f"'{value}' (" in done.reasons and "Exp 'z' reads it too" in done.reasons


def test_a_value_inside_that_a_branch_reads_from_outside_is_kept() -> None:
    text = f"""g (float[2,8] x, bool c) => (float[2,8] y, float[2,8] z) {GELU_CONSTANTS} {{
        {gelu("x", "y")}
        z = If (c) <then_branch = t () => (float[2,8] p) {{ p = Exp(g3) }}, else_branch = e () => (float[2,8] q) {{ q = Neg(x) }}>
    }}"""
    assert_kept(text, because="If 'z' reads it too")


def test_a_view_inside_that_is_cheap_may_be_read_elsewhere() -> None:
    """The Transpose stays for its other reader; the norm is fused all the same."""
    text = """g (float[8,4] x, float[4,8] w) => (float[4,8] y, float[4,8] z) {
        t = Transpose(x) s = Sigmoid(t) u = Mul(t, s) y = Mul(u, w) z = Neg(t)
    }"""
    done = assert_fuses(text, "swiglu", into=["SwiGLU"])
    assert sorted(done.ops) == ["Neg", "SwiGLU", "Transpose"]


def test_a_result_that_is_an_output_and_read_again_is_fused() -> None:
    text = f"g (float[2,8] x) => (float[2,8] y, float[2,8] z) {GELU_CONSTANTS} {{ {gelu('x', 'y')} z = Exp(y) }}"
    assert assert_fuses(text, "gelu", into=["Gelu"]).ops == ["Gelu", "Exp"]


def test_a_sum_that_is_needed_becomes_an_output_of_the_op() -> None:
    text = """g (float[2,8] x, float[2,8] skip) => (float[2,8] y, float[2,8] s) <float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
        s = Add(x, skip) y = LayerNormalization(s, w)
    }"""
    done = assert_fuses(text, "skip_layer_norm", into=["SkipLayerNorm"])
    assert list(done.model.graph.node[0].output) == ["y", "s"]


def test_a_sum_of_another_shape_does_not_become_an_output_of_the_op() -> None:
    """s2 is s with a further axis in front."""
    text = """g (float[2,8] x, float[2,8] skip) => (float[2,8] y, float[1,2,8] s2)
    <float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[1,1,1] one = {1}> {
        s = Add(x, skip) y = LayerNormalization(s, w) s2 = Mul(s, one)
    }"""
    model = parse(text)
    assert_same_numbers(model, fuse(model, "skip_layer_norm").model)


def test_an_input_that_depends_on_a_further_output_would_be_a_cycle() -> None:
    text = """g (float[2,8] x, float[2,8] skip) => (float[2,8] y, float[2,8] s) {
        s = Add(x, skip) m = ReduceMean<axes = [0], keepdims = 0>(s) d = ReduceMean<axes = [1], keepdims = 1>(s)
        e = Sub(s, d) q = Mul(e, e) v = ReduceMean<axes = [1]>(q) i = Constant<value = float {0.00001}>() j = Add(v, i)
        r = Sqrt(j) n = Div(e, r) y = Mul(n, m)
    }"""
    done = assert_fuses(text, "skip_layer_norm", into=["SkipLayerNorm"])
    assert done.ops == ["SkipLayerNorm", "ReduceMean", "Mul"]
    assert "no input may depend on 's'" in done.reasons
    assert_fuses(text, "layer_norm", into=["LayerNorm"])


# ---- what the op must see


def test_a_region_that_reads_what_the_op_does_not_get_is_declined() -> None:
    """The rule forgets y."""
    forgetful = Rule(before=op.Sigmoid(x) * y, after=SILU(x), name="forgetful")
    text = "g (float[2,8] x, float[2,8] z) => (float[2,8] y) { s = Sigmoid(x) y = Mul(s, z) }"
    assert_kept(text, forgetful, because="also reads 'z'")


def test_control_flow_stands_in_no_region() -> None:
    text = """g (float[2,8] x, bool c) => (float[2,8] y) {
        z = If (c) <then_branch = t () => (float[2,8] p) { p = Exp(x) }, else_branch = e () => (float[2,8] q) { q = Neg(x) }>
        s = Sigmoid(z) y = Mul(s, z)
    }"""
    assert assert_fuses(text, "silu", into=["Silu"]).ops == ["If", "Silu"]


def test_a_mask_that_is_made_again_is_the_same_mask() -> None:
    text = """g (float[2,8] x, float[2,8] z, float[2,8] a) => (float[2,8] y, float[2,8] u) {
        e = Exp(a) f = Exp(a) s = Sigmoid(x) t = Mul(s, x) y = Mul(t, e) p = Sigmoid(f) q = Mul(e, p) u = Mul(q, z)
    }"""
    assert_fuses(text, "swiglu", into=["SwiGLU", "SwiGLU"])


def test_values_that_a_rounding_parts_are_two_values() -> None:
    text = f"""g (float[2,8] x) => (float[2,8] y, float[2,8] z) {GELU_CONSTANTS} {{
        h = Cast<to = 10>(x) w = Cast<to = 1>(h) {gelu("w", "y")} {gelu("x", "z", "k")}
    }}"""
    model = parse(text)
    large = {"x": 300 + feed(model)["x"]}  # 1/4 is a step of float16 there
    assert_same_numbers(model, fuse(model).model, large, feed(model))


@pytest.mark.parametrize("order", [("z3", "z5"), ("z5", "z3")])
def test_values_made_of_constants_alone_are_told_apart(order: tuple[str, str]) -> None:
    """Both are Concat(0, k, 0); which one the op gets matters."""
    text = f"""g (float[2,11] x) => (float[2,11] y, float[2,11] other)
    <float zero = {{0}}, int64[2] s3 = {{2, 3}}, int64[2] s5 = {{2, 5}}, float[2,3] k = {{1, 2, 3, 4, 5, 6}}> {{
        z3 = Expand(zero, s3) z5 = Expand(zero, s5)
        u = Concat<axis = 1>(z3, k, z5) w = Concat<axis = 1>(z5, k, z3) other = Add(u, w)
        s = Sigmoid(x) t = Mul(s, x) y = Mul(t, {"u" if order[0] == "z3" else "w"})
    }}"""
    model = parse(text)
    done = fuse(model, "swiglu")
    assert_same_numbers(model, done.model)
    assert done.own == ["SwiGLU"]


def test_root_times_root_is_not_the_value_below_the_root() -> None:
    text = f"g (float[2,8] x) => (float[2,8] y) {GELU_CONSTANTS} {{ s = Sqrt(x) w = Mul(s, s) {gelu('w', 'y')} }}"
    assert assert_fuses(text, "gelu", into=["Gelu"]).ops == ["Sqrt", "Mul", "Gelu"]


@pytest.mark.parametrize("again", ["z = Identity(n)", "z = Exp(n)"])
def test_the_norm_of_the_negative_is_another_one(again: str) -> None:
    """y = -norm(-x) = norm(x), of which -x is a value that is needed elsewhere."""
    text = f"""g (float[2,8] x) => (float[2,8] y, float[2,8] z) <float eps = {{0.001}}> {{
        n = Neg(x) q = Mul(n, n) v = ReduceMean<axes = [1]>(q) e = Add(v, eps) r = Sqrt(e) d = Div(n, r) y = Neg(d) {again}
    }}"""
    model = parse(text)
    assert_same_numbers(model, fuse(model).model)


def test_what_is_replaced_by_a_mask_takes_what_was_added_with_it() -> None:
    """Rows that are masked throughout are even, though -inf was added to some of their scores."""
    text = """g (float[2,3,5,4] q, float[2,3,4,6] k, float[2,3,6,4] v, float[5,6] bias, bool[2,1,5,6] keep) => (float[2,3,5,4] y)
    <float low = {-3.4028234e38}> {
        d = MatMul(q, k) m = Add(d, bias) w = Where(keep, m, low) p = Softmax<axis = -1>(w) y = MatMul(p, v)
    }"""
    model = parse(text)
    values = feed(model)
    values["bias"][:, 3:] = -np.inf
    values["keep"][:, :, 2] = False
    done = fuse(model, "attention")
    assert done.own == ["Attention"]
    assert_same_numbers(model, done.model, values)


@pytest.mark.parametrize("order", ["past, now", "now, past"])
def test_a_past_that_is_joined_in_another_order_is_no_past(order: str) -> None:
    """Keys are past, then current; values may be the reverse. What is called past must be as long for both."""
    text = f"""g (float[b,3,s,4] q, float[b,3,p,4] past_k, float[b,3,s,4] k, float[b,3,o,4] past, float[b,3,s,4] now) => (float[b,3,s,4] y)
    <float scale = {{0.5}}> {{
        keys = Concat<axis = 2>(past_k, k) values = Concat<axis = 2>({order}) t = Transpose<perm = [0, 1, 3, 2]>(keys)
        d = MatMul(q, t) e = Mul(d, scale) p = Softmax<axis = -1>(e) y = MatMul(p, values)
    }}"""
    model = parse(text)
    done = fuse(model, "attention")
    assert done.own == ["Attention"]
    assert_same_numbers(model, done.model, feed(model, b=2, s=3, p=5, o=5))
    assert ("past_k" in done.model.graph.node[-1].input) is (order == "past, now")


@pytest.mark.parametrize("opset", [11, 12, 13, 17])
def test_merged_batch_and_heads_are_parted_at_every_opset(opset: int) -> None:
    """The mask [b*h, s, t] of a product of three axes becomes one of four."""
    text = """g (float[2,5,12] x, float[2,6,12] z, float[6,5,6] mask) => (float[2,5,12] y)
    <int64[4] parted = {0, 0, 3, 4}, int64[3] merged = {6, -1, 4}, int64[4] back = {2, 3, 5, 4}, int64[3] rows = {2, 5, 12},
     int64[4] apart = {2, 3, 5, 6}, int64[3] together = {6, 5, 6}> {
        x4 = Reshape(x, parted) xt = Transpose<perm = [0, 2, 1, 3]>(x4) q = Reshape(xt, merged)
        z4 = Reshape(z, parted) zt = Transpose<perm = [0, 2, 1, 3]>(z4) v = Reshape(zt, merged) k = Transpose<perm = [0, 2, 1]>(v)
        d = MatMul(q, k) m = Add(d, mask) n = Reshape(m, apart) p = Softmax<axis = 3>(n) r = Reshape(p, together) a = MatMul(r, v)
        b = Reshape(a, back) c = Transpose<perm = [0, 2, 1, 3]>(b) y = Reshape(c, rows)
    }"""
    assert_fuses(text, "attention", into=["Attention"], opset=opset)


# ---- types, shapes, opsets


def test_a_rounding_in_the_middle_is_kept() -> None:
    text = f"""g (float[2,8] x) => (float[2,8] y) {GELU_CONSTANTS} {{
        g1 = Mul(x, root_half) g2 = Erf(g1) h = Cast<to = 10>(g2) w = Cast<to = 1>(h) g3 = Add(w, one) g4 = Mul(x, g3) y = Mul(g4, half)
    }}"""
    assert_kept(text, because="rounds to float16 in the middle")


def test_an_island_of_float32_in_a_float16_model_is_fused() -> None:
    text = f"""g (float16[2,8] x) => (float16[2,8] y) {GELU_CONSTANTS} {{ w = Cast<to = 1>(x) {gelu("w", "z")} y = Cast<to = 10>(z) }}"""
    done = assert_fuses(text, "gelu", into=["Gelu"])
    assert done.ops == ["Gelu"]


def test_a_result_that_is_not_rounded_back_gets_an_op_of_its_own_type() -> None:
    text = f"g (float16[2,8] x) => (float[2,8] y) {GELU_CONSTANTS} {{ w = Cast<to = 1>(x) {gelu('w', 'y')} }}"
    done = assert_fuses(text, "gelu", into=["Gelu"])
    assert done.ops == ["Cast", "Gelu"]


def test_a_type_that_the_op_does_not_take_is_declined() -> None:
    text = f"g (double[2,8] x) => (double[2,8] y) {GELU_CONSTANTS.replace('float', 'double')} {{ {gelu('x', 'y')} }}"
    assert_kept(text, "gelu", because="double")


def test_integers_are_no_floats() -> None:
    assert_kept("g (int64[2,8] x) => (int64[2,8] y) { t = Mul(x, x) y = Add(t, x) }")


def test_a_value_of_unknown_rank_is_declined() -> None:
    text = f"g (float[2,8] x, int64[n] s) => (float[] y) {GELU_CONSTANTS} {{ r = Reshape(x, s) {gelu('r', 'y')} }}"
    assert_kept(text, "gelu", because="rank")


def test_a_result_that_is_broadcast_is_declined() -> None:
    text = """g (float[1,8] x) => (float[2,8] y) <float[2,8] ones = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}> {
        s = Sigmoid(x) o = Mul(s, ones) y = Mul(x, o)
    }"""
    model = parse(text)
    assert_same_numbers(model, fuse(model).model)


@pytest.mark.parametrize("opset", [9, 10])
def test_opsets_before_the_first_that_bodies_are_spelled_at_are_declined(opset: int) -> None:
    text = "g (float[2,8] x) => (float[2,8] y) { s = Sigmoid(x) y = Mul(s, x) }"
    assert_kept(text, "silu", because="opset 11", opset=opset)


@pytest.mark.parametrize("opset", range(11, 26))
def test_every_later_opset_is_fused(opset: int) -> None:
    assert_fuses("g (float[n,8] x) => (float[n,8] y) { s = Sigmoid(x) y = Mul(s, x) }", "silu", into=["Silu"], opset=opset)


# ---- rules


def _raise(match: Match) -> Call:
    raise KeyError("oops")


def _decline(match: Match) -> Call:
    raise Decline("the moon must be full")


def test_a_rule_that_raises_is_reported_and_the_others_go_on() -> None:
    broken = Rule(before=op.Swish(x, alpha=1.0), after=_raise, name="broken")
    done = assert_fuses("g (float[2,8] x) => (float[2,8] y) { s = Sigmoid(x) y = Mul(s, x) }", broken, "silu", into=["Silu"])
    assert "the rule raised KeyError: 'oops'" in done.reasons


def test_a_builder_may_decline() -> None:
    rule = Rule(before=op.Swish(x, alpha=1.0), after=_decline, name="choosy")
    assert_kept("g (float[2,8] x) => (float[2,8] y) { s = Sigmoid(x) y = Mul(s, x) }", rule, because="the moon must be full")


def test_a_guard_that_does_not_hold_is_the_reason() -> None:
    rule = Rule(before=op.Swish(x, alpha=1.0), after=SILU(x), where=[lambda match: "x must be green"], name="guarded")
    assert_kept("g (float[2,8] x) => (float[2,8] y) { s = Sigmoid(x) y = Mul(s, x) }", rule, because="x must be green")


def test_a_result_that_takes_a_number_as_an_input_is_reported() -> None:
    rule = Rule(before=op.Swish(x, alpha=1.0), after=target("com.microsoft").QuickGelu(1.0), name="odd")
    assert_kept("g (float[2,8] x) => (float[2,8] y) { s = Sigmoid(x) y = Mul(s, x) }", rule, because="Pass numbers as attributes")


def test_an_expression_that_no_value_holds_is_no_operand() -> None:
    """gelu(x/2) needs x/2, which the graph never makes: it multiplies twice."""
    rule = Rule(before=op.Gelu(x, approximate="none") * y, after=GELU(y), name="wrong place")
    text = f"g (float[2,8] x, float[2,8] z) => (float[2,8] y) {GELU_CONSTANTS} {{ {gelu('x', 'u')} v = Mul(u, z) y = Mul(v, x) }}"
    assert_kept(text, rule, because="y must be one value of the graph")


def test_one_operator_alone_is_not_given_another_name() -> None:
    assert_kept('<opset_import: ["" : 20]> g (float[2,8] x) => (float[2,8] y) { y = Gelu(x) }')


def test_a_region_in_a_body_may_read_from_outside() -> None:
    text = """g (float[2,8] x, bool c) => (float[2,8] y) {
        w = Exp(x)
        y = If (c) <then_branch = t () => (float[2,8] p) { s = Sigmoid(w) p = Mul(s, w) },
                    else_branch = e () => (float[2,8] q) { q = Neg(x) }>
    }"""
    assert_fuses(text, *shipped(), into=["Silu"])
