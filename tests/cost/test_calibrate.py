"""Calibration: what it writes is a profile that loads, whole or not at all."""

from __future__ import annotations

import importlib
import math
from pathlib import Path

import onnx
import pytest

from onnxfuse.cost import calibrate as room
from onnxfuse.cost import chains
from onnxfuse.cost.calibrate import Figures, best_of, calibrate, measure_cpu, op_ns
from onnxfuse.cost.compiling import compile_ms
from onnxfuse.cost.count import work
from onnxfuse.cost.device import Cpu
from onnxfuse.cost.devices import CALIBRATED, find, load
from onnxfuse.cost.probes import APPLIED, CONV, CONV_FLOPS, GEMM, GEMM_FLOPS, PROBES
from onnxfuse.errors import RuntimeMissingError


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return calibrate(tmp_path_factory.mktemp("devices"), seconds=0.5)


def test_profile_is_complete_and_loads(profile: Path) -> None:
    cpu = load(profile)
    assert isinstance(cpu, Cpu)
    assert (cpu.key, cpu.confidence) == (CALIBRATED, "high")
    assert set(PROBES) <= set(cpu.rates)
    assert "measured by `onnxfuse calibrate` on " in cpu.sources[0]
    numbers = [
        cpu.memory_gbs,
        cpu.memory_gbs_all,
        cpu.gemm_gflops,
        cpu.node_us,
        cpu.clock_ghz,
        *cpu.rates.values(),
        *(c.gbs for c in cpu.caches),
    ]
    assert all(math.isfinite(number) and number > 0 for number in numbers)
    assert cpu.memory_gbs_all >= cpu.memory_gbs


def test_auto_uses_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(room, "measure_cpu", lambda *, seconds: find("cpu-generic"))
    path = calibrate()
    assert path == tmp_path / "onnxfuse" / "devices" / f"{CALIBRATED}.toml"
    assert find("auto").key == CALIBRATED


def test_calibration_that_fails_leaves_the_old_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / f"{CALIBRATED}.toml"
    old.write_text("old")
    monkeypatch.setattr(room, "measure_cpu", lambda *, seconds: find("cpu-generic"))
    monkeypatch.setattr(Path, "replace", lambda self, target: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        calibrate(tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(old.name, "old")]


def test_runtime_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(RuntimeMissingError, match="ONNX Runtime must be installed; it is not. Run `pip install onnxruntime`"):
        measure_cpu(seconds=0.1)


@pytest.mark.parametrize("key", PROBES)
def test_probe_is_a_valid_model_and_counted_as_the_counters_count(key: str) -> None:
    probe = PROBES[key]
    proto = onnx.shape_inference.infer_shapes(chains.model(probe, 3))
    if onnx.defs.has(probe.op, probe.domain):
        onnx.checker.check_model(proto, full_check=True)
    inferred = proto.graph
    known = {v.name: v.type.tensor_type for v in [*inferred.value_info, *inferred.output, *inferred.input]}
    dims = {name: tuple(d.dim_value for d in t.shape.dim) for name, t in known.items()}
    dims |= {c.name: tuple(c.dims) for c in proto.graph.initializer}
    node = proto.graph.node[0]
    dims |= {name: probe.shape for name in node.output if name not in dims or not dims[name]}  # the runtime's own ops keep it
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    values = {1: float(probe.constants[0])} if probe.op == "Pow" else {}
    made = work(node.op_type, [dims[i] for i in node.input], [dims[o] for o in node.output], "float", attributes, values=values)
    (part, applied), *rest = made.parts
    assert not rest
    assert part == key
    assert applied == APPLIED.get(key, math.prod(probe.shape))


def test_products_are_counted_as_the_counters_count() -> None:
    assert work("MatMul", [GEMM.shape, GEMM.constants[0].shape], [(192, 256)], "float").flops == GEMM_FLOPS
    assert work("Conv", [CONV.shape, CONV.constants[0].shape], [(1, 64, 14, 14)], "float").flops == CONV_FLOPS


def test_best_of_the_rounds_is_kept() -> None:
    slow = Figures(2.0, 0.1, 90.0, 50.0, (100.0, 40.0), 10.0, 15.0, {"Add": 0.2, "Exp": 0.1})
    fast = Figures(1.0, 0.2, 80.0, 60.0, (80.0, 50.0), 12.0, 14.0, {"Add": 0.1, "Exp": 0.3})
    assert best_of([slow, fast]) == Figures(1.0, 0.1, 90.0, 60.0, (100.0, 50.0), 12.0, 15.0, {"Add": 0.1, "Exp": 0.1})


def test_op_that_cannot_be_measured_takes_at_least_something() -> None:
    assert op_ns("Relu", node_us=1e9, budget_s=0.0) > 0


def test_compile_time_grows_with_the_ops() -> None:
    assert compile_ms(4, "none") == 0
    assert compile_ms(0, "nvrtc") == 40
    assert [compile_ms(n, "triton") for n in (1, 10, 100)] == sorted(compile_ms(n, "triton") for n in (1, 10, 100))
    assert compile_ms(512, "nvrtc") == pytest.approx(2300, rel=0.2)  # as measured
    assert compile_ms(512, "triton") == pytest.approx(3050, rel=0.35)
