"""Blocks per SM by NVIDIA's allocation rules, and the textbook's, which ignore allocation units."""

from __future__ import annotations

from dataclasses import dataclass

from onnxfuse.cost.device import Gpu

WARP = 32
PARTITIONS = 4  # an SM hands out registers by quarter
REGISTER_UNIT = 256  # registers a warp is given at a time
MAX_REGISTERS = 255  # per thread
MAX_THREADS = 1024  # per block
TWO_BARRIER_SETS = ("9.0", "10.0")
UNLIMITED = 1 << 30


@dataclass(frozen=True)
class Occupancy:
    """`blocks` resident on one SM (0: the kernel cannot start), the part of its warps they fill, and what set the limit."""

    blocks: int
    fraction: float
    limiter: str
    warps: int  # resident on one SM


def occupancy(gpu: Gpu, *, threads: int, registers: int, smem: int = 0, barriers: int = 1) -> Occupancy:
    """Occupancy of a kernel by NVIDIA's rules.

    threads: of a block. registers: of a thread. smem: bytes of a block, static and dynamic. barriers: named barriers used.
    """
    warps = ceil_div(threads, WARP)
    if not 1 <= threads <= MAX_THREADS:
        return Occupancy(0, 0.0, "threads", 0)
    limits = {
        "warps": gpu.warps_per_sm // warps,
        "blocks": gpu.blocks_per_sm,
        "registers": _by_registers(gpu, warps, registers),
        "smem": _by_smem(gpu, smem),
        "barriers": _by_barriers(gpu, barriers),
    }
    limiter = min(limits, key=lambda name: limits[name])
    blocks = limits[limiter]
    return Occupancy(blocks, blocks * warps / gpu.warps_per_sm, limiter, blocks * warps)


def textbook_occupancy(gpu: Gpu, *, threads: int, registers: int, smem: int = 0) -> Occupancy:
    """Occupancy as articles work it out: whole-SM registers, shared memory and threads, each divided by a block's use."""
    limits = {
        "threads": gpu.warps_per_sm * WARP // threads,
        "registers": gpu.registers_per_sm // (registers * threads) if registers else UNLIMITED,
        "smem": gpu.smem_per_sm // smem if smem else UNLIMITED,
    }
    limiter = min(limits, key=lambda name: limits[name])
    warps = limits[limiter] * ceil_div(threads, WARP)
    return Occupancy(limits[limiter], warps / gpu.warps_per_sm, limiter, warps)


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def round_up(value: int, unit: int) -> int:
    """The smallest multiple of `unit` that is at least `value`."""
    return ceil_div(value, unit) * unit


def _by_registers(gpu: Gpu, warps: int, registers: int) -> int:
    """Registers are given to whole warps, and a warp lives on one quarter of the SM."""
    per_warp = round_up(registers * WARP, REGISTER_UNIT)
    if per_warp == 0:
        return UNLIMITED
    if registers > MAX_REGISTERS or per_warp * round_up(warps, PARTITIONS) > gpu.registers_per_sm:
        return 0
    return gpu.registers_per_sm // PARTITIONS // per_warp * PARTITIONS // warps


def _by_smem(gpu: Gpu, smem: int) -> int:
    """What the driver reserves for each block counts too (1 KiB from compute capability 8 on)."""
    block = round_up(smem + gpu.smem_reserved, 128 if gpu.major >= 8 else 256)
    if block > gpu.smem_per_block + gpu.smem_reserved:
        return 0
    return gpu.smem_per_sm // block if block else UNLIMITED


def _by_barriers(gpu: Gpu, barriers: int) -> int:
    """Hardware barriers limit residency from compute capability 9 on."""
    if gpu.major < 9 or barriers < 1:
        return UNLIMITED
    return gpu.blocks_per_sm * (2 if gpu.compute_capability in TWO_BARRIER_SETS else 1) // barriers
