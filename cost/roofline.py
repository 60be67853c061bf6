"""Time of one kernel call on a GPU.

`basic` is the textbook's roofline. `extended` is what decides: it adds what a real kernel meets (launch, wave tail,
allocation units, L2, coalescing, bytes in flight, exp throughput, spills) and does not derate matrix units by occupancy.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from onnxfuse.cost.device import Gpu
from onnxfuse.cost.occupancy import Occupancy, ceil_div, occupancy, textbook_occupancy
from onnxfuse.cost.registers import estimate_registers, live_words
from onnxfuse.cost.scalar import scalar
from onnxfuse.cost.types import byte_size
from onnxfuse.cost.work import VECTOR_BYTES, Compiled, Gemm, Work

Mode = Literal["basic", "extended"]

OVERLAP = 0.95  # how much of the shorter of memory and compute hides behind the longer
LATENCY_NS = 700.0  # a DRAM access
LOADS_IN_FLIGHT = 2  # per thread
TRANSACTION = 64  # bytes that memory moves at a time
SM_BYTES_PER_CLOCK = 32
L2_KEEPS = 0.8  # the part of L2 that one kernel can count on
TILE = (128, 128)  # of a matrix product's output, one block
GEMM_KERNEL = Compiled(registers=168, smem=65536, threads=256)  # a typical library kernel of that tile
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
    tail: float  # last, partly filled wave: time divided by what full waves would take
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
    return Compiled(estimate_registers(live_words(work.live, work.vector, 4))), True


def _basic(work: Work, gpu: Gpu) -> GpuTime:
    """T = max(FLOPs / (peak * f(occupancy)), bytes / bandwidth); nothing is added for the launch."""
    facts, estimated = kernel_facts(work)
    resident = textbook_occupancy(gpu, threads=facts.threads, registers=facts.registers, smem=facts.smem)
    factor = occupancy_factor(resident.fraction)
    tensor = work.gemm_flops / (gpu.peak(work.dtype) * 1e6 * factor)
    alu = (work.flops - work.gemm_flops) / (gpu.peak_tflops["fp32"] * 1e6 * factor)
    memory = (work.bytes + work.reread_bytes) / (gpu.memory_gbs * 1e3)
    return GpuTime(max(tensor + alu, memory), 0.0, memory, alu, 0.0, tensor, 1.0, resident, facts.registers, estimated)


def _extended(work: Work, gpu: Gpu, launch: float) -> GpuTime:
    facts, estimated = kernel_facts(work)
    resident = occupancy(gpu, threads=facts.threads, registers=facts.registers, smem=facts.smem, barriers=facts.barriers)
    if work.launches == 0:
        return GpuTime(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, resident, facts.registers, estimated)
    if resident.blocks == 0:
        problem = f"{work.name} cannot start: {resident.limiter} ({facts.registers} registers, {facts.smem} bytes of shared memory)"
        return GpuTime(inf, launch, inf, inf, inf, inf, 1.0, resident, facts.registers, estimated, problem)
    blocks = grid(work, facts.threads)
    active = min(blocks, gpu.sms)
    tail = wave_tail(blocks, gpu.sms * resident.blocks)
    slots, sfu = _instructions(work)
    alu_rate = active * gpu.fp32_lanes_per_sm * gpu.boost_ghz * 1e3 * (1.0 if work.gemm_flops else occupancy_factor(resident.fraction))
    alu = slots / alu_rate * tail
    special = sfu / (active * gpu.sfu_per_clock_sm * gpu.boost_ghz * 1e3) * tail
    tensor = work.gemm_flops / (gpu.peak(work.dtype) * 1e6 * gpu.tensor_efficiency * active / gpu.sms) * tail
    memory = _memory_us(work, gpu, blocks, resident.blocks, facts)
    busy = max(alu, special, tensor)
    total = launch + max(memory, busy) + (1 - OVERLAP) * min(memory, busy)
    return GpuTime(total, launch, memory, alu, special, tensor, tail, resident, facts.registers, estimated)


def grid(work: Work, threads: int) -> int:
    """Thread blocks of the launch."""
    if work.blocks:
        return work.blocks
    if work.gemm is not None:
        return max(1, work.gemm.batch * ceil_div(work.gemm.m, TILE[0]) * ceil_div(work.gemm.n, TILE[1]))
    return max(1, ceil_div(work.elements, threads * work.vector))


def wave_tail(blocks: int, resident: int) -> float:
    """How much longer the last, partly filled wave makes the kernel: ceil(waves) / waves."""
    return ceil_div(blocks, resident) * resident / blocks if blocks > resident else 1.0


def _instructions(work: Work) -> tuple[int, int]:
    """Issue slots and special-unit results of the scalar work."""
    if not work.parts:
        return work.flops - work.gemm_flops, work.special
    costs = [(scalar(op.split(":")[0]), elements) for op, elements in work.parts]
    return sum(cost.slots * elements for cost, elements in costs), sum(cost.sfu * elements for cost, elements in costs)


def reread_bytes(work: Work) -> int:
    """Bytes read again after the first time: a matrix product's operands once more for every further tile."""
    if work.gemm is None:
        return work.reread_bytes
    return work.reread_bytes + gemm_rereads(work.gemm, max(1, work.bytes_read // max(1, _operand_elements(work.gemm))))


def gemm_rereads(gemm: Gemm, element_bytes: int) -> int:
    """[m, k] is read for every tile column, [k, n] for every tile row; the first time is not counted."""
    left = gemm.m * gemm.k * (ceil_div(gemm.n, TILE[1]) - 1)
    right = gemm.k * gemm.n * (ceil_div(gemm.m, TILE[0]) - 1)
    return gemm.batch * max(0, left + right) * element_bytes


def _operand_elements(gemm: Gemm) -> int:
    return gemm.batch * gemm.k * (gemm.m + gemm.n)


def _memory_us(work: Work, gpu: Gpu, blocks: int, resident_blocks: int, facts: Compiled) -> float:
    """Bytes over what feeds them: DRAM the first time, L2 for what is read again or was just produced."""
    active = min(blocks, gpu.sms)
    load = min(VECTOR_BYTES, byte_size(work.vector, work.dtype))
    in_flight = min(resident_blocks, ceil_div(blocks, gpu.sms)) * facts.threads * load * LOADS_IN_FLIGHT
    dram = min(gpu.memory_gbs * gpu.memory_efficiency, active * gpu.boost_ghz * SM_BYTES_PER_CLOCK, active * in_flight / LATENCY_NS)
    again = reread_bytes(work)
    fits = work.bytes_read < L2_KEEPS * gpu.l2_bytes
    l2 = gpu.l2_gbs if fits else dram
    first = work.bytes_read - work.resident_bytes
    spills = facts.spill_bytes * blocks * facts.threads
    return (
        first / (dram * coalescing(work.run_bytes)) + work.bytes_written / dram + (work.resident_bytes + again) / l2 + spills / gpu.l2_gbs
    ) / 1e3


def coalescing(run_bytes: int) -> float:
    """The part of each memory transaction that is used when accesses are runs of so many bytes; 0 stands for whole rows."""
    return run_bytes / (TRANSACTION * ceil_div(run_bytes, TRANSACTION)) if run_bytes else 1.0
