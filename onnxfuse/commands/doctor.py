"""`onnxfuse doctor`: what is installed, what is missing, and the command that brings it."""

from __future__ import annotations

import sys

from rich.text import Text

from onnxfuse.commands import screen
from onnxfuse.doctor import State, examine
from onnxfuse.report.tables import table

COLOURS = {State.GOOD: "green", State.NOTE: "yellow", State.BROKEN: "red"}


def run() -> None:
    """Print a row per part; exit 1 if the main job cannot work."""
    findings = list(examine())
    made = table("", "Part", "State", "Found", "To do")
    for f in findings:
        made.add_row(f.part, Text(f.state.value, COLOURS[f.state]), f.found, f.remedy)
    screen.out().print(made)
    broken = [f.part for f in findings if f.state is State.BROKEN]
    screen.say(
        f"Not ready: {', '.join(broken)}. Run the commands above from the top" if broken else "Ready: models can be optimised and run"
    )
    if broken:
        sys.exit(1)
