"""Time of one kernel call on a CPU: node overhead, and the longer of computing and moving.

The rates of single ops are measured in the runtime's own kernels, since no single peak fits them: its matrix product runs
near peak, its pointwise ops at the copy rate of the cache level, and a few ops one scalar at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnxfuse.cost.device import Cpu
from onnxfuse.cost.scalar import scalar
from onnxfuse.cost.work import Work

THREAD_BYTES = 65536  # less than this a core, and more threads do not pay
THREAD_FLOPS = 200_000


@dataclass(frozen=True)
class CpuTime:
    """Terms of one call, in microseconds; `level` names what feeds it ("L2", "memory")."""

    total_us: float
    node_us: float
    compute_us: float
    memory_us: float
    threads: int
    level: str

    @property
    def limiter(self) -> str:
        """What takes the longest."""
        busy = "compute" if self.compute_us >= self.memory_us else f"memory ({self.level})"
        return "node overhead" if self.node_us > max(self.compute_us, self.memory_us) else busy


def cpu_time(work: Work, cpu: Cpu) -> CpuTime:
    """Predicted time of `work` on `cpu`, with all its terms."""
    threads = max(1, min(cpu.cores, max(work.bytes // THREAD_BYTES, work.flops // THREAD_FLOPS)))
    compute = (_gemm_us(work, cpu) + _scalar_us(work, cpu)) / threads
    level, gbs = bandwidth(cpu, work.bytes, threads)
    memory = work.bytes / gbs / 1e3
    return CpuTime(cpu.node_overhead_us + max(compute, memory), cpu.node_overhead_us, compute, memory, threads, level)


def bandwidth(cpu: Cpu, working_set: int, threads: int) -> tuple[str, float]:
    """The level that `working_set` bytes fit in, and its read + write GB/s with so many threads."""
    for cache in cpu.caches:
        instances = max(1, min(threads, cpu.cores // max(1, min(cache.shared_by, cpu.cores))))
        if working_set <= cache.bytes * instances:
            return f"L{cache.level}", cache.gbs * threads
    return "memory", min(cpu.memory_gbs_all, cpu.memory_gbs * threads)


def _gemm_us(work: Work, cpu: Cpu) -> float:
    rate = cpu.gflops * cpu.gemm_efficiency * (cpu.attention_efficiency if work.kind == "attention" else 1.0)
    return work.gemm_flops / rate / 1e3


def _scalar_us(work: Work, cpu: Cpu) -> float:
    return sum(elements * element_ns(op, cpu, fused=work.fused) for op, elements in work.parts) / 1e3


def element_ns(op: str, cpu: Cpu, *, fused: bool) -> float:
    """Nanoseconds one thread takes for one element of `op`: measured, or else from instruction counts.

    In a fused kernel every op is vectorised; the runtime's own kernel of the op may not be.
    """
    measured = (cpu.fused_rates if fused else cpu.rates).get(op)
    if measured is not None:
        return measured
    base = op.split(":")[0]
    slots = scalar({"Pow:2": "Mul", "Pow:3": "Mul", "Pow:0.5": "Sqrt"}.get(op, base)).vector_slots
    return slots / (cpu.lanes * cpu.fma_units * cpu.clock_ghz)
