"""The model that decides: what a set of kernels costs before and after a fusion on one device, and whether it is worth it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from onnxfuse.cost.budgets import MAX_NODES, Checks, budget_failures
from onnxfuse.cost.compiled import Tables, compiled
from onnxfuse.cost.cpu import cpu_time, element_ns, memory_us
from onnxfuse.cost.device import Cpu, Device, Gpu
from onnxfuse.cost.devices import find
from onnxfuse.cost.roofline import L2_KEEPS, Mode, gpu_time, kernel_facts
from onnxfuse.cost.runtime import as_run
from onnxfuse.cost.work import Compiled, Gemm, Work, fuse, repeat
from onnxfuse.errors import UsageError

__all__ = ["Checks", "Compiled", "Gemm", "Model", "Price", "Work", "fuse", "repeat"]

MARGIN = 0.02  # a saving below this part of the unfused time is within the model's error
CPU_TERMS = ("total_us", "node_us", "compute_us", "memory_us")
GPU_TERMS = ("total_us", "launch_us", "memory_us", "alu_us", "sfu_us", "tensor_us")


@dataclass(frozen=True)
class Price:
    """A candidate's predicted times with every term that led to them; all times in microseconds.

    terms: `unfused.*` and `fused.*` are sums over the kernels, `basic.*` the textbook's estimate of the same.
    failures: which check or budget said no, and with which numbers. notes: what to doubt. refused: why it is not taken
    though it saves time.
    """

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
    refused: str = ""

    @property
    def saved_us(self) -> float:
        """Predicted saving of one run; negative when the fusion loses."""
        return self.unfused_us - self.fused_us

    @property
    def margin_us(self) -> float:
        """What must be saved for the saving to be more than the model's error."""
        return MARGIN * self.unfused_us

    @property
    def speedup(self) -> float:
        """How many times faster the fused form is."""
        return self.unfused_us / self.fused_us if self.fused_us else 1.0

    def refused_for(self, why: str) -> Price:
        """The price, not worth it for that reason."""
        return replace(self, worth=False, refused=why)

    def reason(self) -> str:
        """One line with the numbers: why the candidate is worth it, or why not."""
        if self.failures:
            return "; ".join(self.failures)
        if not all(self.checks.values()):
            return "; ".join(f"{check} does not hold" for check, holds in self.checks.items() if not holds)
        if self.refused:
            return f"not worth it: {self.refused}"
        times = f"{self.unfused_us:.2f} -> {self.fused_us:.2f} us (x{self.speedup:.2f})"
        changes = _changes(self.saved_bytes, self.saved_launches)
        return f"{'worth it' if self.worth else 'not worth it'}: {times}, {changes}limited by {self.limiter}"


class Model:
    """Prices candidates on one device.

    device: a name (`auto` for this machine) or a record. expected_runs: over how many runs compile time is spread.
    graph: kernels are launched from a CUDA graph. max_nodes: the most ONNX nodes in one fusion. threads: on a CPU, 0 for
    all cores. runtime_fuses: what we do not fuse still gets ONNX Runtime's own fusions. kernels: what the compiler said of ours.
    Raises UsageError for a device that is unknown and for numbers that mean nothing.
    """

    def __init__(
        self,
        device: Device | str = "auto",
        mode: Mode = "extended",
        expected_runs: float = inf,
        *,
        graph: bool = False,
        max_nodes: int = MAX_NODES,
        threads: int = 0,
        runtime_fuses: bool = True,
        kernels: Tables | None = None,
    ) -> None:
        if mode not in ("basic", "extended"):
            raise UsageError(f"cost model: mode must be 'basic' or 'extended'; got {mode!r}")
        if not expected_runs >= 1:
            raise UsageError(f"cost model: expected_runs must be at least 1; got {expected_runs}")
        if max_nodes < 1 or threads < 0:
            raise UsageError(f"cost model: max_nodes must be at least 1 and threads at least 0; got {max_nodes} and {threads}")
        self.device = find(device) if isinstance(device, str) else device
        self.mode: Mode = mode
        self.expected_runs = expected_runs
        self.graph = graph
        self.max_nodes = max_nodes
        self.threads = threads
        self.runtime_fuses = runtime_fuses
        self.kernels = kernels or {}

    def price(
        self,
        before: Sequence[Work],
        after: Sequence[Work],
        *,
        left: Sequence[Work] = (),
        fits: Checks | None = None,
        extra_reorder_bytes: int = 0,
        compile_ms: float = 0.0,
    ) -> Price:
        """What running `after` instead of `before` saves.

        left: those of `before` that stay, which the runtime might have made one kernel of with those that go.
        fits: what the caller knows of the four checks. extra_reorder_bytes: what layout changes around the fused
        kernel move once; they are priced, never a veto. compile_ms: spread over the expected runs.
        """
        written, before, left = before, self.as_run(before), self.as_run(left)
        known = fits or Checks()
        broken = budget_failures(after, self.device, max_nodes=self.max_nodes)
        checks = replace(known, onchip_fit=known.onchip_fit and not broken, failures=(*known.failures, *broken))
        kept = [*left, *after]
        unfused, fused = self.times(before), self.times(kept)
        added = {"reorder_us": self._reorder_us(extra_reorder_bytes), "compile_us": compile_ms * 1e3 / self.expected_runs}
        before_us, after_us = unfused["total_us"], fused["total_us"] + sum(added.values())
        return Price(
            unfused_us=before_us,
            fused_us=after_us,
            saved_bytes=sum(w.bytes for w in before) - sum(w.bytes for w in kept) - 2 * extra_reorder_bytes,
            saved_launches=sum(w.launches for w in before) - sum(w.launches for w in kept),
            limiter=self.limiter(after),
            terms=_prefixed("unfused", unfused) | _prefixed("fused", fused) | added | self._basic(before, kept),
            checks=checks.answers,
            failures=checks.failures,
            notes=(*self._notes(after), *_builtin_notes(written, before)),
            worth=checks.passed and before_us - after_us > MARGIN * before_us,
        )

    def before_and_after_us(self, before: Sequence[Work], after: Sequence[Work], *, left: Sequence[Work] = ()) -> tuple[float, float]:
        """The two times of `price` alone, for looking at many sizes."""
        sides = (self.as_run(before), [*self.as_run(left), *after])
        return self.times(sides[0])["total_us"], self.times(sides[1])["total_us"]

    def with_compiled(self, work: Work) -> Work:
        """The work, with what the compiler said of the kernel of ours that runs it on this GPU, where that is known."""
        known = compiled(work, self.kernels, self.device) if isinstance(self.device, Gpu) and work.fused else None
        return work if known is None else replace(work, compiled=known)

    def as_run(self, works: Sequence[Work]) -> list[Work]:
        """The kernels that run for nodes written as `works`."""
        return as_run(works) if self.runtime_fuses else list(works)

    def times(self, works: Sequence[Work], *, mode: Mode | None = None) -> dict[str, float]:
        """Sums of the terms of kernels that run one after the other, in microseconds; `total_us` is the time.

        A single GPU kernel also has its occupancy, blocks per SM, registers and wave tail.
        """
        if isinstance(self.device, Cpu):
            cpu = [cpu_time(work, self.device, mode=mode or self.mode, threads=self.threads) for work in works]
            return {name: sum(getattr(t, name) for t in cpu) for name in CPU_TERMS}
        gpu = [gpu_time(work, self.device, mode=mode or self.mode, graph=self.graph) for work in with_residents(works, self.device)]
        sums: dict[str, float] = {name: sum(getattr(t, name) for t in gpu) for name in GPU_TERMS}
        if len(gpu) == 1:
            only = gpu[0].occupancy
            sums |= {"occupancy": only.fraction, "blocks_per_sm": only.blocks, "registers": gpu[0].registers, "tail": gpu[0].tail}
        return sums

    def time_us(self, work: Work) -> float:
        """Predicted time of one kernel."""
        return self.times([work])["total_us"]

    def limiter(self, works: Sequence[Work]) -> str:
        """What the slowest of the kernels waits for."""
        if not works:
            return "nothing"
        heaviest = max(works, key=self.time_us)
        if isinstance(self.device, Cpu):
            return cpu_time(heaviest, self.device, mode=self.mode, threads=self.threads).limiter
        return gpu_time(heaviest, self.device, mode=self.mode, graph=self.graph).limiter

    def _basic(self, before: Sequence[Work], after: Sequence[Work]) -> dict[str, float]:
        times = (self.times(works, mode="basic")["total_us"] for works in (before, after))
        return dict(zip(("basic.unfused_us", "basic.fused_us"), times, strict=True))

    def _notes(self, after: Sequence[Work]) -> tuple[str, ...]:
        notes = []
        if self.device.confidence == "low":
            notes.append(f"the profile {self.device.key} is of low confidence: {self.device.note or self.device.sources[0]}")
        if isinstance(self.device, Gpu):
            guessed = [work.name for work in after if kernel_facts(work)[1]]
            arch = self.device.compute_capability.replace(".", "")
            notes += [f"registers of {name} are an estimate: no compiled kernel for sm_{arch} is given" for name in guessed]
        return tuple(notes)

    def _reorder_us(self, moved: int) -> float:
        """A layout change reads and writes every byte, in a kernel of its own."""
        if not moved:
            return 0.0
        if isinstance(self.device, Cpu):
            element = moved / 4 * element_ns("Transpose:last", self.device, fused=False) / 1e3
            return self.device.node_us + max(element, memory_us(self.device, 2 * moved, 1)[1])
        launch = 0.0 if self.mode == "basic" else self.device.graph_launch_us if self.graph else self.device.launch_us
        return launch + 2 * moved / (self.device.memory_gbs * self.device.memory_efficiency * 1e3)


def with_residents(works: Sequence[Work], gpu: Gpu) -> list[Work]:
    """The works, with what the one before just wrote and L2 still holds marked as such."""
    marked: list[Work] = []
    written = 0
    for work in works:
        held = min(written, work.bytes_read) if written < L2_KEEPS * gpu.l2_bytes else 0
        marked.append(replace(work, resident_bytes=held) if held > work.resident_bytes else work)
        written = work.bytes_written if work.launches else written
    return marked


def _builtin_notes(written: Sequence[Work], run: Sequence[Work]) -> list[str]:
    made = [work for work in run if work not in written]
    return [f"ONNX Runtime itself makes one {work.op} of {work.nodes} of the nodes" for work in made]


def _prefixed(prefix: str, terms: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}.{name}": value for name, value in terms.items()}


def _changes(saved_bytes: int, saved_launches: int) -> str:
    """What a fusion saves beside time, or takes more of: `saves 12.6 MB and 1 launch, ` or `moves 4 kB more, `."""
    saved = [_show_bytes(saved_bytes)] if saved_bytes > 0 else []
    saved += [_launches(saved_launches)] if saved_launches > 0 else []
    more = [f"moves {_show_bytes(-saved_bytes)} more"] if saved_bytes < 0 else []
    more += [f"takes {_launches(-saved_launches)} more"] if saved_launches < 0 else []
    return "".join(f"{text}, " for text in ([f"saves {' and '.join(saved)}"] if saved else []) + more)


def _launches(count: int) -> str:
    return f"{count} launch" if count == 1 else f"{count} launches"


def _show_bytes(count: int) -> str:
    """With three digits, in units of 1000: `12.6 MB`."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
