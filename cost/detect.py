"""What can be read of this machine's CPU without measuring: cores, SIMD width, caches.

Linux says all of it under /proc and /sys; elsewhere the generic profile is used with this machine's core count.
"""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from pathlib import Path

from onnxfuse.cost.device import Cache, Cpu
from onnxfuse.cost.scalar import STEPS

SIMD = (("avx512f", 512), ("avx2", 256), ("avx", 256), ("sve", 256), ("asimd", 128), ("neon", 128), ("sse2", 128))

# How many times as fast products of ours are on a processor with AMX as on one with the same vectors only.
AMX = {"Linear/64": 1.15, "Linear/256": 1.5, "GatedLinear/64": 1.15, "GatedLinear/256": 1.5}

# What the runtime computes one by one, or calls once, at any vector width.
ONE_BY_ONE = ("Softplus", "Elu", "Selu", "Mish", "Sign", "Log", "Sin", "Cos", "Pow", "Pow:0.5", "CumSum", "SkipLayerNormalization",
              "AveragePool", "Transpose", *STEPS)  # fmt: skip


def detect_cpu(generic: Cpu, *, root: Path = Path("/")) -> Cpu:
    """`generic` with the cores, vector width and cache sizes of this machine; its rates are scaled to that width.

    `root` is where /proc and /sys are looked for.
    """
    flags = cpu_flags(root)
    cores = core_count(root)
    simd = next((bits for flag, bits in SIMD if flag in flags), 128 if root == Path("/") else generic.simd_bits)
    wider = simd / generic.simd_bits
    has_amx = flags >= {"avx512f", "amx_tile", "amx_bf16"}
    return replace(
        generic,
        key="detected-cpu",
        name=f"{cpu_name(root)}, {cores} cores, {simd}-bit SIMD",
        cores=cores,
        simd_bits=simd,
        amx=has_amx,
        caches=caches(root, cores, generic.caches) or generic.caches,
        gemm_gflops=generic.gemm_gflops * wider,
        gemm_rates={op: rate * wider * (AMX.get(op, 1.0) if has_amx else 1.0) for op, rate in generic.gemm_rates.items()},
        rates={op: ns if op in ONE_BY_ONE else ns / wider for op, ns in generic.rates.items()},
        kernel_rates={name: ns / wider for name, ns in generic.kernel_rates.items()},
        memory_gbs_all=min(generic.memory_gbs_all, generic.memory_gbs * cores),
        sources=("cores, SIMD and cache sizes detected; rates of the generic profile: run `onnxfuse calibrate`",),
    )


def core_count(root: Path = Path("/")) -> int:
    """Cores that this process may use: its affinity, and the quota of its cgroup."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read(root / "sys/fs/cgroup/cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        usable = min(usable, max(1, int(quota) // int(period)))
    return usable


def cpu_flags(root: Path = Path("/")) -> frozenset[str]:
    """Instruction-set flags that the kernel lists; empty where it lists none."""
    for line in _read(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() in ("flags", "features"):
            return frozenset(value.split())
    machine = platform.machine().lower()
    return frozenset({"asimd"} if machine in ("arm64", "aarch64") else ())


def cpu_name(root: Path = Path("/")) -> str:
    """What the CPU calls itself."""
    for line in _read(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() == "model name":
            return value.strip()
    return platform.processor() or platform.machine() or "CPU"


def caches(root: Path, cores: int, rates: tuple[Cache, ...]) -> tuple[Cache, ...]:
    """Data caches of core 0, smallest first, with the rates of `rates` by level.

    A virtual machine reports the whole last-level cache of its host, which it shares with others: what the
    visible cores can count on is capped at 4 MiB a core.
    """
    found = []
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, size = _read(index / "level"), _bytes(_read(index / "size"))
        gbs = next((c.gbs for c in rates if str(c.level) == level), None)
        if _read(index / "type") == "Instruction" or not size or gbs is None:
            continue
        sharing = _count(_read(index / "shared_cpu_list"))
        cap = 4 * 2**20 * cores if sharing >= cores > 1 or int(level) >= 3 else size
        found.append(Cache(int(level), min(size, cap), sharing, gbs))
    return tuple(sorted(found, key=lambda c: c.level))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _bytes(text: str) -> int:
    """48K -> 49152."""
    unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 1)
    digits = text.rstrip("KMG")
    return int(digits) * unit if digits.isdigit() else 0


def _count(cpus: str) -> int:
    """Cores in a list such as 0-3,8: 5."""
    ends = [part.split("-") for part in cpus.split(",") if part.strip()]
    return sum(int(e[-1]) - int(e[0]) + 1 for e in ends) or 1


def completed(measured: Cpu, generic: Cpu) -> Cpu:
    """A calibrated profile with rates of the products that it was made before: the generic one's, as far as its peak is from that one's."""
    known = {name.partition("/")[0] for name in measured.gemm_rates}
    faster = measured.gemm_gflops / generic.gemm_gflops
    missing = {name: rate * faster for name, rate in generic.gemm_rates.items() if name.partition("/")[0] not in known}
    return replace(measured, gemm_rates={**measured.gemm_rates, **missing}) if missing else measured
