"""How much faster is a model? Two models in turns, in one process, so that whatever else the machine does hits both."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from onnxfuse import runtime
from onnxfuse.errors import ModelError, VerificationError
from onnxfuse.inputs import Feed, Maker, load_feeds
from onnxfuse.inputs import sizes as size
from onnxfuse.inputs.sizes import Refusal, Sizes
from onnxfuse.inputs.values import Regime
from onnxfuse.profiling import Profile
from onnxfuse.profiling import profile as profiled
from onnxfuse.verify.isolated import Crash, run_isolated
from onnxfuse.verify.loaded import Loaded, Source, load
from onnxfuse.verify.runs import Runner

USUAL = {"batch": 1, "past": 128, "first": 128, "other": 64}  # sizes of a use that is worth timing
SECONDS = 4.0  # how long to measure if no number of runs is given
FEWEST, MOST = 5, 200  # runs of each model
MOST_PROFILED = 20  # runs with the profiler on


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one model: the median of the runs and the middle half of them."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class BenchResult:
    """`ratio` is the time of a over the time of b, the median over pairs of neighbouring runs: above 1, b is faster.

    ratio_low, ratio_high: the middle half of the pairs. b and the ratios are None if only one model was timed. profiles: of
    each model, where they were asked for. is_usual: whether sizes that were not given are usual ones; small ones if those do not run.
    """

    a: Timing
    b: Timing | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    runs: int
    threads: int
    sizes: Mapping[str, int]
    providers: tuple[str, ...]
    profiles: tuple[Profile, ...] = ()
    is_usual: bool = True


def bench(
    a: Source,
    b: Source | None = None,
    *,
    threads: int = 1,
    runs: int | None = None,
    shapes: Mapping[str, int] | None = None,
    inputs: str | Path | None = None,
    libraries: Sequence[str | Path] = (),
    providers: Sequence[str] | None = None,
    folder: Path | None = None,
    seed: int = 0,
    profile: bool = False,
) -> BenchResult:
    """Time model `a`, and `b` in turns with it, both with every optimisation of ONNX Runtime and b with our library.

    runs: of each model, after two to warm up; None: as many as fit in a few seconds. shapes: sizes by name; the others
    are usual ones (batch 1, 128 tokens) as far as the model takes them. folder: of the external data of protos. profile:
    also time each operator, in runs of their own.
    Raises RuntimeMissingError, ModelError, UsageError (no such size), VerificationError (no inputs that it takes).
    """
    models = [load(source, folder) for source in (a, b) if source is not None]
    used = tuple(providers) if providers is not None else tuple(runtime.default_providers())
    for model in models:
        _check_loads(model, libraries, used)
    first, *others = [model.runner(libraries, used, threads=threads) for model in models]
    second = others[0] if others else None
    feed, sizes, is_usual = _feed(models[0].proto, first, shapes or {}, inputs, seed)
    one, two = _times(first, second, feed, runs)
    profiles = tuple(profiled(m, feed, libraries, used, threads=threads, runs=min(len(one), MOST_PROFILED)) for m in models if profile)
    if second is None:
        return BenchResult(_timing(one), None, None, None, None, len(one), threads, sizes, used, profiles, is_usual)
    low, middle, high = _quartiles([x / y for x, y in zip(one, two, strict=True)])
    return BenchResult(_timing(one), _timing(two), middle, low, high, len(one), threads, sizes, used, profiles, is_usual)


def _check_loads(model: Loaded, libraries: Sequence[str | Path], providers: Sequence[str]) -> None:
    """Raise ModelError if ONNX Runtime's optimisations crash on a model: better in a process of its own than in ours."""
    with tempfile.TemporaryDirectory(prefix="onnxfuse-") as name:
        (result,) = run_isolated([model.job(libraries, providers, Path(name))], [])
    if isinstance(result, Crash):
        raise ModelError(f"{model.label}: cannot be timed: {result}. Try another version of ONNX Runtime")


def _feed(proto: onnx.ModelProto, run: Runner, shapes: Mapping[str, int], inputs: str | Path | None, seed: int) -> tuple[Feed, Sizes, bool]:
    if inputs is not None:
        return load_feeds(inputs, proto)[0], {}, True
    maker, regime = Maker(proto, shapes), Regime("nothing masked", masks="ones")

    def attempt(sizes: Sizes) -> Refusal | None:
        result = run(maker.feed(sizes, regime, seed))
        return result if isinstance(result, Refusal) else None

    refusal = Refusal(0, "")
    for start, is_usual in ((size.assign(maker.sketch, shapes, USUAL), True), (maker.assignments()[0], False)):
        settled = size.settle(start, maker.given, attempt)
        if not isinstance(settled, Refusal):
            return maker.feed(settled, regime, seed), settled, is_usual
        refusal = settled
    raise VerificationError(f"{runtime.label(proto)}: takes no input that we made up: {refusal.text}. Give some with --inputs FILE.npz")


def _times(first: Runner, second: Runner | None, feed: Feed, runs: int | None) -> tuple[list[float], list[float]]:
    """Milliseconds of each run of both; the one that starts a pair alternates."""
    once = sum(_time(r, feed) + _time(r, feed) for r in (first, second) if r is not None) / 2  # warm-up, and how long a pair takes
    count = runs if runs is not None else max(FEWEST, min(MOST, int(SECONDS * 1e3 / max(once, 1e-3))))
    one: list[float] = []
    two: list[float] = []
    for turn in range(count):
        order = [(first, one), (second, two)] if turn % 2 == 0 else [(second, two), (first, one)]
        for runner, times in order:
            if runner is not None:
                times.append(_time(runner, feed))
    return one, two


def _time(runner: Runner, feed: Feed) -> float:
    start = time.perf_counter()
    result: Any = runner(feed)
    taken = (time.perf_counter() - start) * 1e3
    if isinstance(result, Refusal):
        raise VerificationError(f"the model does not run on the inputs of the other: {result.text}. Compare the two first")
    return taken


def _timing(times: list[float]) -> Timing:
    low, middle, high = _quartiles(times)
    return Timing(middle, low, high)


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high
