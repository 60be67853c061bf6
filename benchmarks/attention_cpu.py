"""Our Attention on the CPU against what ONNX Runtime has for it.

    python benchmarks/attention_cpu.py [--threads 1] [--seconds 2] [--shapes 0 3] [--cpu-time]

Four spellings of one attention: unfused MatMul, Softmax, MatMul with all of ONNX Runtime's optimisations;
com.microsoft.MultiHeadAttention (MHA); the standard op Attention of opset 23; ours. Each is given its operands in the layout it takes
without a copy. They run in turns in one process, so that what else the machine does falls on all alike. A row of the table shows
medians, the ratio of the fastest other to ours, what ours computes in GFLOP/s (what a diagonal hides is not counted), and the
share that is of a 1024 x 1024 matrix product in ONNX Runtime on as many threads. --cpu-time counts what the calling thread
computes instead of what a clock on the wall shows: the same on an idle machine, and nearer to it on a busy one.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from rich.console import Console
from rich.table import Table

from onnxfuse import runtime

LOWEST = -3.4e38
Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class Shape:
    """batch, heads, key heads, queries, keys, size of a head; masked: "" or "causal" or "mask" (one for all heads, added)."""

    b: int
    h: int
    k: int
    s: int
    t: int
    d: int
    masked: str = ""

    def __str__(self) -> str:
        heads = str(self.h) if self.h == self.k else f"{self.h}/{self.k}"
        return f"{self.b},{heads},{self.s},{self.t},{self.d} {self.masked}".strip()

    @property
    def flops(self) -> float:
        pairs = self.s * (self.s + 1) / 2 if self.masked == "causal" else self.s * self.t
        return 4.0 * self.b * self.h * pairs * self.d


SHAPES = [
    Shape(1, 12, 12, 128, 128, 64),
    Shape(1, 12, 12, 512, 512, 64),
    Shape(1, 16, 16, 2048, 2048, 64),
    Shape(1, 32, 32, 1, 1024, 128),
    Shape(8, 32, 8, 1, 2048, 128),
    Shape(1, 4, 4, 1024, 1024, 64, "mask"),
    Shape(2, 12, 12, 77, 77, 64, "causal"),
    Shape(1, 8, 8, 4096, 4096, 40),
]


def operands(shape: Shape) -> Feeds:
    """q, k, v as [batch, heads, seq, size], and the mask [batch, 1, S, T]: a padded batch, or all beyond the diagonal."""
    rng = np.random.default_rng(0)
    sizes = {"q": (shape.h, shape.s), "k": (shape.k, shape.t), "v": (shape.k, shape.t)}
    feeds = {name: rng.standard_normal((shape.b, *size, shape.d)).astype(np.float32) for name, size in sizes.items()}
    if shape.masked:
        keep = (
            np.tri(shape.s, shape.t) > 0
            if shape.masked == "causal"
            else np.arange(shape.t) < rng.integers(shape.t // 2, shape.t, (shape.s, 1))
        )
        feeds["mask"] = np.broadcast_to(np.where(keep, 0, LOWEST).astype(np.float32), (shape.b, 1, shape.s, shape.t)).copy()
    return feeds


def in_rows(x: np.ndarray) -> np.ndarray:
    """[batch, seq, heads * size]."""
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(x.shape[0], x.shape[2], -1)


def model(body: str, feeds: Feeds, opset: int = 17) -> onnx.ModelProto:
    """A model whose inputs are `feeds` and whose output is y."""
    inputs = ", ".join(f"float[{','.join(map(str, x.shape))}] {name}" for name, x in feeds.items())
    domains = f'["": {opset}, "com.microsoft": 1, "ai.onnxfuse": 1]'
    return onnx.parser.parse_model(f"<ir_version: 8, opset_import: {domains}> attention ({inputs}) => (float[] y) {{ {body} }}")


def unfused(shape: Shape, feeds: Feeds) -> tuple[onnx.ModelProto, Feeds]:
    """As exporters write it: keys and values of grouped heads repeated, the mask added."""
    body = "kr = Identity(k) vr = Identity(v)"
    if shape.h != shape.k:
        group, last = shape.h // shape.k, f"{shape.t}, {shape.d}"
        body = f"one = Constant <value = int64[1] {{2}}> () wide = Constant <value = int64[5] {{{shape.b}, {shape.k}, {group}, {last}}}> ()"
        body += f" four = Constant <value = int64[4] {{{shape.b}, {shape.h}, {last}}}> ()"
        for x in "kv":
            body += f" {x}5 = Unsqueeze({x}, one) {x}e = Expand({x}5, wide) {x}r = Reshape({x}e, four)"
    body += (
        f" kt = Transpose <perm = [0, 1, 3, 2]> (kr) s = MatMul(q, kt) c = Constant <value = float {{{shape.d**-0.5}}}> () sc = Mul(s, c)"
    )
    body += " sm = Add(sc, mask) p = Softmax <axis = -1> (sm)" if shape.masked else " p = Softmax <axis = -1> (sc)"
    return model(body + " y = MatMul(p, vr)", feeds), feeds


def contrib(shape: Shape, feeds: Feeds) -> tuple[onnx.ModelProto, Feeds] | None:
    """MultiHeadAttention; it has no grouped heads."""
    if shape.h != shape.k:
        return None
    rows = {name: in_rows(x) for name, x in feeds.items() if name != "mask"}
    causal = ", unidirectional = 1" if shape.masked == "causal" else ""
    if shape.masked == "mask":
        rows["mask"] = feeds["mask"]
    operands = "q, k, v, , , mask" if shape.masked == "mask" else "q, k, v"
    return model(f"y = com.microsoft.MultiHeadAttention <num_heads = {shape.h}{causal}> ({operands})", rows), rows


def standard(shape: Shape, feeds: Feeds) -> tuple[onnx.ModelProto, Feeds]:
    """Attention of opset 23."""
    given = {name: x for name, x in feeds.items() if name != "mask" or shape.masked == "mask"}
    causal = "<is_causal = 1>" if shape.masked == "causal" else ""
    return model(f"y = Attention {causal} ({', '.join(given)})", given, opset=23), given


def ours(shape: Shape, feeds: Feeds) -> tuple[onnx.ModelProto, Feeds]:
    """The op that a rule would make: a causal mask is an attribute."""
    given = {name: x for name, x in feeds.items() if name != "mask" or shape.masked == "mask"}
    causal = "<causal = 1>" if shape.masked == "causal" else ""
    return model(f"y = ai.onnxfuse.Attention {causal} ({', '.join(given)})", given), given


class Runner:
    """A session with its inputs bound, to be timed without the cost of feeding it."""

    def __init__(self, proto: onnx.ModelProto, feeds: Feeds, options: argparse.Namespace) -> None:
        self._session = runtime.session(proto, ["CPUExecutionProvider"], threads=options.threads)
        self._clock = time.thread_time if options.cpu_time else time.perf_counter
        self._binding = self._session.io_binding()
        for name, x in feeds.items():
            self._binding.bind_cpu_input(name, x)
        self._binding.bind_output("y", "cpu")
        self.times: list[float] = []

    def time(self) -> None:
        begin = self._clock()
        self._session.run_with_iobinding(self._binding)
        self.times.append(self._clock() - begin)

    def result(self) -> Any:
        self._session.run_with_iobinding(self._binding)
        return self._binding.copy_outputs_to_cpu()[0]

    @property
    def median(self) -> float:
        return statistics.median(self.times)


def in_turns(runners: list[Runner], seconds: float) -> None:
    """Time each once, again and again, for `seconds`; at least 5 times, and once before for nothing."""
    for runner in runners:
        runner.result()
    begin, rounds = time.perf_counter(), 0
    while rounds < 5 or time.perf_counter() - begin < seconds:
        for runner in runners:
            runner.time()
        rounds += 1


def check(got: Any, want: Any, shape: Shape) -> None:
    """The spellings must agree, whichever of the layouts they give."""
    if got.ndim == 3:
        got = got.reshape(shape.b, shape.s, shape.h, -1).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(got, want, atol=1e-4)


def row(shape: Shape, options: argparse.Namespace) -> list[str]:
    feeds = operands(shape)
    spellings: list[Callable[[Shape, Feeds], tuple[onnx.ModelProto, Feeds] | None]] = [unfused, contrib, standard, ours]
    made = [spelling(shape, feeds) for spelling in spellings]
    runners = [None if one is None else Runner(*one, options) for one in made]
    present = [runner for runner in runners if runner is not None]
    want = present[0].result()
    for runner in present[1:]:
        check(runner.result(), want, shape)
    side = np.ones((1024, 1024), np.float32)
    product = Runner(model("y = MatMul(a, b)", {"a": side, "b": side}), {"a": side, "b": side}, options)
    in_turns([*present, product], options.seconds)
    mine, best = present[-1].median, min(runner.median for runner in present[:-1])
    rate, peak = shape.flops / mine / 1e9, 2 * 1024**3 / product.median / 1e9
    cells = ["-" if runner is None else f"{runner.median * 1e3:.3f}" for runner in runners]
    return [str(shape), *cells, f"{best / mine:.2f}", f"{rate:.0f}", f"{rate / peak:.0%}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each shape")
    parser.add_argument("--shapes", type=int, nargs="*", default=range(len(SHAPES)), help="which of the shapes, by number")
    parser.add_argument("--cpu-time", action="store_true", help="of one thread; needs --threads 1")
    options = parser.parse_args()
    if options.cpu_time and options.threads != 1:
        parser.error("--cpu-time counts the calling thread alone: leave out --threads")
    table = Table(title=f"milliseconds on {options.threads} thread(s), ONNX Runtime {onnxruntime.__version__}")
    for heading in ("B,H,S,T,D", "unfused", "MHA", "Attention-23", "ours", "best other / ours", "GFLOP/s", "of MatMul"):
        table.add_column(heading, justify="left" if heading.startswith("B") else "right")
    for number in options.shapes:
        table.add_row(*row(SHAPES[number], options))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
