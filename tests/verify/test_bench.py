"""Timing runs both models equally often on the same inputs. How long they take is not tested."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxfuse.bench import bench
from onnxfuse.errors import ModelError, UsageError, VerificationError
from onnxfuse.verify import isolated


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>\n{text}')


TEXT = "g (float[batch,seq,8] x) => (float[batch,seq,8] y) { y = Softmax(x) }"


def test_two_models_are_timed_in_pairs() -> None:
    found = bench(model(TEXT), model(TEXT), runs=7, shapes={"seq": 3})
    assert found.runs == 7
    assert found.sizes == {"batch": 1, "seq": 3}
    assert found.threads == 1
    assert found.b is not None
    assert 0 < found.a.low <= found.a.median <= found.a.high
    assert found.ratio_low is not None and found.ratio is not None and found.ratio_high is not None
    assert 0 < found.ratio_low <= found.ratio <= found.ratio_high


def test_one_model_has_no_ratio() -> None:
    found = bench(model(TEXT), runs=1)
    assert (found.b, found.ratio, found.runs) == (None, None, 1)


def test_sizes_are_as_large_as_the_model_takes() -> None:
    text = """g (float[batch,seq,2] x) => (float[batch,seq,2] y) {
        s = Constant <value = int64[3] {1, 24, 2}> ()  t = ConstantOfShape(s)  y = Add(x, t) }"""
    assert bench(model(text), runs=1).sizes == {"batch": 1, "seq": 24}


def test_a_wrong_size_and_wrong_inputs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such size"):
        bench(model(TEXT), shapes={"length": 3})
    np.savez(tmp_path / "f.npz", z=np.zeros(3))
    with pytest.raises(UsageError, match="'x'"):
        bench(model(TEXT), inputs=tmp_path / "f.npz")
    with pytest.raises(VerificationError, match="does not run on the inputs of the other"):
        bench(model(TEXT), model(TEXT.replace(" x", " z").replace("(x)", "(z)")), runs=1)


def test_a_model_that_crashes_the_runtime_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "CHILD", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.raises(ModelError, match="crashed"):
        bench(model(TEXT))


def test_a_profile_has_the_time_of_every_operator() -> None:
    found = bench(model(TEXT), model(TEXT.replace("Softmax(x)", "Relu(x)")), runs=3, profile=True)
    first, second = found.profiles
    assert [(o.op, o.nodes) for o in first.ops] == [("Softmax", 1)]
    assert [(o.op, o.nodes) for o in second.ops] == [("Relu", 1)]
    for one in found.profiles:
        assert 0 < one.ops[0].milliseconds < one.milliseconds
    assert bench(model(TEXT), runs=1).profiles == ()
