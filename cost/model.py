"""The model that decides: what a set of kernels costs before and after a fusion on one device, and whether it is worth it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from onnxfuse.cost.budgets import MAX_NODES, Checks, budget_failures
from onnxfuse.cost.cpu import bandwidth, cpu_time
from onnxfuse.cost.device import Cpu, Device, Gpu
from onnxfuse.cost.devices import find
from onnxfuse.cost.roofline import L2_KEEPS, Mode, gpu_time
from onnxfuse.cost.work import Compiled, Gemm, Work, fuse

__all__ = ["Checks", "Compiled", "Gemm", "Model", "Price", "Work", "fuse"]

MARGIN = 0.02  # a saving below this part of the unfused time is within the model's error


@dataclass(frozen=True)
class Price:
    """A candidate's predicted times with every term that led to them; all times in microseconds."""

    unfused_us: float
    fused_us: float
    saved_bytes: int
    saved_launches: int
    limiter: str
    terms: Mapping[str, float]
    checks: Mapping[str, bool]
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    worth: bool

    @property
    def saved_us(self) -> float:
        """Predicted saving of one run; negative when the fusion loses."""
        return self.unfused_us - self.fused_us

    @property
    def speedup(self) -> float:
        """How many times faster the fused form is."""
        return self.unfused_us / self.fused_us if self.fused_us else 1.0

    def reason(self) -> str:
        """One line with the numbers: why the candidate is worth it, or why not."""
        if self.failures:
            return "; ".join(self.failures)
        times = f"{self.unfused_us:.2f} -> {self.fused_us:.2f} us (x{self.speedup:.2f})"
        saved = f"saves {_show_bytes(self.saved_bytes)} and {self.saved_launches} launches, limited by {self.limiter}"
        return f"{'worth it' if self.worth else 'not worth it'}: {times}, {saved}"


@dataclass(frozen=True)
class Model:
    """Prices candidates on one device. `device` is a name (`auto` too) or a record; `expected_runs` spreads compile time.

    `graph`: kernels are launched from a CUDA graph. Raises UsageError for a device that is unknown.
    """

    device: Device
    mode: Mode
    expected_runs: float
    graph: bool
    max_nodes: int

    def __init__(
        self,
        device: Device | str = "auto",
        mode: Mode = "extended",
        expected_runs: float = inf,
        *,
        graph: bool = False,
        max_nodes: int = MAX_NODES,
    ) -> None:
        put = object.__setattr__
        put(self, "device", find(device) if isinstance(device, str) else device)
        put(self, "mode", mode)
        put(self, "expected_runs", expected_runs)
        put(self, "graph", graph)
        put(self, "max_nodes", max_nodes)

    def price(
        self,
        before: Sequence[Work],
        after: Sequence[Work],
        *,
        fits: Checks | None = None,
        extra_reorder_bytes: int = 0,
        compile_ms: float = 0.0,
    ) -> Price:
        """What running `after` instead of `before` saves.

        fits: what the caller knows of the four checks. extra_reorder_bytes: what layout changes around the fused
        kernel move once; they are priced, never a veto. compile_ms: spread over the expected runs.
        """
        checks = fits or Checks()
        failures = (*checks.failures, *budget_failures(after, self.device, max_nodes=self.max_nodes))
        if len(failures) > len(checks.failures):
            checks = replace(checks, onchip_fit=False)
        unfused, fused = self.times(before), self.times(after)
        reorder = self._reorder_us(extra_reorder_bytes)
        compile_us = compile_ms * 1e3 / self.expected_runs
        before_us, after_us = unfused["total_us"], fused["total_us"] + reorder + compile_us
        terms = {f"unfused.{k}": v for k, v in unfused.items()} | {f"fused.{k}": v for k, v in fused.items()}
        terms |= {"reorder_us": reorder, "compile_us": compile_us, "extra_reorder_bytes": float(extra_reorder_bytes)}
        return Price(
            unfused_us=before_us,
            fused_us=after_us,
            saved_bytes=_moved(before) - _moved(after) - 2 * extra_reorder_bytes,
            saved_launches=sum(w.launches for w in before) - sum(w.launches for w in after),
            limiter=self._limiter(after),
            terms=terms,
            checks={name: getattr(checks, name) for name in ("semantics_match", "shape_supported", "onchip_fit", "backend_lowered")},
            failures=failures,
            notes=(),
            worth=checks.passed and before_us - after_us > MARGIN * before_us,
        )

    def times(self, works: Sequence[Work]) -> dict[str, float]:
        """Sums of the terms of kernels that run one after the other, in microseconds; `total_us` is the time."""
        return self._cpu(works, self.device) if isinstance(self.device, Cpu) else self._gpu(works, self.device)

    def time_us(self, work: Work) -> float:
        """Predicted time of one kernel."""
        return self.times([work])["total_us"]

    def _cpu(self, works: Sequence[Work], cpu: Cpu) -> dict[str, float]:
        times = [cpu_time(work, cpu) for work in works]
        return {name: sum(getattr(t, name) for t in times) for name in ("total_us", "node_us", "compute_us", "memory_us")}

    def _gpu(self, works: Sequence[Work], gpu: Gpu) -> dict[str, float]:
        times = [gpu_time(work, gpu, mode=self.mode, graph=self.graph) for work in _with_residents(works, gpu)]
        names = ("total_us", "launch_us", "memory_us", "alu_us", "sfu_us", "tensor_us")
        sums = {name: sum(getattr(t, name) for t in times) for name in names}
        if len(times) == 1:
            only = times[0]
            sums |= {
                "occupancy": only.occupancy.fraction,
                "blocks_per_sm": float(only.occupancy.blocks),
                "registers": float(only.registers),
                "tail": only.tail,
            }
        return sums

    def _limiter(self, works: Sequence[Work]) -> str:
        if not works:
            return "nothing"
        heaviest = max(works, key=self.time_us)
        if isinstance(self.device, Cpu):
            return cpu_time(heaviest, self.device).limiter
        return gpu_time(heaviest, self.device, mode=self.mode, graph=self.graph).limiter

    def _reorder_us(self, moved: int) -> float:
        """A layout change reads and writes every byte, in a kernel of its own."""
        if not moved:
            return 0.0
        if isinstance(self.device, Cpu):
            return self.device.node_us + 2 * moved / bandwidth(self.device, 2 * moved, 1)[1] / 1e3
        launch = 0.0 if self.mode == "basic" else self.device.launch_us
        return launch + 2 * moved / (self.device.memory_gbs * self.device.memory_efficiency * 1e3)


def _with_residents(works: Sequence[Work], gpu: Gpu) -> list[Work]:
    """The works, with what earlier ones just wrote and L2 still holds marked as such."""
    marked, written = [], 0
    for work in works:
        held = written if written < L2_KEEPS * gpu.l2_bytes else 0
        marked.append(replace(work, resident_bytes=max(work.resident_bytes, min(held, work.bytes_read))))
        written = work.bytes_written
    return marked


def _moved(works: Sequence[Work]) -> int:
    return sum(work.bytes for work in works)


def _show_bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
