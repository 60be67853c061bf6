"""Faults that were found by trying to break the engine, each with what must hold."""

from __future__ import annotations

import onnx
import pytest

from onnxfuse import api
from tests.engine.harness import assert_same_numbers, fuse, parse

NORM = """g (float[4,4] x) => (float[4,4] y) <float eps = {0.01}, float[SHAPE] w = {1, 2, 3, 4}> {
    HEAD q = Mul(d, d) v = ReduceMean<axes = [-1]>(q) e = Add(v, eps) r = Sqrt(e) z = Div(d, r) y = Mul(z, w)
}"""
HEADS = {"layer_norm": "m = ReduceMean<axes = [-1]>(x) d = Sub(x, m)", "rms_norm": "d = Identity(x)"}


@pytest.mark.parametrize("rule", HEADS)
def test_a_column_is_no_weight_of_the_last_axis(rule: str) -> None:
    """[4,1] has as many elements as the last axis; as a vector it would scale columns instead of rows."""
    model = parse(NORM.replace("SHAPE", "4,1").replace("HEAD", HEADS[rule]))
    done = fuse(model, rule)
    assert "Mul" in done.ops
    assert_same_numbers(model, done.model)


@pytest.mark.parametrize("rule", HEADS)
def test_a_row_with_a_leading_axis_is_a_weight_of_the_last_axis(rule: str) -> None:
    model = parse(NORM.replace("SHAPE", "1,4").replace("HEAD", HEADS[rule]))
    done = fuse(model, rule)
    assert "Mul" not in done.ops
    assert_same_numbers(model, done.model)


def test_a_model_may_leave_the_default_domain_to_its_functions(capfd: pytest.CaptureFixture[str]) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["l" : 1]> g (float[n,8] x) => (float[n,8] y) { y = l.silu(x) }
        <domain: "l", opset_import: ["" : 17]> silu (x) => (y) { s = Sigmoid(x) y = Mul(x, s) }""")
    result = api.optimize(model, level="all")
    assert [d.rule for d in result.report.fused] == ["silu"]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("scale", [1.0, 1e20])
def test_a_norm_computed_in_double_is_kept(scale: float) -> None:
    """Squares of 1e20 are beyond float32; the original takes them in double."""
    text = f"""g (float[4,8] x) => (float[4,8] y) <double eps = {{0.00001}}, float k = {{{scale}}}> {{
        s = Mul(x, k) w = Cast<to = 11>(s) q = Mul(w, w) m = ReduceMean<axes = [-1]>(q) e = Add(m, eps) r = Sqrt(e) d = Div(w, r)
        y = Cast<to = 1>(d)
    }}"""
    model = parse(text)
    done = fuse(model)
    assert "RMSNorm" not in done.ops
    assert_same_numbers(model, done.model)
