"""`onnxfuse explain`: every decision about a model, near misses too; nothing is written or run."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from onnxfuse import api, graph
from onnxfuse.commands import screen
from onnxfuse.commands.optimize import Selection, say_if_not_calibrated
from onnxfuse.commands.options import check_report, write_report
from onnxfuse.cost.device import Gpu
from onnxfuse.cost.devices import find
from onnxfuse.decision import Decision
from onnxfuse.errors import UsageError
from onnxfuse.report.tables import counts, decisions_table, priced_at, strategies_table
from onnxfuse.report.text import show_bytes


def run(source: Path, selection: Selection, *, node: str | None, rule: str | None, strategies: bool, report: Path | None) -> None:
    """Print what `optimize` would decide, of one node or one rule if given; or what each way to fuse would cost."""
    check_report(report, source, *selection.rules)
    if rule is not None:
        api.load_rules(selection.rules, [rule])  # raises for a name that no rule has
    if node is not None:
        _check_node(source, node)
    with screen.progress() as (tick, _):
        found = api.explain(source, **vars(selection), progress=tick, each_node=node is not None or rule is not None)
    if report is not None:
        write_report(found, report)
    if strategies:
        screen.out().print(strategies_table(found))
        screen.say(f"Predicted {priced_at(found)}")
        _say_memory(selection.device, max(plan.peak_bytes for plan in found.plans))
        return
    shown = [d for d in found.decisions if (rule is None or d.rule == rule) and (node is None or _speaks_of(d, node))]
    if shown:
        screen.out().print(decisions_table(shown))
    else:
        more = "" if node else "--node NAME says why a node is in no generated operator, "
        screen.say(f"No pattern gets half way{_where(node, rule)}: nothing to explain. {more}`onnxfuse rules` lists what is looked for")
    screen.say(f"Priced    {priced_at(found)}")
    screen.say(f"Total     {counts(shown) or 'no candidates'}")
    say_if_not_calibrated(selection.device)


def _say_memory(device: str, peak_bytes: int) -> None:
    known = find(device)
    if isinstance(known, Gpu) and peak_bytes > known.memory_bytes:
        screen.say(f"Memory    {show_bytes(peak_bytes)} are more than the {show_bytes(known.memory_bytes)} of one {device}")


def _speaks_of(decision: Decision, node: str) -> bool:
    return node in (decision.node, decision.value, decision.new_node) or node in decision.nodes


def _where(node: str | None, rule: str | None) -> str:
    return (f" for rule {rule}" if rule else "") + (f" at {node}" if node else "")


def _check_node(source: Path, node: str) -> None:
    """Raise UsageError when the model has no node and no value of this name."""
    model = graph.load(source)
    known = [n for g in model.graphs() for n in [*(n.label for n in g.nodes), *g.values]]
    if node not in known:
        raise UsageError(f"--node: {source} has no node or value '{node}'. {_hint(node, known)}")


def _hint(node: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(node, known, 3) or [name for name in known if node.lower() in name.lower()][:3]
    return f"Did you mean {' or '.join(near)}?" if near else "Name a node, or one of its outputs, as a viewer shows it"
