"""The report as tables: what was fused and why, what was not and why, and the totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from rich import box
from rich.table import Table
from rich.text import Text

from onnxfuse.decision import Decision, Verdict
from onnxfuse.report.record import Report
from onnxfuse.report.text import counted, kind_of_reason, operators, reason, savings, show_bytes, show_us, told

if TYPE_CHECKING:
    from onnxfuse.plan import Plan

MOST_ROWS = 20  # of a table of reasons; the rest is counted
COLOURS = {Verdict.FUSED: "green", Verdict.ROLLED_BACK: "red", Verdict.NEAR_MISS: "dim"}
NOT_FUSED = (Verdict.ROLLED_BACK, Verdict.DECLINED, Verdict.NOT_WORTH_IT, Verdict.LOST)
STRATEGIES = {
    "none": "none",
    "elementwise": "element-wise only",
    "without attention": "full, without attention",
    "full": "full, with attention",
}  # plans of a report, and what people call them
Key = TypeVar("Key")


def table(title: str, *columns: str, right: Sequence[str] = ()) -> Table:
    """An empty table in our manner: nothing in it is cut off, however narrow the terminal."""
    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def fused_table(report: Report, summaries: Mapping[str, str]) -> Table:
    """A row per rule and operator types replaced. summaries: what each rule does and why it pays, by rule name."""
    made = table("Fused", "Rule", "Times", "Nodes", "Becomes", "Saves", "Instead of", "Why", right=("Times", "Nodes"))
    groups = _grouped(report.fused, lambda d: (d.rule, d.target, d.ops))
    for (rule, target, ops), members in sorted(groups.items(), key=lambda item: -_saved_us(item[1])):
        covered = sum(len(d.nodes) for d in members)
        made.add_row(rule, str(len(members)), str(covered), target, _saved(members), operators(ops), summaries.get(rule, ""))
    return made


def reasons_table(report: Report, *, full: bool = False, always: Collection[str] = ()) -> Table:
    """A row per rule and reason for what was not fused.

    Unless `full`, rows past 20 are counted, and nodes that a fusion took are left out: whatever else might have taken them.
    always: rules to tell of even so.
    """
    made = table("Not fused", "Rule", "Times", "Why not", "First at", right=("Times",))
    rows = _reason_rows(report.ended(*NOT_FUSED) if full else _open(report, always))
    shown = rows if full else rows[:MOST_ROWS]
    for row in shown:
        made.add_row(row.rule, str(row.count), Text(row.reason, COLOURS.get(row.verdict, "")), row.first)
    left = rows[len(shown) :]
    if left:
        made.add_row("...", str(sum(r.count for r in left)), f"{counted(len(left), 'more reason')}: `onnxfuse explain` lists them", "")
    return made


def _open(report: Report, always: Collection[str]) -> list[Decision]:
    """What was not fused and whose nodes no fusion took: where one did, that another rule did not fit them is no news."""
    taken = [(d.scope, {d.node, *d.nodes}) for d in report.fused]
    return [
        d
        for d in report.ended(*NOT_FUSED)
        if d.rule in always or not any(d.scope == scope and {d.node, *d.nodes} <= nodes for scope, nodes in taken)
    ]


@dataclass(frozen=True)
class ReasonRow:
    """Candidates of one rule that ended for alike reasons: how many, the reason and the node of the first."""

    rule: str
    verdict: Verdict
    count: int
    reason: str
    first: str


def _reason_rows(decisions: Iterable[Decision]) -> list[ReasonRow]:
    groups = _grouped(decisions, lambda d: (d.rule, d.verdict, kind_of_reason(d.reason)))
    rows = [ReasonRow(rule, verdict, len(m), reason(m[0]), m[0].node) for (rule, verdict, _), m in groups.items()]
    return sorted(rows, key=lambda r: (NOT_FUSED.index(r.verdict), -r.count))


def decisions_table(decisions: Sequence[Decision]) -> Table:
    """A row per node, rule and reason, for `explain`."""
    made = table("", "Node", "Rule", "Ended", "Times", "Why", "Covers", right=("Times",))
    groups = _grouped(decisions, lambda d: (d.node, d.rule, d.verdict, told(d)))
    for (node, rule, verdict, why), members in groups.items():
        ended = Text(verdict.value, COLOURS.get(verdict, "yellow"))
        made.add_row(node, rule, ended, str(len(members)), why, operators(members[0].ops))
    return made


def strategies_table(report: Report) -> Table:
    """What the model would cost with nothing fused, with some, and with all that is worth it, side by side."""
    made = table(
        "", "Fused", "Fusions", "Launches", "Traffic", "Time", "Times faster", "Peak memory", right=("Fusions", "Launches", "Times faster")
    )
    plans = {plan.name: plan for plan in report.plans}
    for name, words in STRATEGIES.items():
        plan = plans[name]
        faster = f"{plans['none'].time_us / plan.time_us:.2f}" if plan.time_us else "1.00"
        costs = show_bytes(plan.bytes), show_us(plan.time_us), faster, show_bytes(plan.peak_bytes)
        made.add_row(words, str(plan.fusions), f"{plan.launches:,}", *costs)
    return made


def totals(report: Report) -> list[str]:
    """The closing lines: nodes before and after, predicted saving, what was verified and what was not."""
    gone = report.nodes_before - report.nodes_after
    share = f" ({gone / report.nodes_before:.0%} fewer)" if gone and report.nodes_before else ""
    lines = [] if report.target == "onnxfuse" else [f"Target    {report.target}"]
    lines += report.changes
    lines += [f"Nodes     {report.nodes_before:,} -> {report.nodes_after:,}{share}"]
    if report.fused and report.before_and_after:
        lines.append(_predicted(report, *report.before_and_after))
    lines += [f"Verified  {line}" for line in report.verified]
    return lines + [f"Unchecked {line}" for line in report.not_verified]


def _predicted(report: Report, before: Plan, after: Plan) -> str:
    """`Predicted 423 us -> 212 us a run on cpu (211 us less, saves 5.6 MB, 47 launches), at seq=128`."""
    rest = savings(before.bytes - after.bytes, before.launches - after.launches)
    saved = before.time_us - after.time_us
    less = f"{show_us(abs(saved))} {'less' if saved >= 0 else 'MORE'}"
    at = f", at {_sizes(report)}" if report.sizes else ""
    times = f"{show_us(before.time_us)} -> {show_us(after.time_us)}"
    return f"Predicted {times} a run on {report.device} ({less}{', saves ' + rest if rest else ''}){at}"


def priced_at(report: Report) -> str:
    """What decisions were made for: `on a100, at batch=1, seq=128`."""
    return f"on {report.device}" + (f", at {_sizes(report)} (usual sizes where --shape gives none)" if report.sizes else "")


def _sizes(report: Report) -> str:
    return ", ".join(f"{name}={size}" for name, size in report.sizes.items())


def counts(decisions: Iterable[Decision]) -> str:
    """How many candidates ended in each way: `7 fused, 2 declined`."""
    ended = Counter(d.verdict for d in decisions)
    return ", ".join(f"{ended[v]} {v.value}" for v in Verdict if ended[v])


def _saved(decisions: Sequence[Decision]) -> str:
    priced = [d.price for d in decisions if d.price is not None]
    if not priced:
        return "not priced"
    rest = savings(sum(p.saved_bytes for p in priced), sum(p.saved_launches for p in priced))
    return ", ".join(filter(None, [show_us(sum(p.saved_us for p in priced)), rest]))


def _saved_us(decisions: Sequence[Decision]) -> float:
    return sum(d.price.saved_us for d in decisions if d.price is not None)


def _grouped(decisions: Iterable[Decision], key: Callable[[Decision], Key]) -> dict[Key, list[Decision]]:
    groups: dict[Key, list[Decision]] = {}
    for decision in decisions:
        groups.setdefault(key(decision), []).append(decision)
    return groups
