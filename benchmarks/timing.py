"""What the benchmarks share: sessions timed in turns, this machine's peaks and facts, and a file of results.

Everything that is compared runs in turns in one process, so that what else the machine does falls on all alike; what
counts is the median, and for a ratio the median over the rounds of the ratio in each. On one thread the clock counts what
the process computes: on an idle machine the same as a clock on the wall, on a busy one nearer to it.

Memory comes in pages of 2 MB for all alike (`large_pages`): in pages of 4 KB the same model loaded twice differs by a third and
more, by where its weights come to lie.
"""

from __future__ import annotations

import ctypes
import datetime
import json
import math
import os
import platform
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime

from onnxfuse import runtime

Feeds = dict[str, np.ndarray]
SIDE = 1024  # of the matrices whose product is the peak of arithmetic
TUNABLES = "GLIBC_TUNABLES"  # glibc reads it when a process starts, others do not know it


def large_pages() -> None:
    """Start this script again such that glibc asks for pages of 2 MB, unless it was told what to do about pages already."""
    if platform.system() == "Linux" and "hugetlb" not in os.environ.get(TUNABLES, ""):
        told = [*filter(None, [os.environ.get(TUNABLES)]), "glibc.malloc.hugetlb=1"]
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, TUNABLES: ":".join(told)})


def parsed(
    body: str, feeds: Feeds, outputs: Sequence[str] = ("y",), weights: Mapping[str, np.ndarray] | None = None, opset: int = 17
) -> onnx.ModelProto:
    """A model of ONNX text whose inputs are `feeds`, with `weights` as initializers."""
    inputs = ", ".join(f"{_kind(x)}[{','.join(map(str, x.shape))}] {name}" for name, x in feeds.items())
    domains = f'["": {opset}, "com.microsoft": 1, "ai.onnxfuse": 1]'
    given = ", ".join(f"float[] {name}" for name in outputs)
    model = onnx.parser.parse_model(f"<ir_version: 10, opset_import: {domains}> bench ({inputs}) => ({given}) {{ {body} }}")
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(x, name) for name, x in (weights or {}).items())
    return model


def _kind(x: np.ndarray) -> str:
    return {"float32": "float", "float16": "float16", "int64": "int64", "int32": "int32", "bool": "bool"}[x.dtype.name]


def copies(model: onnx.ModelProto, count: int) -> onnx.ModelProto:
    """`count` times the nodes of `model` side by side: each with inputs and outputs of its own, weights shared."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    shared = {tensor.name for tensor in model.graph.initializer} | {""}
    for kind in ("node", "input", "output"):
        made.graph.ClearField(kind)
    for i in range(count):
        for kind in ("input", "output"):
            for value in getattr(model.graph, kind):
                own = getattr(made.graph, kind).add()
                own.CopyFrom(value)
                own.name = f"{value.name}_{i}"
        for node in model.graph.node:
            own = made.graph.node.add()
            own.CopyFrom(node)
            own.input[:] = [name if name in shared else f"{name}_{i}" for name in node.input]
            own.output[:] = [f"{name}_{i}" if name else "" for name in node.output]
    return made


class Timed:
    """Something that is run again and again. `times`: seconds of each run."""

    def __init__(self, run: Callable[[], object], threads: int) -> None:
        self.run = run
        self.times: list[float] = []
        self.given: list[Any] = []  # what must live as long
        self._clock = time.process_time if threads == 1 else time.perf_counter

    def time(self) -> None:
        begin = self._clock()
        self.run()
        self.times.append(self._clock() - begin)

    @property
    def median(self) -> float:
        return statistics.median(self.times)


class Session(Timed):
    """A model in ONNX Runtime with all its optimisations and its inputs bound: feeding it costs nothing."""

    def __init__(self, model: onnx.ModelProto | Path, feeds: Feeds, threads: int, *, register: bool = True) -> None:
        self.session = runtime.session(model, ["CPUExecutionProvider"], threads=threads, register=register)
        self.binding = self.session.io_binding()
        wanted = {i.name for i in self.session.get_inputs()}
        for name, x in feeds.items():
            if name in wanted:
                self.binding.bind_cpu_input(name, x)
        for output in self.session.get_outputs():
            self.binding.bind_output(output.name, "cpu")
        super().__init__(lambda: self.session.run_with_iobinding(self.binding), threads)

    def results(self) -> list[Any]:
        self.run()
        return list(self.binding.copy_outputs_to_cpu())

    def memory(self) -> np.ndarray:
        """The first output's own memory, as floats in one row: every run writes it."""
        self.run()
        return _floats(self.binding.get_outputs()[0])


def in_turns(things: Sequence[Timed], seconds: float, least: int = 5) -> None:
    """Time each once, again and again, for `seconds`; at least `least` times, and once before for nothing.

    In an order drawn anew for each round, but none twice in a row: what runs after itself finds its data in the caches.
    """
    order, chance = list(things), random.Random(0)
    for thing in order:
        thing.run()
    begin, rounds = time.perf_counter(), 0
    while rounds < least or time.perf_counter() - begin < seconds:
        last = order[-1]
        chance.shuffle(order)
        if order[0] is last:
            order.reverse()
        for thing in order:
            thing.time()
        rounds += 1


def ratio(slow: Timed, fast: Timed) -> float:
    """How many times faster `fast` is: the median over the rounds."""
    return statistics.median(a / b for a, b in zip(slow.times, fast.times, strict=True))


def product(threads: int) -> Timed:
    """The peak of arithmetic: a 1024 x 1024 matrix product of ONNX Runtime, 2 * 1024^3 operations."""
    side = np.ones((SIDE, SIDE), np.float32)
    feeds = {"a": side, "b": side}
    return Session(parsed("y = MatMul(a, b)", feeds), feeds, threads)


def copy(moved: int, threads: int) -> Timed:
    """The peak of traffic: memory copied so that `moved` bytes are read or written, each thread its share.

    From an array to memory that ONNX Runtime gives, as an operator writes its output.
    """
    count = max(1, moved // 2 // 4 // threads)
    given = [onnxruntime.OrtValue.ortvalue_from_shape_and_type([count], np.float32, "cpu") for _ in range(threads)]
    pairs = [(np.ones(count, np.float32), _floats(value)) for value in given]
    others = [_Worker(partial(np.copyto, to, source)) for source, to in pairs[1:]]

    def run() -> None:
        for other in others:
            other.start.release()
        np.copyto(pairs[0][1], pairs[0][0])
        for other in others:
            other.done.acquire()

    timed = Timed(run, threads)
    timed.given = given  # whose memory it is
    return timed


def _floats(value: onnxruntime.OrtValue) -> np.ndarray:
    """The memory of a tensor of floats, in one row; it must be held on to."""
    count = math.prod(value.shape())
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(value.data_ptr()))


@dataclass
class _Worker:
    """A thread that does `work` once for each release of `start`."""

    work: Callable[[], object]
    start: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    done: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __post_init__(self) -> None:
        threading.Thread(target=self._loop, daemon=True).start()

    def _loop(self) -> None:
        while True:
            self.start.acquire()
            self.work()
            self.done.release()


def machine() -> str:
    """Date, processor, caches and versions, on one line."""
    name = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), platform.processor())
    flags = next((line for line in _lines("/proc/cpuinfo") if line.startswith("flags")), "")
    isa = "AVX-512, AMX" if "amx_bf16" in flags else "AVX-512" if "avx512vl" in flags else "AVX2" if "avx2" in flags else "baseline"
    caches = [f"L{_cache(i, 'level')} {_cache(i, 'size')}" for i in range(4) if _cache(i, "type") in ("Data", "Unified")]
    parts = [
        name,
        f"{os.cpu_count()} cores",
        isa,
        *caches,
        f"ONNX Runtime {onnxruntime.__version__}",
        f"Python {platform.python_version()}",
    ]
    return f"{datetime.date.today().isoformat()}: {', '.join(parts)}"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).is_file() else []


def _cache(index: int, what: str) -> str:
    return "".join(_lines(f"/sys/devices/system/cpu/cpu0/cache/index{index}/{what}"))


class Results:
    """Rows of tables in a JSON file, so that a table may be measured in pieces: a row replaces one of the same key."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.rows: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path is not None and path.is_file() else {}

    def put(self, key: str, row: dict[str, Any]) -> None:
        self.rows[key] = {**row, "machine": machine()}
        if self._path is not None:
            self._path.write_text(json.dumps(self.rows, indent=1, sort_keys=True) + "\n")

    def machines(self) -> list[str]:
        return sorted({row["machine"] for row in self.rows.values()})


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table; the first `left` columns are text, the rest numbers."""
    widths = [max(len(row[i]) for row in (headings, *rows)) for i in range(len(headings))]
    line = [
        " | ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in (headings, *rows)
    ]
    rule = " | ".join("-" * w if i < left else "-" * (w - 1) + ":" for i, w in enumerate(widths))
    return "\n".join(f"| {text} |" for text in (line[0], rule, *line[1:]))
