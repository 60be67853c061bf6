"""Measures this CPU as ONNX Runtime uses it, and writes what it finds as a device profile.

Each figure is the slope between a short and a long chain of one op, each the best of many short runs, so that the fixed
cost of a run falls out. All is measured in several rounds, some seconds apart, and the best of each is kept: load from
elsewhere on the machine comes and goes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from math import prod
from pathlib import Path

from onnxfuse.cost.chains import Probe, runtime_version, seconds, seconds_each
from onnxfuse.cost.detect import detect_cpu
from onnxfuse.cost.device import Cpu
from onnxfuse.cost.devices import CALIBRATED, generic_cpu, user_folder
from onnxfuse.cost.probes import APPLIED, CONV, CONV_FLOPS, GEMM, GEMM_FLOPS, PROBES, TINY, TINY_OPERANDS, copy_probe
from onnxfuse.cost.profile import to_toml

SECONDS = 12.0  # what a calibration takes, about
ROUNDS = 3
REPEATS = (3, 7)  # both of as many buffers, and short: a run is over before the scheduler takes the core away
FEWEST_NS = 1e-4  # an op that takes no time that can be measured
GEMM_PEAK = 0.95  # the part of a core's peak that the runtime's matrix product reaches, by which the clock is found
FUSED_NODE = 1.4  # a custom op's call, and each of its operands, over node_us: both go through the runtime's C interface
MEMORY_TENSOR = 8 * 2**20  # bytes of a tensor that is out of the caches, or twice the last cache if that is more


@dataclass(frozen=True)
class Figures:
    """What one round finds; times in the units of `Cpu`."""

    node_us: float
    operand_us: float
    gemm_gflops: float
    conv_gflops: float
    cache_gbs: tuple[float, ...]
    memory_gbs: float
    memory_gbs_all: float
    rates: Mapping[str, float]


def calibrate(folder: Path | None = None, *, seconds: float = SECONDS) -> Path:
    """Measure this CPU and write its profile, which `auto` then means; returns the file.

    folder: where to write (default: the user's own). Raises RuntimeMissingError without ONNX Runtime.
    """
    target = (folder or user_folder()) / f"{CALIBRATED}.toml"
    target.parent.mkdir(parents=True, exist_ok=True)
    text = to_toml(measure_cpu(seconds=seconds))
    handle, draft = tempfile.mkstemp(dir=target.parent, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(draft).replace(target)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    return target


def measure_cpu(*, seconds: float = SECONDS) -> Cpu:
    """This machine's CPU, with everything that can be measured in about so many seconds."""
    found = detect_cpu(generic_cpu())
    budget = seconds / ROUNDS / (len(PROBES) + 16)
    best = best_of([_round(found, budget) for _ in range(ROUNDS)])
    return replace(
        found,
        key=CALIBRATED,
        confidence="high",
        sources=(f"measured by `onnxfuse calibrate` on {date.today().isoformat()} with ONNX Runtime {runtime_version()}",),
        clock_ghz=best.gemm_gflops / (GEMM_PEAK * 2 * found.lanes * found.fma_units),
        caches=tuple(replace(cache, gbs=gbs) for cache, gbs in zip(found.caches, best.cache_gbs, strict=True)),
        memory_gbs=best.memory_gbs,
        memory_gbs_all=max(best.memory_gbs, best.memory_gbs_all),
        gemm_gflops=best.gemm_gflops,
        gemm_rates={"Conv": best.conv_gflops},
        node_us=best.node_us,
        operand_us=best.operand_us,
        fused_node_us=FUSED_NODE * best.node_us,
        fused_operand_us=FUSED_NODE * best.node_us,
        rates=best.rates,
    )


def best_of(rounds: Sequence[Figures]) -> Figures:
    """The shortest time and the highest rate of each kind."""
    return Figures(
        node_us=min(r.node_us for r in rounds),
        operand_us=min(r.operand_us for r in rounds),
        gemm_gflops=max(r.gemm_gflops for r in rounds),
        conv_gflops=max(r.conv_gflops for r in rounds),
        cache_gbs=tuple(map(max, zip(*(r.cache_gbs for r in rounds), strict=True))),
        memory_gbs=max(r.memory_gbs for r in rounds),
        memory_gbs_all=max(r.memory_gbs_all for r in rounds),
        rates={key: min(r.rates[key] for r in rounds) for key in rounds[0].rates},
    )


def op_ns(key: str, node_us: float, budget_s: float) -> float:
    """Nanoseconds an element of one op takes in the runtime's own kernel."""
    probe = PROBES[key]
    each = seconds_each(probe, budget_s=budget_s, repeats=REPEATS) * 1e9 - node_us * 1e3
    return max(FEWEST_NS, each / APPLIED.get(key, prod(probe.shape)))


def _round(found: Cpu, budget: float) -> Figures:
    node_us = max(1e-3, seconds_each(TINY, budget_s=budget, repeats=(4, 36)) * 1e6)
    four = seconds_each(TINY_OPERANDS, budget_s=budget, repeats=(4, 36)) * 1e6
    size = max(MEMORY_TENSOR, 2 * found.caches[-1].bytes)
    memory = _memory_gbs(size, 3 * budget)
    return Figures(
        node_us=node_us,
        operand_us=max(1e-3, (four - node_us) / 2),
        gemm_gflops=_gflops(GEMM, GEMM_FLOPS, 2 * budget),
        conv_gflops=_gflops(CONV, CONV_FLOPS, 2 * budget),
        cache_gbs=tuple(_cache_gbs(cache.bytes // 4, node_us, 2 * budget) for cache in found.caches),
        memory_gbs=memory,
        memory_gbs_all=_memory_gbs(size, 3 * budget, threads=found.cores) if found.cores > 1 else memory,
        rates={key: op_ns(key, node_us, budget) for key in PROBES},
    )


def _gflops(probe: Probe, flops: int, budget_s: float) -> float:
    """GFLOP/s of one thread."""
    return flops / max(1e-9, seconds_each(probe, budget_s=budget_s, repeats=(1, 3))) / 1e9


def _cache_gbs(tensor: int, node_us: float, budget_s: float) -> float:
    """The copy rate of one thread between two tensors of so many bytes."""
    each = seconds_each(copy_probe(tensor // 4), budget_s=budget_s, repeats=REPEATS) - node_us * 1e-6
    return 2 * tensor / max(1e-9, each) / 1e9


def _memory_gbs(tensor: int, budget_s: float, *, threads: int = 1) -> float:
    """The copy rate of memory, from one run at a time: a longer one is never alone on a shared machine."""
    return 2 * tensor / seconds(copy_probe(tensor // 4), 1, budget_s=budget_s, threads=threads) / 1e9
