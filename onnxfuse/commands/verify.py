"""`onnxfuse verify A B`: do two models give the same numbers?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnxfuse.commands import screen
from onnxfuse.errors import VerificationError
from onnxfuse.report.tables import table
from onnxfuse.verify import verify


def run(a: Path, b: Path, *, shapes: Mapping[str, int], inputs: Path | None, libraries: Sequence[Path]) -> None:
    """Print the largest error of each output. Raises VerificationError when they differ, or could not be compared."""
    with screen.progress() as (tick, _):
        tick("verify", 0, 1)
        found = verify(a, b, inputs=inputs, shapes=shapes, libraries=libraries)
    if found.errors:
        made = table("", "Output", "Largest error", right=("Largest error",))
        for name, error in found.errors.items():
            made.add_row(name, f"{error:.3g}")
        screen.out().print(made)
    for feed in found.feeds:
        screen.say(f"Inputs    {feed}")
    for difference in found.differences:
        screen.say(f"DIFFERENT {difference}")
    if not found.ok:
        raise VerificationError(f"{b}: {found.summary()}")
    screen.say(f"Verified  {found.summary()}")
