"""`onnxfuse bench IN [OUT]`: how much faster one model is than another, both with all optimisations of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnxfuse.bench import Timing, bench
from onnxfuse.commands import screen
from onnxfuse.report.tables import table


def run(
    a: Path, b: Path | None, *, threads: int, runs: int | None, shapes: Mapping[str, int], inputs: Path | None, libraries: Sequence[Path]
) -> None:
    """Print the median time of each model, and the ratio when there are two."""
    with screen.progress() as (tick, _):
        tick("bench", 0, 1)
        found = bench(a, b, threads=threads, runs=runs, shapes=shapes, inputs=inputs, libraries=libraries)
    made = table("", "Model", "Median", "Middle half", right=("Median", "Middle half"))
    for path, timing in ((a, found.a), (b, found.b)):
        if timing is not None:
            made.add_row(str(path), f"{timing.median:.3f} ms", _span(timing))
    screen.out().print(made)
    if found.ratio is not None:
        screen.say(f"Ratio     {found.ratio:.2f} ({found.ratio_low:.2f} to {found.ratio_high:.2f}): above 1, {b} is faster than {a}")
    sizes = ", ".join(f"{name}={size}" for name, size in found.sizes.items()) or "as given"
    screen.say(f"Measured  {found.runs} runs each, in turns; threads {found.threads}; {', '.join(found.providers)}; sizes {sizes}")


def _span(timing: Timing) -> str:
    return f"{timing.low:.3f} to {timing.high:.3f} ms"
