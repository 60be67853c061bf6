"""Time of one kernel call on a GPU.

`basic` is the textbook's roofline. `extended` is what decides: it adds what a real kernel meets (launch, wave tail,
allocation units, L2, coalescing, bytes in flight, exp throughput, spills) and does not derate matrix units by occupancy.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from onnxfuse.cost.device import Gpu
from onnxfuse.cost.gemm import GemmPlan, plan
from onnxfuse.cost.occupancy import Occupancy, ceil_div, occupancy, textbook_occupancy
from onnxfuse.cost.registers import estimate_registers, live_words
from onnxfuse.cost.scalar import STEPS, scalar
from onnxfuse.cost.types import byte_size
from onnxfuse.cost.work import VECTOR_BYTES, Compiled, Work

Mode = Literal["basic", "extended"]

OVERLAP = 0.95  # how much of the shorter of memory and compute hides behind the longer
LATENCY_NS = 700.0  # of an access to DRAM
LOADS_IN_FLIGHT = 2  # that a thread has outstanding
TRANSACTION = 64  # bytes that memory moves at a time
SM_BYTES_PER_CLOCK = 32  # that one SM can take from memory
L2_KEEPS = 0.8  # the part of L2 that one kernel can count on
GEMM_KERNEL = Compiled(registers=168, smem=65536, threads=256)  # a library's product with tiles of 128 x 128
ATTENTION_KERNEL = Compiled(registers=200, smem=65536, threads=256)


@dataclass(frozen=True)
class GpuTime:
    """Terms of one call, in microseconds. `problem` says why it cannot start; its time is then infinite."""

    total_us: float
    launch_us: float
    memory_us: float
    alu_us: float
    sfu_us: float
    tensor_us: float
    tail: float  # the last, partly filled wave: time divided by what full waves would take
    occupancy: Occupancy
    registers: int
    estimated: bool  # registers and shared memory are estimates
    problem: str = ""

    @property
    def limiter(self) -> str:
        """What takes the longest."""
        terms = {"launch": self.launch_us, "memory": self.memory_us, "alu": self.alu_us, "sfu": self.sfu_us, "tensor": self.tensor_us}
        return max(terms, key=lambda name: terms[name])


def gpu_time(work: Work, gpu: Gpu, *, mode: Mode = "extended", graph: bool = False) -> GpuTime:
    """Predicted time of `work` on `gpu`. `graph`: launched from a CUDA graph instead of a stream."""
    return _basic(work, gpu) if mode == "basic" else _extended(work, gpu, gpu.graph_launch_us if graph else gpu.launch_us)


def occupancy_factor(fraction: float) -> float:
    """The part of ALU peak that an occupancy reaches: f(o) = max(0.25, o)."""
    return max(0.25, fraction)


def kernel_facts(work: Work) -> tuple[Compiled, bool]:
    """What is known of the kernel, and whether that is an estimate."""
    if work.compiled is not None:
        return work.compiled, False
    if work.kind == "attention":
        return ATTENTION_KERNEL, True
    if work.gemm_flops:
        return GEMM_KERNEL, True
    return Compiled(estimate_registers(live_words(work.live, work.vector, work.dtype))), True


def wave_tail(blocks: int, resident: int) -> float:
    """How much longer the last, partly filled wave makes the kernel: ceil(waves) / waves, 1 for less than one wave."""
    return ceil_div(blocks, resident) * resident / blocks if blocks > resident else 1.0


def coalescing(run_bytes: int) -> float:
    """The part of each memory transaction that is used when accesses are runs of so many bytes; 0 stands for whole rows."""
    return run_bytes / (TRANSACTION * ceil_div(run_bytes, TRANSACTION)) if run_bytes else 1.0


def instructions(work: Work) -> tuple[int, int]:
    """Issue slots and special-unit results of the scalar work."""
    if not any(op not in STEPS for op, _ in work.parts):
        return work.flops - work.gemm_flops, work.special
    costs = [(scalar(op.partition(":")[0]), elements) for op, elements in work.parts if op not in STEPS]
    return sum(cost.slots * elements for cost, elements in costs), sum(cost.sfu * elements for cost, elements in costs)


def grid(work: Work, threads: int) -> int:
    """Thread blocks of the launch, where no matrix product lays them out."""
    return work.blocks or max(1, ceil_div(work.elements, threads * work.vector))


def _basic(work: Work, gpu: Gpu) -> GpuTime:
    """T = max(FLOPs / (peak * f(occupancy)), bytes / bandwidth); nothing is added for the launch."""
    facts, estimated = kernel_facts(work)
    resident = textbook_occupancy(gpu, threads=facts.threads, registers=facts.registers, smem=facts.smem)
    factor = occupancy_factor(resident.fraction)
    tensor = work.gemm_flops / (gpu.peak(work.dtype) * 1e6 * factor)
    alu = (work.flops - work.gemm_flops) / (gpu.peak_tflops["fp32"] * 1e6 * factor)
    memory = work.bytes / (gpu.memory_gbs * 1e3)
    return GpuTime(max(tensor + alu, memory), 0.0, memory, alu, 0.0, tensor, 1.0, resident, facts.registers, estimated)


def _extended(work: Work, gpu: Gpu, launch: float) -> GpuTime:
    facts, estimated = kernel_facts(work)
    resident = occupancy(gpu, threads=facts.threads, registers=facts.registers, smem=facts.smem, barriers=facts.barriers)
    if work.launches == 0:
        return GpuTime(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, resident, facts.registers, estimated)
    if resident.blocks == 0:
        problem = f"{work.name} cannot start: {resident.limiter} ({facts.registers} registers, {facts.smem} bytes of shared memory)"
        return GpuTime(inf, launch, inf, inf, inf, inf, 1.0, resident, facts.registers, estimated, problem)
    gemm = plan(work.gemm, gpu) if work.gemm else None
    blocks = gemm.blocks if gemm else grid(work, facts.threads)
    active = min(blocks, gpu.sms)
    tail = wave_tail(blocks, gpu.sms * resident.blocks)
    alu, special = _scalar_us(work, gpu, active, resident.fraction)
    tensor = _tensor_us(work, gpu, active, gemm)
    memory = _memory_us(work, gpu, blocks, resident.blocks, facts, gemm)
    busy = tail * max(alu, special, tensor)
    total = launch + max(memory, busy) + (1 - OVERLAP) * min(memory, busy)
    return GpuTime(total, launch, memory, tail * alu, tail * special, tail * tensor, tail, resident, facts.registers, estimated)


def _scalar_us(work: Work, gpu: Gpu, active: int, occupied: float) -> tuple[float, float]:
    """Time of the lanes and of the special units. A product's kernel hides latency with stages, not with warps."""
    slots, sfu = instructions(work)
    reached = 1.0 if work.gemm_flops else occupancy_factor(occupied)
    clocks = active * gpu.boost_ghz * 1e3
    return slots / (clocks * gpu.fp32_lanes_per_sm * reached), sfu / (clocks * gpu.sfu_per_clock_sm)


def _tensor_us(work: Work, gpu: Gpu, active: int, gemm: GemmPlan | None) -> float:
    flops = gemm.padded_flops if gemm else work.gemm_flops
    rate = gpu.peak(work.dtype) * 1e6 * gpu.tensor_efficiency * active / gpu.sms
    return flops / (rate * (gemm.rate if gemm else 1.0))


def _memory_us(work: Work, gpu: Gpu, blocks: int, resident_blocks: int, facts: Compiled, gemm: GemmPlan | None) -> float:
    """Bytes over what feeds them: DRAM the first time, L2 for what is read again or was just produced."""
    dram = dram_gbs(work, gpu, blocks, resident_blocks, facts.threads)
    again = work.reread_bytes + (byte_size(gemm.reread_elements, work.dtype) if gemm else 0)
    l2 = gpu.l2_gbs if hot_bytes(work, gpu, resident_blocks, gemm) < L2_KEEPS * gpu.l2_bytes else dram
    first = (work.bytes_read - work.resident_bytes) / coalescing(work.run_bytes)
    spills = facts.spill_bytes * blocks * facts.threads
    return ((first + work.bytes_written) / dram + work.resident_bytes / gpu.l2_gbs + again / l2 + spills / gpu.l2_gbs) / 1e3


def dram_gbs(work: Work, gpu: Gpu, blocks: int, resident_blocks: int, threads: int) -> float:
    """What memory gives: its own rate, what the active SMs can take, and what is in flight over its latency (Little's law)."""
    active = min(blocks, gpu.sms)
    load = min(VECTOR_BYTES, byte_size(work.vector, work.dtype))
    in_flight = min(resident_blocks, ceil_div(blocks, gpu.sms)) * threads * load * LOADS_IN_FLIGHT
    return min(gpu.memory_gbs * gpu.memory_efficiency, active * gpu.boost_ghz * SM_BYTES_PER_CLOCK, active * in_flight / LATENCY_NS)


def hot_bytes(work: Work, gpu: Gpu, resident_blocks: int, gemm: GemmPlan | None) -> int:
    """What a cache must hold so that reading again meets it: what the blocks that run at one time share."""
    if gemm:
        return byte_size(gemm.hot_elements, work.dtype)
    if work.sharers:
        groups = ceil_div(gpu.sms * resident_blocks, work.sharers) + 1
        return min(work.bytes_read, groups * work.shared_bytes)
    return work.bytes_read
