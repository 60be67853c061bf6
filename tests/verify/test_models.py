"""Whole models: what is the same passes, what is not is named, and what could not be compared is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxfuse.errors import ModelError, RuntimeMissingError, UsageError, VerificationError
from onnxfuse.op import DOMAIN
from onnxfuse.verify import isolated, memory, models, verify

HEAD = '<ir_version: 10, opset_import: ["": 20, "ai.onnxfuse": 1, "test.local": 1, "other.ops": 1]>'
BLOCK = """g (float[batch,seq,8] x, int64[batch,seq] attention_mask) => (float[batch,seq,8] y, int64[batch,seq] best)
<float[8] w = {1, 2, 3, 4, -1, -2, -3, -4}, float[8] bias = {0.5, -0.5, 1, -1, 2, -2, 0.1, 0.2}> {
    n = LayerNormalization <axis = -1, epsilon = 0.00001> (x, w)
    keep = Cast <to = 1> (attention_mask)  one = Constant <value = float {1.0}> ()  drop = Sub(one, keep)
    low = Constant <value = float {-10000.0}> ()  added = Mul(drop, low)
    axes = Constant <value = int64[1] {1}> ()  mask = Unsqueeze(added, axes)
    t = Transpose <perm = [0,2,1]> (n)  scores = MatMul(n, t)  masked = Add(scores, mask)
    p = Softmax <axis = -1> (masked)  a = MatMul(p, n)  y = Add(a, bias)  best = ArgMax <axis = -1, keepdims = 0> (y)
}"""


def model(text: str, **parts: str) -> onnx.ModelProto:
    for name, part in parts.items():
        assert name in text
        text = text.replace(name, part)
    return onnx.parser.parse_model(f"{HEAD}\n{text}")


def test_a_model_is_the_same_as_itself() -> None:
    found = verify(model(BLOCK), model(BLOCK))
    assert found.ok
    assert len(found.feeds) == 3
    assert not found.not_run
    assert found.errors["best"] == 0
    assert "same on 3 input sets" in found.summary()


@pytest.mark.parametrize(
    "change",
    [
        {"Add(a, bias)": "Identity(a)"},
        {"Add(scores, mask)": "Identity(scores)"},
        {"epsilon = 0.00001": "epsilon = 0.01"},
        {"p = Softmax <axis = -1> (masked)": "p = Softmax <axis = 1> (masked)"},
        {"{0.5, -0.5, 1,": "{0.51, -0.5, 1,"},
    ],
    ids=["bias lost", "mask ignored", "epsilon changed", "axis changed", "weight changed"],
)
def test_a_model_that_computes_something_else_is_caught(change: dict[str, str]) -> None:
    found = verify(model(BLOCK), model(BLOCK, **change))
    assert not found.ok
    assert found.differences[0].output in ("y", "best")
    assert found.summary().startswith("different: output")


def test_a_tie_that_flips_an_index_is_reported() -> None:
    before = model("g (float[n,4] x) => (int64[n,1] y) { z = Mul(x, x)  y = ArgMax(z) }")
    after = model("g (float[n,4] x) => (int64[n,1] y) { c = Abs(x)  d = Sub(c, c)  y = ArgMax(d) }")
    assert not verify(before, after).ok


def test_inputs_and_outputs_must_stay() -> None:
    base = "g (float[n] x) => (float[n] y) { y = Neg(x) }"
    assert "inputs must stay" in verify(model(base), model(base.replace("x", "z"))).summary()
    assert "lost y" in verify(model(base), model(base.replace("y", "z"))).summary()
    two = "g (float[n] x) => (float[n] y, float[n] z) { y = Neg(x)  z = Abs(x) }"
    assert "in order" in verify(model(two), model(two.replace("(float[n] y, float[n] z)", "(float[n] z, float[n] y)"))).summary()


def test_sizes_that_the_model_needs_are_found() -> None:
    text = """g (float[b,s,8] x, float[c,2,p,4] past_key, int64[d,t] attention_mask) => (float[m,n,q,r] y) {
        shape = Constant <value = int64[4] {0, -1, 2, 4}> ()  h = Reshape(x, shape)  k = Transpose <perm = [0,2,1,3]> (h)
        all = Concat <axis = 2> (past_key, k)  mask = Cast <to = 1> (attention_mask)
        axes = Constant <value = int64[2] {1, 3}> ()  wide = Unsqueeze(mask, axes)  y = Mul(all, wide) }"""
    found = verify(model(text), model(text))
    assert found.ok
    assert len(found.feeds) >= 3
    assert any("p=0" in feed for feed in found.feeds)


def test_an_output_that_is_random_is_left_out_and_said() -> None:
    text = "g (float[n] x) => (float[n] y, float[n] z) { r = RandomNormalLike(x)  y = Add(x, r)  z = Neg(x) }"
    found = verify(model(text), model(text))
    assert found.ok
    assert found.not_run == ("output 'y' is random",)
    assert not verify(model(text), model(text.replace("Neg(x)", "Identity(x)"))).ok


def test_operators_that_nobody_registered_are_all_named() -> None:
    text = "g (float[2] x) => (float[2] y) { a = test.local.Warp(x)  b = other.ops.Weave(a)  y = test.local.Bend(b) }"
    with pytest.raises(RuntimeMissingError, match=r"other\.ops: Weave; test\.local: Bend, Warp.*--library.*--no-verify"):
        verify(model(text), model(text))


def test_a_new_model_that_cannot_be_loaded_is_a_difference() -> None:
    found = verify(
        model("g (float[2] x) => (float[2] y) { y = Neg(x) }"), model("g (float[2] x) => (float[2] y) { y = test.local.Warp(x) }")
    )
    assert not found.ok
    assert "the new model cannot be loaded" in found.summary()


def test_a_new_model_that_fails_where_the_original_runs_is_a_difference() -> None:
    after = "g (float[n] x) => (float[n] y) { s = Constant <value = int64[1] {4}> ()  y = Reshape(x, s) }"
    found = verify(model("g (float[n] x) => (float[n] y) { y = Identity(x) }"), model(after))
    assert "fails where the original runs" in found.summary()


def test_too_large_a_model_is_not_run_and_the_numbers_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 10)
    found = verify(model(BLOCK), model(BLOCK))
    assert not found.ok
    assert not found.differences
    assert found.summary().startswith("not compared: running it needs about")


def test_bodies_are_run_as_well_as_kernels() -> None:
    before = model("g (float[n,8] x) => (float[n,8] y) { y = Gelu (x) }")
    after = model('g (float[n,8] x) => (float[n,8] y) { y = ai.onnxfuse.Gelu <approximate = "none"> (x) }')
    body = f'<domain: "{DOMAIN}", opset_import: ["": 20]>\nGelu <approximate> (x, bias) => (y) {{ y = OP (x) }}'
    right, wrong = onnx.ModelProto(), onnx.ModelProto()
    for made, op in ((right, "Gelu"), (wrong, "Relu")):
        made.CopyFrom(after)
        made.functions.append(onnx.parser.parse_function(body.replace("OP", op)))
    assert verify(before, right).ok
    assert "without our library: " in verify(before, wrong).summary()


def external(folder: Path, weight: float) -> Path:
    """A model with its weights in a file beside it."""
    w = numpy_helper.from_array(np.full((64, 8), weight, np.float32), "w")
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", inputs, outputs, [w])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder.mkdir()
    onnx.save(made, folder / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    return folder / "m.onnx"


def test_weights_in_files_are_found_for_paths_and_for_protos(tmp_path: Path) -> None:
    one, two = external(tmp_path / "a", 0.5), external(tmp_path / "b", 0.75)
    assert verify(one, one).ok
    assert not verify(one, two).ok
    proto = onnx.load(one, load_external_data=False)
    assert verify(one, proto).ok  # beside the file of the other
    assert verify(proto, proto, folder=one.parent).ok
    assert not verify(proto, two, folder=one.parent).ok
    (one.parent / "w.bin").unlink()
    with pytest.raises(ModelError, match="external data"):
        verify(one, one)


def test_given_inputs_are_used(tmp_path: Path) -> None:
    before = model("g (float[n] x) => (float[n] y) { y = Abs(x) }")
    after = model("g (float[n] x) => (float[n] y) { y = Identity(x) }")
    np.savez(tmp_path / "x.npz", x=np.array([1, 2, 3], np.float32))
    found = verify(before, after, inputs=tmp_path / "x.npz")
    assert found.ok
    assert found.feeds == ("x[3]; as given",)
    assert not verify(before, after, inputs=[{"x": np.array([-1], np.float32)}]).ok


def test_inputs_that_the_original_refuses_are_an_error() -> None:
    both = model("g (float[n] x, float[m] z) => (float[k] y) { y = Add(x, z) }")
    with pytest.raises(VerificationError, match="does not run on these inputs"):
        verify(both, both, inputs=[{"x": np.zeros(2, np.float32), "z": np.zeros(3, np.float32)}])


def test_a_given_size_is_kept_and_an_unknown_one_refused() -> None:
    found = verify(model(BLOCK), model(BLOCK), shapes={"seq": 9})
    assert all("seq=9" in feed for feed in found.feeds)
    with pytest.raises(UsageError, match="no such size. They have: batch, seq"):
        verify(model(BLOCK), model(BLOCK), shapes={"length": 9})


def test_a_half_model_may_be_more_exact_than_the_original() -> None:
    # a transposition is done in half, so what goes in overflows there
    text = "g (float16[n,64] x) => (float16[n,64] y) { a = Mul(x, x)  b = Mul(a, a)  c = Mul(b, b)  d = Mul(c, c)  e = Mul(d, c)  ROOT }"
    before = model(text, ROOT="t = Transpose(e)  u = Transpose(t)  r = Sqrt(u)  y = Sqrt(r)")
    after = model(text, ROOT="r = Sqrt(e)  y = Sqrt(r)")
    assert verify(before, after).ok
    assert not verify(before, model(text, ROOT="y = Sqrt(e)")).ok


def crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "CHILD", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")


def test_a_crash_of_the_optimisations_on_the_original_too_is_no_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    crash(monkeypatch)
    found = verify(model(BLOCK), model(BLOCK))
    assert found.ok
    assert "which go wrong on the original model too" in found.not_run[0]
    assert "crashed (signal 11)" in found.not_run[0]


def test_a_crash_of_the_optimisations_on_the_new_model_alone_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    real = isolated.run_isolated
    calls: list[Any] = []

    def once(jobs: Any, feeds: Any) -> Any:
        calls.append(jobs)
        return ["it crashed"] if len(calls) == 1 else real(jobs, feeds)

    monkeypatch.setattr(models, "run_isolated", once)
    found = verify(model(BLOCK), model(BLOCK))
    assert not found.ok
    assert found.differences[0].reason == "with ONNX Runtime's own optimisations: cannot be loaded: it crashed"
    assert len(calls) == 2


def test_the_jobs_after_one_that_crashed_are_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model("g (float[n] x) => (float[n] y) { y = Neg(x) }"), path)
    good = isolated.Job(str(path), (), ("CPUExecutionProvider",), True, None)
    bad = isolated.Job("crash", (), ("CPUExecutionProvider",), True, None)
    guard = "import json, os, signal, sys; jobs = json.load(open(sys.argv[1] + '/jobs.json'));"
    guard += "jobs[0]['model'] == 'crash' and os.kill(os.getpid(), signal.SIGSEGV);"
    monkeypatch.setattr(isolated, "CHILD", guard + isolated.CHILD)
    results = isolated.run_isolated([bad, good], [{"x": np.ones(2, np.float32)}])
    assert isinstance(results[0], isolated.Crash)
    assert np.array_equal(results[1][0][0], [-1, -1])
