"""Measures this CPU as ONNX Runtime uses it, and writes what it finds as a device profile.

Each figure is the slope between a short and a long chain of one op, each the best of many short runs, so that load from
elsewhere and the fixed cost of a run fall out.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from datetime import date
from math import prod
from pathlib import Path

from onnxfuse.cost.chains import Probe, runtime_version, seconds, seconds_each
from onnxfuse.cost.detect import detect_cpu
from onnxfuse.cost.device import Cache, Cpu
from onnxfuse.cost.devices import CALIBRATED, generic_cpu, user_folder
from onnxfuse.cost.probes import APPLIED, CONV, CONV_FLOPS, GEMM, GEMM_FLOPS, PROBES, TINY, copy_probe
from onnxfuse.cost.profile import to_toml

SECONDS = 12.0  # what a calibration takes, about
FEWEST_NS = 1e-4  # an op that takes no time that can be measured
GEMM_PEAK = 0.95  # the part of a core's peak that the runtime's matrix product reaches, by which the clock is found
FUSED_NODE = 3.3  # times node_us: a custom op is called through the runtime's C interface
MEMORY_TENSOR = 32 * 2**20  # bytes of a tensor that is out of the caches, and of a size that models have


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
    budget = seconds / (len(PROBES) + 16)
    found = detect_cpu(generic_cpu())
    node_us = seconds_each(TINY, budget_s=budget, repeats=(4, 36)) * 1e6
    gemm = gflops(GEMM, GEMM_FLOPS, 2 * budget)
    caches = tuple(replace(cache, gbs=_cache_gbs(cache, node_us, 2 * budget)) for cache in found.caches)
    memory = _memory_gbs(3 * budget)
    rates = {key: op_ns(key, node_us, budget) for key in PROBES}
    memory = max(memory, _memory_gbs(3 * budget))  # once more, some seconds later: load from elsewhere comes and goes
    everywhere = _memory_gbs(3 * budget, threads=found.cores) if found.cores > 1 else memory
    return replace(
        found,
        key=CALIBRATED,
        confidence="high",
        sources=(f"measured by `onnxfuse calibrate` on {date.today().isoformat()} with ONNX Runtime {runtime_version()}",),
        clock_ghz=gemm / (GEMM_PEAK * 2 * found.lanes * found.fma_units),
        caches=caches,
        memory_gbs=memory,
        memory_gbs_all=max(memory, everywhere),
        gemm_gflops=gemm,
        gemm_rates={"Conv": gflops(CONV, CONV_FLOPS, 2 * budget)},
        node_us=node_us,
        fused_node_us=FUSED_NODE * node_us,
        rates=rates,
    )


def op_ns(key: str, node_us: float, budget_s: float) -> float:
    """Nanoseconds an element of one op takes in the runtime's own kernel."""
    probe = PROBES[key]
    repeats = (2, 10) if probe.chained else (1, 5)
    each = seconds_each(probe, budget_s=budget_s, repeats=repeats) * 1e9 - node_us * 1e3
    return max(FEWEST_NS, each / APPLIED.get(key, prod(probe.shape)))


def gflops(probe: Probe, flops: int, budget_s: float) -> float:
    """GFLOP/s of one thread."""
    return flops / max(1e-9, seconds_each(probe, budget_s=budget_s, repeats=(1, 4))) / 1e9


def _cache_gbs(cache: Cache, node_us: float, budget_s: float) -> float:
    """The copy rate of a cache from one thread, with both tensors in half of it."""
    tensor = cache.bytes // 4
    each = seconds_each(copy_probe(tensor // 4), budget_s=budget_s) - node_us * 1e-6
    return 2 * tensor / max(1e-9, each) / 1e9


def _memory_gbs(budget_s: float, *, threads: int = 1) -> float:
    """The copy rate of memory. One short run at a time: on a shared machine the best of them had it for itself."""
    return 2 * MEMORY_TENSOR / seconds(copy_probe(MEMORY_TENSOR // 4), 1, budget_s=budget_s, threads=threads) / 1e9
