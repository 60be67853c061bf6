"""Measures this CPU as ONNX Runtime uses it, our own kernels too, and writes what it finds as a device profile.

Each figure is the slope between a short and a long chain of one op, each the best of many short runs, so that the fixed
cost of a run falls out. All is measured in rounds, some seconds apart, until the figures stay as they are: load from
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
from statistics import median
from typing import Any

import numpy as np

from onnxfuse.cost.chains import Probe, Slope, Stopwatch, runtime_version
from onnxfuse.cost.detect import detect_cpu
from onnxfuse.cost.device import Cache, Cpu
from onnxfuse.cost.devices import CALIBRATED, generic_cpu, user_folder
from onnxfuse.cost.probes import (
    APPLIED,
    CONV,
    CONV_FLOPS,
    GEMM,
    GEMM_FLOPS,
    GEMM_ROWS,
    GEMMS,
    HEADWISE,
    HEADWISE_FLOPS,
    HEADWISE_STEPS,
    PROBES,
    TINY,
    TINY_OPERANDS,
    copy_probe,
)
from onnxfuse.cost.profile import to_toml
from onnxfuse.cost.scalar import PRODUCT_STEP
from onnxfuse.cost.work import Gemm

SECONDS = 18.0  # what a calibration takes, about, on a machine that is quiet
ROUNDS, MOST_ROUNDS = 12, 36  # the fewest, and the most where figures keep changing: each is short, so that all meet a quiet moment
LAST = 3  # rounds over which figures must stay as they are
CHANGED = 0.04  # a figure that they make better by more than this is not settled
RESTLESS = 0.1  # the part of the figures that may be unsettled
REPEATS = (3, 7)  # both of as many buffers, and short: a run is over before the scheduler takes the core away
TINY_REPEATS = (4, 36)
TINY_ELEMENTS = 64
FEWEST_NS = 1e-4  # an op that takes no time that can be measured
GEMM_PEAK = 0.95  # the part of a core's peak that the runtime's matrix product reaches, by which the clock is found
MEMORY_TENSOR = 8 * 2**20  # bytes of a tensor that is out of the caches, or twice the last cache if that is more
FILLED = 16  # a tensor is at least this part of the cache whose rate it tells, and fills the one before it


@dataclass(frozen=True)
class KernelProbe:
    """A kernel of ours to time. name: as in `cpu.kernel_name`.

    operands: read and written; elements: of the largest of them; flops, rows: of its products, if it is an attention. gemm: its
    product, if it is one. slots: of the vector units for one element, if what it computes is not told by its name.
    """

    name: str
    probe: Probe
    operands: int
    elements: int
    flops: int = 0
    rows: int = 0
    gemm: Gemm | None = None
    slots: float = 0.0

    @property
    def is_tiny(self) -> bool:
        """Whether a call of it takes longer than what it computes."""
        return self.elements <= TINY_ELEMENTS

    @property
    def is_by_element(self) -> bool:
        """Whether its time is told by its name and its elements."""
        return not (self.is_tiny or self.flops or self.gemm or self.slots)

    @property
    def label(self) -> str:
        """A name that no other probe has."""
        rows = f", {self.gemm.m} rows" if self.gemm else ""
        return f"{self.name}/{self.operands} of {self.elements}{rows}"


@dataclass(frozen=True)
class Kernels:
    """What to time of our own, and the library that has it."""

    library: Path
    probes: Sequence[KernelProbe]


def calibrate(folder: Path | None = None, *, seconds: float = SECONDS, kernels: Kernels | None = None) -> Cpu:
    """Measure this CPU and write its profile, which `auto` then means; returns what was written to `profile_path(folder)`.

    folder: where to write (default: the user's own). Raises RuntimeMissingError without ONNX Runtime.
    """
    target = profile_path(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    found = measure_cpu(seconds=seconds, kernels=kernels)
    handle, draft = tempfile.mkstemp(dir=target.parent, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(to_toml(found))
        Path(draft).replace(target)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    return found


def profile_path(folder: Path | None = None) -> Path:
    """The file that `calibrate` writes."""
    return (folder or user_folder()) / f"{CALIBRATED}.toml"


def measure_cpu(*, seconds: float = SECONDS, kernels: Kernels | None = None) -> Cpu:
    """This machine's CPU, with everything that can be measured, in about so many seconds where nothing disturbs.

    Where figures keep changing it takes up to three times as long, and what it found is of medium confidence.
    """
    bench = Bench(detect_cpu(generic_cpu()), kernels)
    seen = [bench.round(seconds / ROUNDS) for _ in range(ROUNDS)]
    while len(seen) < MOST_ROUNDS and unsettled(seen[-1 - LAST], seen[-1]) > RESTLESS:
        seen.append(bench.round(seconds / ROUNDS))
    restless = unsettled(seen[-1 - LAST], seen[-1])
    found = bench.cpu()
    if restless <= RESTLESS:
        return found
    note = f"this machine was busy: {restless:.0%} of the figures still changed after {len(seen)} rounds"
    return replace(found, confidence="medium", note=note)


def unsettled(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """The part of the times that became shorter by more than 4%."""
    return sum(after[name] < (1 - CHANGED) * before[name] for name in after) / len(after)


class Bench:
    """Everything that is timed on one machine. `found`: what is known without measuring."""

    def __init__(self, found: Cpu, kernels: Kernels | None = None) -> None:
        self._found = found
        self._kernels = tuple(kernels.probes) if kernels else ()
        library = kernels.library if kernels else None
        size = max(MEMORY_TENSOR, 2 * found.caches[-1].bytes)
        nearer = (0, *(cache.bytes for cache in found.caches))
        self._copied = {f"L{c.level}": max(c.bytes // FILLED, near) for c, near in zip(found.caches, nearer, strict=False)}
        self._slopes = {
            "node": Slope(TINY, TINY_REPEATS),
            "operands": Slope(TINY_OPERANDS, TINY_REPEATS),
            "gemm": Slope(GEMM, (1, 3)),
            "conv": Slope(CONV, (1, 3)),
            **{f"MatMul/{rows}": Slope(probe, (1, 3)) for rows, probe in GEMMS.items()},
            "headwise": Slope(HEADWISE, REPEATS),
            **{name: Slope(copy_probe(tensor // 4), REPEATS) for name, tensor in self._copied.items()},
            **{op: Slope(probe, REPEATS) for op, probe in PROBES.items()},
            **{k.label: Slope(k.probe, _repeats(k), library=library) for k in self._kernels},
        }
        self._copy_bytes = 2 * (size // 4 * 4)  # one run at a time: a longer one is never alone on a shared machine
        self._copies = {f"memory {n}": Stopwatch(copy_probe(size // 4), 1, threads=n) for n in {1, found.cores}}

    def round(self, seconds: float) -> dict[str, float]:
        """Run everything once more, for so long in all; the seconds of each, the best so far."""
        each = seconds / (len(self._slopes) + 3 * len(self._copies))
        for name, slope in self._slopes.items():
            slope.sample(each * (2 if name in ("gemm", "conv") else 1))
        for copy in self._copies.values():
            copy.sample(3 * each)
        return {**{name: slope.seconds for name, slope in self._slopes.items()}, **{name: c.best for name, c in self._copies.items()}}

    def cpu(self) -> Cpu:
        """The profile, as far as is known."""
        found, node_us = self._found, max(1e-3, self._us("node"))
        memory = self._copy_bytes / self._copies["memory 1"].best / 1e9
        gflops = GEMM_FLOPS / max(1e-3, self._us("gemm")) / 1e3
        return replace(
            found,
            key=CALIBRATED,
            confidence="high",
            sources=(f"measured by `onnxfuse calibrate` on {date.today().isoformat()} with ONNX Runtime {runtime_version()}",),
            clock_ghz=gflops / (GEMM_PEAK * 2 * found.lanes * found.fma_units),
            caches=self._caches(node_us),
            memory_gbs=memory,
            memory_gbs_all=max(memory, self._copy_bytes / self._copies[f"memory {found.cores}"].best / 1e9),
            gemm_gflops=gflops,
            gemm_rates=self._products(node_us),
            node_us=node_us,
            operand_us=max(1e-3, (self._us("operands") - node_us) / 2),
            rates={
                **{op: self._ns(op, node_us, APPLIED.get(op, prod(probe.shape))) for op, probe in PROBES.items()},
                PRODUCT_STEP: self._ns("headwise", node_us + HEADWISE_FLOPS / gflops / 1e3, HEADWISE_STEPS),
            },
            **self._own(gflops),
        )

    def _products(self, node_us: float) -> dict[str, float]:
        """GFLOP/s of products but the one that tells the peak: the runtime's, and ours where they are measured."""
        call = self._call() or (0.0, 0.0)
        theirs = {f"MatMul/{rows}": (2 * rows * n**2, self._us(f"MatMul/{rows}") - node_us) for rows, n in GEMM_ROWS.items()}
        own = [(k, k.gemm) for k in self._kernels if k.gemm]
        ours = {f"{k.name}/{gemm.m}": (gemm.flops, self._us(k.label) - call[0] - k.operands * call[1]) for k, gemm in own}
        times = {"Conv": (CONV_FLOPS, self._us("conv")), **theirs, **ours}
        return {name: flops / max(1e-3, us) / 1e3 for name, (flops, us) in times.items()}

    def _call(self) -> tuple[float, float] | None:
        """Microseconds of a call of ours, and of each of its operands; None where they are not measured."""
        tiny = sorted((k.operands, self._us(k.label)) for k in self._kernels if k.is_tiny and not k.flops and not k.slots)
        if len(tiny) < 2:
            return None
        (few, short), (many, long) = tiny[0], tiny[-1]
        operand = max(1e-3, (long - short) / (many - few))
        return max(1e-3, short - few * operand), operand

    def _own(self, gflops: float) -> dict[str, Any]:
        """What is measured of our own kernels: calls, elements, attention."""
        call = self._call()
        if call is None:
            return {}
        node, operand = call
        large = [k for k in self._kernels if k.is_by_element]
        rates = {f"{k.name}/{k.operands}": self._ns(k.label, node + operand * k.operands, k.elements) for k in large}
        generated = [k for k in self._kernels if k.slots and not k.is_tiny]
        reached = [k.slots / self._slots_per_ns(gflops) / self._ns(k.label, node + operand * k.operands, k.elements) for k in generated]
        own = {"fused_node_us": node, "fused_operand_us": operand, "kernel_rates": rates, **self._attention(node, operand, gflops)}
        return {**own, "generated_efficiency": median(reached)} if reached else own

    def _slots_per_ns(self, gflops: float) -> float:
        """What one core's vector units take, as the product's rate tells their clock."""
        return gflops / GEMM_PEAK / 2

    def _attention(self, node: float, operand: float, gflops: float) -> dict[str, float]:
        """What an attention takes beyond its call: at all, for each row of queries, and for its products; as three sizes tell."""
        known = [k for k in self._kernels if k.flops]
        if len(known) != 3:
            return {}
        times = [self._us(k.label) - node - operand * k.operands for k in known]
        terms = np.array([[1.0, k.rows, k.flops / gflops / 1e3] for k in known])
        laid_out, row, product = np.linalg.solve(terms, np.array(times))
        return {
            "attention_efficiency": 1 / max(float(product), 0.5),
            "attention_us": max(1e-3, float(laid_out)),
            "attention_row_us": max(1e-3, float(row)),
        }

    def _us(self, name: str) -> float:
        return self._slopes[name].seconds * 1e6

    def _ns(self, name: str, node_us: float, elements: int) -> float:
        """Nanoseconds an element takes, without the call."""
        return max(FEWEST_NS, (self._us(name) - node_us) * 1e3 / elements)

    def _caches(self, node_us: float) -> tuple[Cache, ...]:
        """Each with the copy rate of one thread between two tensors in it; a nearer one is no slower than the next."""
        rates = [2 * tensor / max(1e-3, self._us(name) - node_us) / 1e3 for name, tensor in self._copied.items()]
        return tuple(replace(cache, gbs=max(rates[i:])) for i, cache in enumerate(self._found.caches))


def _repeats(kernel: KernelProbe) -> tuple[int, int]:
    """A short and a long chain of it."""
    return TINY_REPEATS if kernel.is_tiny else (1, 3) if kernel.gemm else REPEATS
