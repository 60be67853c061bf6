"""`onnxfuse optimize`: fuse, verify, write, and say what happened and why."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxfuse import api
from onnxfuse.candidate import Origin
from onnxfuse.commands import screen
from onnxfuse.commands.options import check_report, write_report
from onnxfuse.cost.devices import CALIBRATED, find
from onnxfuse.report import Report
from onnxfuse.report.tables import fused_table, reasons_table, totals
from onnxfuse.report.text import show_bytes


@dataclass(frozen=True)
class Selection:
    """What to fuse: the options of `api.optimize` and `api.explain` of the same names."""

    device: str
    level: str
    target: str
    shapes: dict[str, int]
    rules: Sequence[Path]
    only: Sequence[str]
    disable: Sequence[str]
    max_fusion_size: int
    range_loss: float


def run(
    source: Path,
    target: Path,
    selection: Selection,
    *,
    verify: bool,
    inputs: Path | None,
    libraries: Sequence[Path],
    opset: int | None,
    clean: bool,
    report: Path | None,
    verbose: bool,
) -> None:
    """Optimise `source` into `target` and print the tables; the report goes to a file too if one is given."""
    check_report(report, source, target, inputs, *selection.rules)
    with screen.progress() as (tick, log):
        result = api.optimize(
            source,
            target,
            **vars(selection),
            verify=verify,
            inputs=inputs,
            libraries=libraries,
            opset=opset,
            clean=clean,
            progress=tick,
            log=log if verbose else None,
        )
    if report is not None:
        write_report(result.report, report, output=str(target))
    _print(result.report, selection, target, verbose)


def say_if_not_calibrated(device: str) -> None:
    """A hint where predictions are for this machine, and nothing was measured on it."""
    if device.lower() in ("auto", "cpu") and find(device).key != CALIBRATED:
        screen.say("Hint      predictions are for a CPU of this kind: `onnxfuse calibrate` measures yours, in about half a minute")


def _idle(report: Report, users: Collection[str]) -> list[str]:
    """A line for each rule of the user's that no place of the model was found for."""
    met = {decision.rule for decision in report.decisions}
    more = "`onnxfuse explain` with --rule shows how near it comes"
    return [f"No place  {name}: its pattern holds nowhere in this model; {more}" for name in sorted(set(users) - met)]


def _print(report: Report, selection: Selection, target: Path, verbose: bool) -> None:
    console = screen.out()
    rules = api.load_rules(selection.rules, selection.only, selection.disable)
    users = rules.keys() - api.load_rules().keys()
    if report.fused:
        known: dict[str, Origin] = {**rules, **api.load_generators()}
        summaries = {name: origin.summary for name, origin in known.items()}
        console.print(fused_table(report, summaries))
    reasons = reasons_table(report, full=verbose, always=users)
    if reasons.row_count:
        console.print(reasons)
    for line in (*_idle(report, users), *totals(report)):
        screen.say(line)
    say_if_not_calibrated(selection.device)
    if verbose:
        screen.say("Seconds   " + ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in report.seconds.items()))
    same = "" if report.fused or report.changes else ": nothing was fused, it is a byte-for-byte copy"
    screen.say(f"Written   {target} ({show_bytes(target.stat().st_size)}){same}")
