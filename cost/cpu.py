"""Time of one kernel call on a CPU: node overhead, and the longer of computing and moving.

The rates of single ops are measured in the runtime's own kernels, since no single peak fits them: its matrix product
runs near peak, its pointwise ops at the copy rate of the cache level, and a few ops one scalar at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log

from onnxfuse.cost.device import Cpu
from onnxfuse.cost.roofline import Mode
from onnxfuse.cost.scalar import SCALARS, scalar
from onnxfuse.cost.work import Work

THREAD_BYTES = 65536  # with less than this for each, more threads do not pay
THREAD_FLOPS = 200_000
RATED_BYTES = 2**18  # that an op moves when its rate is measured, out of the level that holds them
EXPOSED = 1.5  # what scalar work in the runtime's kernels, which go over a tensor in passes, waits for what slower memory takes beyond that
EXPOSED_FUSED = 1.0  # and in ours
FEW_ROWS, NARROW = 64, 96  # rows up to which, and columns below which, our products do without the AMX unit
LAID_OUT = 4 + 3 * 6  # bytes that travel for a number whose parts are laid out for it: read, then written twice over and read
RATED_COLUMNS = 1024  # of the products whose rates tell what the unit does
CROWDED = 0.25  # a cache that is this full begins to miss; filled by this much too often it misses always
UNKNOWN_NS = 1.0  # an element of an op that is in no table: its kernel is not vectorised
HALF_TYPES = ("float16", "bfloat16")
PLAIN = {"Pow:2": "Mul", "Pow:3": "Mul", "Pow:0.5": "Sqrt", "Pow:-0.5": "Sqrt", "Pow:1": "Identity"}  # what a fused kernel makes of them


@dataclass(frozen=True)
class CpuTime:
    """Terms of one call, in microseconds; `level` names what feeds it ("L2", "DRAM")."""

    total_us: float
    node_us: float
    compute_us: float
    memory_us: float
    threads: int
    level: str

    @property
    def limiter(self) -> str:
        """What takes the longest."""
        if self.node_us > max(self.compute_us, self.memory_us):
            return "node overhead"
        return "compute" if self.compute_us >= self.memory_us else f"memory ({self.level})"


def cpu_time(work: Work, cpu: Cpu, *, mode: Mode = "extended", threads: int = 0) -> CpuTime:
    """Predicted time of `work` with all its terms. threads: 0 stands for all cores."""
    most = min(threads, cpu.cores) if threads else cpu.cores
    if mode == "basic":
        return _basic(work, cpu, most)
    moved = moved_bytes(work)
    used = max(1, min(most, max(moved // THREAD_BYTES, work.flops // THREAD_FLOPS)))
    node = node_us(work, cpu)
    compute = _compute_us(work, cpu) / used
    level, memory = memory_us(cpu, moved, used)
    beyond = 0.0 if work.gemm_flops else max(0.0, memory - moved * memory_us(cpu, RATED_BYTES, 1)[1] / RATED_BYTES / used)
    return CpuTime(node + max(compute + (EXPOSED_FUSED if work.fused else EXPOSED) * beyond, memory), node, compute, memory, used, level)


def node_us(work: Work, cpu: Cpu) -> float:
    """What the runtime spends on a call besides its kernel: a custom op asks for each operand through the C interface."""
    if work.fused:
        set_up = cpu.attention_us if work.kind == "attention" else 0.0
        return cpu.fused_node_us + cpu.fused_operand_us * work.operands + set_up
    return cpu.node_us + cpu.operand_us * max(0, work.operands - 2)


def moved_bytes(work: Work) -> int:
    """Bytes read and written. The runtime has no kernels for 16-bit floats: it computes in float32, at twice the size."""
    return work.bytes * (2 if work.dtype in HALF_TYPES and not work.fused else 1)


def memory_us(cpu: Cpu, moved: int, threads: int) -> tuple[str, float]:
    """(the level that most bytes come from, microseconds to move so many with so many threads).

    What does not hit in one level comes from the next. A level hits always while the bytes fill no more than a quarter of
    it, since others use it too, and never where they are a quarter more than it holds; in between, in proportion.
    """
    shares: list[tuple[float, str, float]] = []
    reached = 0.0
    for level, hits, gbs in _levels(cpu, moved, threads):
        shares.append((max(0.0, hits - reached), level, gbs))
        reached = max(reached, hits)
    return max(shares)[1], sum(share * moved / gbs for share, _, gbs in shares) / 1e3


def _levels(cpu: Cpu, moved: int, threads: int) -> Iterator[tuple[str, float, float]]:
    """Each level, the part of `moved` bytes that is found no further away than there, and its GB/s with so many threads."""
    for cache in cpu.caches:
        instances = max(1, threads // max(1, min(cache.shared_by, cpu.cores)))
        yield f"L{cache.level}", min(1.0, max(0.0, 1 + CROWDED - moved / (cache.bytes * instances))), cache.gbs * threads
    yield "DRAM", 1.0, cpu.memory_gbs if threads == 1 else min(cpu.memory_gbs_all, cpu.memory_gbs * threads)


def kernel_ns(work: Work, cpu: Cpu) -> float | None:
    """Nanoseconds an element in our kernel of that name, as measured with that number of operands or the closest one; None if not.

    A kernel that computes an exp or its like only at times is another one when it does.
    """
    for name in (kernel_name(work.name, work.special), work.name):
        known = {int(key.rpartition("/")[2]): ns for key, ns in cpu.kernel_rates.items() if key.rpartition("/")[0] == name}
        if known:
            return known[min(known, key=lambda count: (abs(count - work.operands), count))]
    return None


def product_gflops(work: Work, cpu: Cpu) -> float:
    """What one thread reaches in the product that `work` has: as measured with so many rows on its left side, or between two that were.

    Ours goes by its own name. The runtime's Gemm and its like are measured as MatMul.
    """
    name = work.name if work.fused else work.op
    if name in cpu.gemm_rates:
        return cpu.gemm_rates[name]
    known = _rates_by_rows(name, cpu) or ([] if work.fused else _rates_by_rows("MatMul", cpu))
    if not known or work.gemm is None or work.gemm.batch > 1:
        return cpu.gemm_gflops
    most = FEW_ROWS if cpu.amx and work.fused and work.gemm.n < NARROW else known[-1][0]
    rows = min(max(work.gemm.m, known[0][0]), most)
    for (few, low), (many, high) in pairwise(known):
        if rows <= many:
            part = log(rows / few) / log(many / few)
            return exp((1 - part) * log(low) + part * log(high))
    return known[0][1]


def _laid_out_us(work: Work, cpu: Cpu) -> float:
    """What a product of ours on the AMX unit takes for its left side beyond what its rate has in it: more with few columns."""
    gemm = work.gemm
    if not (cpu.amx and work.fused and gemm) or gemm.batch > 1 or gemm.m <= FEW_ROWS or gemm.n < NARROW:
        return 0.0
    return memory_us(cpu, LAID_OUT * gemm.m * gemm.k, 1)[1] * (1 - gemm.n / RATED_COLUMNS)


def _rates_by_rows(name: str, cpu: Cpu) -> list[tuple[int, float]]:
    """(rows, GFLOP/s), fewest rows first."""
    parts = ((*key.partition("/"), rate) for key, rate in cpu.gemm_rates.items())
    return sorted((int(rows), rate) for op, _, rows, rate in parts if op == name and rows)


def kernel_name(name: str, special: int) -> str:
    """What a kernel is called in `Cpu.kernel_rates`, before its number of operands."""
    return f"{name}:special" if special else name


def element_ns(op: str, cpu: Cpu, *, fused: bool) -> float:
    """Nanoseconds one thread takes for one element of `op`: measured, or else from instruction counts.

    In a fused kernel every op is vectorised; the runtime's own kernel of the op may not be.
    """
    if fused:
        plain = PLAIN.get(op, op)
        return cpu.fused_rates.get(plain, scalar(plain).vector_slots / (cpu.slots_per_ns * cpu.generated_efficiency))
    base = op.partition(":")[0]
    known = cpu.rates.get(op, cpu.rates.get(base))
    if known is not None:
        return known
    return scalar(base).vector_slots / cpu.slots_per_ns if base in SCALARS else UNKNOWN_NS


def _basic(work: Work, cpu: Cpu, threads: int) -> CpuTime:
    """The textbook's roofline: FLOPs over peak, bytes over memory bandwidth, nothing for the node."""
    compute = work.flops / (cpu.gflops * threads * 1e3)
    gbs = cpu.memory_gbs if threads == 1 else cpu.memory_gbs_all
    memory = work.bytes / (gbs * 1e3)
    return CpuTime(max(compute, memory), 0.0, compute, memory, threads, "DRAM")


def _compute_us(work: Work, cpu: Cpu) -> float:
    """One thread's time for products and scalar work; the rate of fused attention has its softmax in it."""
    if work.kind == "attention" and work.fused:
        return work.gemm_flops / (cpu.gemm_gflops * cpu.attention_efficiency) / 1e3 + work.rows * cpu.attention_row_us
    measured = kernel_ns(work, cpu) if work.fused and not work.gemm_flops else None
    if measured is not None:
        return work.elements * measured / 1e3
    products = work.gemm_flops / product_gflops(work, cpu) + 1e3 * _laid_out_us(work, cpu)
    return (products + sum(elements * element_ns(op, cpu, fused=work.fused) for op, elements in work.parts)) / 1e3
