"""Calibration: what it writes is a profile that loads, whole or not at all; what a busy machine does to it."""

from __future__ import annotations

import importlib
import math
from pathlib import Path

import onnx
import pytest

from onnxfuse import calibration
from onnxfuse.cost import calibrate as room
from onnxfuse.cost import chains
from onnxfuse.cost.calibrate import CALIBRATED, Bench, KernelProbe, Kernels, calibrate, measure_cpu, profile_path, unsettled
from onnxfuse.cost.compiling import compile_ms
from onnxfuse.cost.count import work
from onnxfuse.cost.detect import detect_cpu
from onnxfuse.cost.device import Cpu
from onnxfuse.cost.devices import find, generic_cpu, load
from onnxfuse.cost.probes import APPLIED, CONV, CONV_FLOPS, GEMM, GEMM_FLOPS, GEMM_ROWS, PROBES, TINY
from onnxfuse.cost.scalar import ROW_STEP, STEPS
from onnxfuse.cost.work import Gemm
from onnxfuse.errors import RuntimeMissingError


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("devices")
    calibration.calibrate(folder, seconds=0.5)
    return profile_path(folder)


def test_profile_is_complete_and_loads(profile: Path) -> None:
    cpu = load(profile)
    assert isinstance(cpu, Cpu)
    assert cpu.key == CALIBRATED
    assert cpu.confidence == "high" or (cpu.confidence == "medium" and "this machine was busy" in cpu.note)
    assert set(PROBES) <= set(cpu.rates)
    ours = {f"{k.name}/{k.operands}" for k in calibration.kernel_probes() if k.is_by_element}
    assert len(ours) > 15 and set(cpu.kernel_rates) == ours
    products = {f"{k.name}/{k.gemm.m}" for k in calibration.kernel_probes() if k.gemm}
    assert {f"Linear/{rows}" for rows in GEMM_ROWS} <= products
    assert set(cpu.gemm_rates) == {"Conv", *(f"MatMul/{rows}" for rows in GEMM_ROWS), *products}
    assert cpu.attention_efficiency > 0 and cpu.attention_us > 0
    assert "measured by `onnxfuse calibrate` on " in cpu.sources[0]
    numbers = [
        cpu.memory_gbs,
        cpu.memory_gbs_all,
        cpu.gemm_gflops,
        cpu.node_us,
        cpu.clock_ghz,
        *cpu.rates.values(),
        *cpu.gemm_rates.values(),
        *cpu.kernel_rates.values(),
        *(c.gbs for c in cpu.caches),
    ]
    assert all(math.isfinite(number) and number > 0 for number in numbers)
    assert cpu.memory_gbs_all >= cpu.memory_gbs


def test_auto_uses_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(room, "measure_cpu", lambda *, seconds, kernels: find("cpu-generic"))
    calibrate()
    assert profile_path() == tmp_path / "onnxfuse" / "devices" / f"{CALIBRATED}.toml"
    assert find("auto").key == CALIBRATED


def test_calibration_that_fails_leaves_the_old_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / f"{CALIBRATED}.toml"
    old.write_text("old")
    monkeypatch.setattr(room, "measure_cpu", lambda *, seconds, kernels: find("cpu-generic"))
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
    power = probe.constants[0] if probe.op == "Pow" else None
    values = {} if power is None else {1: float(power)}
    made = work(node.op_type, [dims[i] for i in node.input], [dims[o] for o in node.output], "float", attributes, values=values)
    counted = dict(made.parts)
    assert counted[key] == APPLIED.get(key, math.prod(probe.shape))
    assert key in STEPS or set(counted) <= {key, ROW_STEP}


def test_products_are_counted_as_the_counters_count() -> None:
    assert work("MatMul", [GEMM.shape, GEMM.constants[0].shape], [(192, 256)], "float").flops == GEMM_FLOPS
    assert work("Conv", [CONV.shape, CONV.constants[0].shape], [(1, 64, 14, 14)], "float").flops == CONV_FLOPS


class Clock:
    """A Slope or Stopwatch whose runs take what is written down for each round."""

    def __init__(self, *rounds: float) -> None:
        self.rounds, self.best = list(rounds), math.inf

    def sample(self, budget_s: float) -> None:
        self.best = min(self.best, self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0])

    @property
    def seconds(self) -> float:
        return self.best


def test_runs_that_were_disturbed_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that hits the short chain in one round and the long one in another must not shorten their difference."""
    times = {3: iter([9.0, 3.0, 9.0]), 7: iter([7.0, 20.0, 20.0])}

    class Watch(Clock):
        def __init__(self, probe: chains.Probe, count: int, **_: object) -> None:
            super().__init__(*times[count])

    monkeypatch.setattr(chains, "Stopwatch", Watch)
    slope = chains.Slope(TINY, (3, 7))
    for _ in range(3):
        slope.sample(0.0)
    assert slope.seconds == 1.0


def test_rounds_go_on_while_figures_change(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[float] = []
    last = [0]

    class Settling:
        def __init__(self, *_: object) -> None: ...

        def round(self, seconds: float) -> dict[str, float]:
            rounds.append(seconds)
            return {"node": 1.0 / min(len(rounds), last[0])}

        def cpu(self) -> Cpu:
            return generic_cpu()

    monkeypatch.setattr(room, "Bench", Settling)
    for settles_after, count, confidence in ((1, 12, "low"), (14, 17, "low"), (99, 36, "medium")):
        rounds.clear()
        last[0] = settles_after
        found = measure_cpu(seconds=3.0)
        assert (len(rounds), found.confidence) == (count, confidence)
    assert found.note == "this machine was busy: 100% of the figures still changed after 36 rounds"


def test_figure_is_unsettled_if_a_round_made_it_shorter() -> None:
    assert unsettled({"a": 1.0, "b": 1.0}, {"a": 0.99, "b": 0.9}) == 0.5


def test_calls_and_attention_are_found_from_several_sizes() -> None:
    """Times made up from 0.2 us a call, 0.1 us an operand, 0.5 ns an element; attention at half of the
    product's rate, 3 us each and 0.04 us a row; a product of ours at 80 GFLOP/s."""
    tiny = [KernelProbe("Small", TINY, operands, 16) for operands in (2, 6)]
    large = KernelProbe("Large", TINY, 3, 10**5)
    attention = [KernelProbe("Attention", TINY, 4, rows * 64, rows**2 * 100, rows) for rows in (16, 128, 512)]
    bench = Bench(detect_cpu(generic_cpu()))
    product = KernelProbe("Product", TINY, 3, 10**5, gemm=Gemm(1, 40, 50, 60))
    bench._kernels = (*tiny, large, *attention, product)
    call = {k.label: 0.2 + 0.1 * k.operands for k in bench._kernels}
    times = {k.label: call[k.label] for k in tiny} | {large.label: call[large.label] + 0.5 * 10**2}
    times[product.label] = call[product.label] + 2 * 40 * 50 * 60 / 80e3
    times |= {k.label: call[k.label] + 3.0 + 0.04 * k.rows + k.flops / 50e3 for k in attention}
    bench._slopes = {**bench._slopes, **{label: Clock(us / 1e6) for label, us in times.items()}, "gemm": Clock(GEMM_FLOPS / 100e9)}
    bench.round(0.0)
    found = bench.cpu()
    assert found.gemm_gflops == pytest.approx(100)
    assert (found.fused_node_us, found.fused_operand_us) == pytest.approx((0.2, 0.1))
    assert found.kernel_rates == {"Large/3": pytest.approx(0.5)}
    assert found.gemm_rates["Product/40"] == pytest.approx(80)
    assert (found.attention_efficiency, found.attention_us, found.attention_row_us) == pytest.approx((0.5, 3.0, 0.04))


def test_without_our_library_its_figures_are_the_usual_ones() -> None:
    usual = detect_cpu(generic_cpu())
    bench = Bench(usual, Kernels(Path("unused"), ()))
    bench.round(0.0)
    found = bench.cpu()
    assert (found.fused_node_us, found.kernel_rates) == (usual.fused_node_us, usual.kernel_rates)


def test_compile_time_grows_with_the_ops() -> None:
    assert compile_ms(4, "none") == 0
    assert compile_ms(0, "nvrtc") == 40
    assert [compile_ms(n, "triton") for n in (1, 10, 100)] == sorted(compile_ms(n, "triton") for n in (1, 10, 100))
    assert compile_ms(512, "nvrtc") == pytest.approx(2300, rel=0.2)  # as measured
    assert compile_ms(512, "triton") == pytest.approx(3050, rel=0.35)
