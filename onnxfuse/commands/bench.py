"""`onnxfuse bench IN [OUT]`: how much faster one model is than another, both with all optimisations of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from onnxfuse.bench import BenchResult, Timing, bench
from onnxfuse.commands import screen
from onnxfuse.profiling import Profile
from onnxfuse.report.tables import table


def run(
    a: Path,
    b: Path | None,
    *,
    threads: int,
    runs: int | None,
    shapes: Mapping[str, int],
    inputs: Path | None,
    libraries: Sequence[Path],
    profile: bool,
) -> None:
    """Print the median time of each model, the ratio when there are two, and the time of each operator if `profile`."""
    with screen.progress() as (tick, _):
        tick("bench", 0, 1)
        found = bench(a, b, threads=threads, runs=runs, shapes=shapes, inputs=inputs, libraries=libraries, profile=profile)
    made = table("", "Model", "Median", "Middle half", right=("Median", "Middle half"))
    for path, timing in ((a, found.a), (b, found.b)):
        if timing is not None:
            made.add_row(str(path), f"{timing.median:.3f} ms", _span(timing))
    screen.out().print(made)
    if found.profiles:
        screen.out().print(profile_table(found.profiles, [str(path) for path in (a, b) if path is not None]))
    if found.ratio is not None:
        screen.say(f"Ratio     {found.ratio:.2f} ({found.ratio_low:.2f} to {found.ratio_high:.2f}): {verdict(found, a, b)}")
    sizes = ", ".join(f"{name}={size}" for name, size in found.sizes.items()) or "as given"
    if not found.is_usual:
        screen.say("Sizes     usual ones (batch 1, 128 tokens) beside those of --shape do not run here, so small ones were made up")
    screen.say(f"Measured  {found.runs} runs each, in turns; threads {found.threads}; {', '.join(found.providers)}; sizes {sizes}")


def profile_table(profiles: Sequence[Profile], names: Sequence[str]) -> Table:
    """A row per operator, those that take longest in any of the models first: milliseconds of a run, and nodes."""
    columns = [heading for name in names for heading in (name, "Nodes")]
    made = table("Time by operator, with the profiler on: it takes time of its own", "Operator", *columns, right=columns)
    by_op = [{o.op: o for o in profile.ops} for profile in profiles]
    for op in sorted({op for ops in by_op for op in ops}, key=lambda op: -max(ops[op].milliseconds for ops in by_op if op in ops)):
        cells = [cell for ops in by_op for cell in ((f"{ops[op].milliseconds:.3f} ms", str(ops[op].nodes)) if op in ops else ("", ""))]
        made.add_row(op, *cells)
    rest = [profile.milliseconds - sum(o.milliseconds for o in profile.ops) for profile in profiles]
    made.add_row("between them", *(cell for left in rest for cell in (f"{left:.3f} ms", "")))
    return made


def verdict(found: BenchResult, a: Path, b: Path | None) -> str:
    """What the ratio says, where the middle half of the pairs agrees on it."""
    if found.ratio_low is not None and found.ratio_low > 1:
        return f"{b} is faster than {a}"
    if found.ratio_high is not None and found.ratio_high < 1:
        return f"{b} is slower than {a}"
    return "no difference that these runs show"


def _span(timing: Timing) -> str:
    return f"{timing.low:.3f} to {timing.high:.3f} ms"
