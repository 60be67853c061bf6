"""Linear beside the rules that it competes with, and what becomes of weights that many rows read."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxfuse import runtime
from onnxfuse.case import Case
from onnxfuse.custom_ops.linear.op import LINEAR
from tests.engine.harness import Fused, assert_fuses, feed, parse
from tests.ops.harness import node_model

W = "float[4,4] w = {1, -2, 3, -4, 5, -6, 7, -8, 9, 0.5, 0.25, 0, 1, 2, 3, 4}"
B = "float[4] b = {1, 2, 3, 4}, float[4] g = {4, 3, 2, 1}"
NORM = """m = ReduceMean <axes = [-1]> (t)  d = Sub(t, m)  q = Mul(d, d)  v = ReduceMean <axes = [-1]> (q)
    e = Add(v, eps)  s = Sqrt(e)  n = Div(d, s)  y = Mul(n, g)"""


def left(done: Fused) -> list[str]:
    """Operators of the main graph, constants left out."""
    return [n.op_type for n in done.model.graph.node if n.op_type != "Constant"]


@pytest.mark.parametrize("norm", ["y = LayerNormalization(t, g)", NORM])
@pytest.mark.parametrize("product", ["p = MatMul(x, w)  t = Add(p, r)", "p = MatMul(x, w)  h = Add(p, b)  t = Add(h, r)"])
def test_a_norm_keeps_its_residual(norm: str, product: str) -> None:
    text = f"g (float[n,s,4] x, float[n,s,4] r) => (float[n,s,4] y) <{W}, {B}, float eps = {{0.00001}}> {{ {product}  {norm} }}"
    assert left(assert_fuses(text, into=["SkipLayerNorm"])) == ["MatMul", "SkipLayerNorm"]


def test_a_norm_keeps_its_residual_behind_merged_axes() -> None:
    text = f"""g (float[n,2,4] x, float[n,2,4] r) => (float[n,2,4] y) <{W}, {B}, int64[2] rows = {{-1, 4}}, int64[3] all = {{-1, 2, 4}}> {{
        f = Reshape(x, rows)  m = Gemm(f, w, b)  z = Reshape(m, all)  t = Add(r, z)  y = LayerNormalization(t, g)
    }}"""
    assert "SkipLayerNorm" in left(assert_fuses(text, into=["SkipLayerNorm"]))


def test_a_gate_keeps_its_activation() -> None:
    text = f"""g (float[n,s,4] x) => (float[n,s,4] y) <{W}, float[4,4] u = {{1, 0, 0, 0, 2, 1, 0, 0, 3, 0, 1, 0, 4, 0, 0, 1}}> {{
        a = MatMul(x, w)  c = MatMul(x, u)  s = Sigmoid(a)  d = Mul(a, s)  y = Mul(d, c)
    }}"""
    assert "SwiGLU" in left(assert_fuses(text, "swiglu", "silu", "linear", "linear.residual", into=["SwiGLU"]))


def test_an_activation_goes_with_the_product_and_its_bias() -> None:
    text = f"""<opset_import: ["" : 20]> g (float[n,s,4] x) => (float[n,s,4] y) <{W}, {B}> {{
        m = MatMul(x, w)  z = Add(m, b)  y = Gelu(z)
    }}"""
    assert left(assert_fuses(text, into=["Linear"])) == ["Linear"]


def test_a_bias_alone_is_left_to_the_runtime() -> None:
    text = f"g (float[n,s,4] x) => (float[n,s,4] y) <{W}, {B}> {{ m = MatMul(x, w)  y = Add(m, b) }}"
    assert left(assert_fuses(text, into=[])) == ["MatMul", "Add"]


def test_runs_with_many_and_few_rows_share_packed_weights() -> None:
    text = f"g (float[n,4] x) => (float[n,4] y) <{W}, {B}> {{ m = Gemm(x, w, b)  y = Tanh(m) }}"
    model = parse(text)
    fused = assert_fuses(model, into=["Linear"]).model
    session = runtime.session(fused, ["CPUExecutionProvider"], threads=1)
    for rows in (20, 3, 20, 33):
        x = feed(model, rows, n=rows)["x"]
        want = np.tanh(x @ _weight(model, "w") + _weight(model, "b"))
        np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-5, atol=1e-6)


def test_weights_that_are_an_input_are_packed_in_each_run() -> None:
    case = Case({"x": (20, 6), "weight": (6, 5)})
    session = runtime.session(node_model(LINEAR, case, "float"), ["CPUExecutionProvider"], threads=1)
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((20, 6), (6, 5)))
        np.testing.assert_allclose(session.run(None, {"x": x, "weight": w})[0], x @ w, rtol=1e-5, atol=1e-5)


def _weight(model: onnx.ModelProto, name: str) -> np.ndarray:
    return onnx.numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == name))
