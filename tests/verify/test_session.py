"""Sessions are made with what they need, and refusals say what is missing and how to get it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

import onnxfuse
from onnxfuse import driver
from onnxfuse import runtime as session
from onnxfuse.errors import ModelError, RuntimeMissingError

CPU = ["CPUExecutionProvider"]


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 19, "acme": 1, "zeta": 2, "com.microsoft": 1, "ai.onnxfuse": 1]>\n{text}'
    )


NEG = "g (float[n] x) => (float[n] y) { y = Neg(x) }"
OWN = 'g (float[n] x) => (float[n] y) { y = ai.onnxfuse.Gelu <approximate = "none"> (x) }'


def test_importing_the_package_imports_no_runtime() -> None:
    code = "import sys, onnxfuse, onnxfuse.runtime, onnxfuse.verify, onnxfuse.bench; sys.exit('onnxruntime' in sys.modules)"
    folder = str(Path(onnxfuse.__path__[0]).parent)
    assert subprocess.run([sys.executable, "-c", code], cwd=folder, check=False).returncode == 0


def test_a_path_and_a_proto_run_alike(tmp_path: Path) -> None:
    onnx.save(model(NEG), tmp_path / "m.onnx")
    feed = {"x": np.array([1, 2], np.float32)}
    for source in (model(NEG), tmp_path / "m.onnx", str(tmp_path / "m.onnx")):
        assert session.run(session.session(source, CPU), feed)[0].tolist() == [-1, -2]


def test_a_missing_runtime_is_told_with_the_command_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(RuntimeMissingError, match=r'pip install "onnxfuse\[cpu\]".*"onnxfuse\[gpu\]".*exclude each other'):
        session.session(model(NEG))


def test_a_gpu_that_is_not_there_is_told_once_and_the_model_runs(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(driver, "gpus", lambda: [])
    session._say_once.cache_clear()
    for providers in (["CUDAExecutionProvider", *CPU], [("CUDAExecutionProvider", {"device_id": 1}), *CPU], ["CUDAExecutionProvider"]):
        made = session.session(model(OWN), providers)
        assert made.get_providers() == CPU
        assert np.allclose(session.run(made, {"x": np.array([2], np.float32)})[0], [1.9544997], atol=1e-6)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "NVIDIA's driver is missing or shows no GPU: it runs on the CPU" in caplog.text


def test_half_an_installation_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", type(sys)("onnxruntime"))
    with pytest.raises(RuntimeMissingError, match="in part only"):
        session.require_onnxruntime()


def test_the_library_is_registered_only_for_our_ops(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(onnxfuse, "__path__", [str(tmp_path)])
    monkeypatch.setattr(session, "_installed", lambda name: iter(()))
    session.session(model(NEG), CPU)
    with pytest.raises(RuntimeMissingError, match=r"libonnxfuse_ops.* must lie in .*lib; it does not. Build it"):
        session.session(model(OWN), CPU)


def test_our_ops_run_by_kernel_and_by_body() -> None:
    feed = {"x": np.array([-1, 0, 2], np.float32)}
    made = model(OWN)
    kernel = session.run(session.session(made, CPU), feed)[0]
    with pytest.raises(RuntimeMissingError, match=r"ai\.onnxfuse: Gelu"):
        session.session(made, CPU, register=False)
    body = '<domain: "ai.onnxfuse", opset_import: ["": 17]>\nGelu <approximate> (x, bias) => (y) { y = Identity(x) }'
    made.functions.append(onnx.parser.parse_function(body))
    assert session.run(session.session(made, CPU, register=False), feed)[0].tolist() == [-1, 0, 2]
    assert np.allclose(kernel, [-0.15865525, 0, 1.9544997], atol=1e-6)


def test_all_operators_that_nobody_knows_are_named() -> None:
    text = """g (float[n] x) => (float[n] y) {
        a = acme.Warp(x, x)  b = zeta.Bend(a)  c = acme.Bent(b)  d = com.microsoft.Gelu(c)  y = com.microsoft.No(d) }"""
    with pytest.raises(RuntimeMissingError) as caught:
        session.session(model(text), CPU)
    assert "acme: Bent, Warp; com.microsoft: No; zeta: Bend. Give" in str(caught.value)
    assert "--library OTHER_OPS.so" in str(caught.value)
    assert "--no-verify" in str(caught.value)


def test_an_operator_with_a_body_is_known() -> None:
    made = model("g (float[n] x) => (float[n] y) { a = acme.Warp(x)  y = acme.Gone(a) }")
    made.functions.append(onnx.parser.parse_function('<domain: "acme", opset_import: ["": 17]>\nWarp (x) => (y) { y = Neg(x) }'))
    assert session.unregistered(made, ()) == {"acme": ["Gone"]}


def test_operators_inside_branches_and_functions_are_seen() -> None:
    text = """g (bool c, float[n] x) => (float[n] y) {
        y = If (c) <then_branch = t () => (float[n] a) { a = acme.In(x) }, else_branch = e () => (float[n] b) { b = Neg(x) }> }"""
    made = model(text)
    body = '<domain: "zeta", opset_import: ["": 17, "acme": 1]>\nF (x) => (y) { y = acme.Deep(x) }'
    made.functions.append(onnx.parser.parse_function(body))
    assert session.unregistered(made, ()) == {"acme": ["Deep", "In"]}


def test_a_library_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.so").write_bytes(b"no library")
    with pytest.raises(RuntimeMissingError, match=r"bad\.so: must be a custom-op library"):
        session.session(model(NEG), CPU, libraries=[tmp_path / "bad.so"])


def test_a_type_without_a_kernel_is_told() -> None:
    with pytest.raises(RuntimeMissingError, match="no kernel on this device"):
        session.session(model("g (bfloat16[n] x) => (bfloat16[n] y) { y = Erf(x) }"), CPU)


@pytest.mark.parametrize(("change", "message"), [("ir_version", "cannot load it"), ("opset", "cannot load it")])
def test_a_model_too_new_for_the_runtime_is_told(change: str, message: str) -> None:
    made = model(NEG)
    if change == "ir_version":
        made.ir_version = 99
    else:
        made.opset_import[0].version = 99
    with pytest.raises(ModelError, match=message):
        session.session(made, CPU)


def test_a_proto_over_two_gigabytes_must_come_as_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PROTO_LIMIT", 10)
    with pytest.raises(ModelError, match=r"must fit in one message.*give the path"):
        session.session(model(NEG), CPU)


def test_a_file_that_is_no_model_is_told(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model at all")
    with pytest.raises(ModelError, match="no ONNX model"):
        session.session(tmp_path / "m.onnx", CPU)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_small_floats_go_in_and_out(dtype: Any) -> None:
    name = onnx.TensorProto.DataType.Name(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))).lower()
    made = session.session(model(f"g ({name}[n,2] x) => ({name}[n,2] y) {{ y = Identity(x) }}"), CPU)
    for rows in (3, 0):
        x = np.arange(2 * rows).reshape(rows, 2).astype(dtype)
        (y,) = session.run(made, {"x": x})
        assert y.dtype == x.dtype
        assert np.array_equal(y, x)


def test_threads_and_given_options_are_used() -> None:
    runtime = session.require_onnxruntime()
    options = runtime.SessionOptions()
    options.add_session_config_entry("session.load_model_format", "ONNX")
    session.session(model(NEG), CPU, threads=1, optimizations=False, options=options)
    assert options.intra_op_num_threads == 1
    assert options.graph_optimization_level == runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
