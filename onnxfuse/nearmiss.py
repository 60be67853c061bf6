"""Near misses: places where a pattern got at least half way, and what stopped it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxfuse.canonical import View
from onnxfuse.decision import Decision, Verdict
from onnxfuse.matcher import anchors, keys, progress
from onnxfuse.rule import Rule

ENOUGH = 0.5


def near_misses(views: Sequence[View], rules: Sequence[Rule], decided: Sequence[Decision]) -> Iterator[Decision]:
    """One per rule and place, for values no decision speaks of: the alternative that got furthest."""
    settled = {(d.rule, d.scope, d.value) for d in decided} | {(d.rule, d.scope, n) for d in decided for n in d.nodes}
    for view in views:
        for term, values in view.values.items():
            root = next((v for v in values if v.producer is not None and v.graph is view.graph), None)
            if root is None or root.producer is None:
                continue
            for rule in rules:
                if (rule.name, view.graph.name, root.name) in settled or (rule.name, view.graph.name, root.producer.label) in settled:
                    continue
                traces = [progress(view, c.term, term) for c in rule.choices if anchors(c.term) in set(keys(term))]
                best = max(traces, key=lambda t: t.matched / t.size, default=None)
                if best is None or best.size < 2 or best.matched / best.size < ENOUGH:
                    continue
                yield Decision(
                    rule.name,
                    Verdict.NEAR_MISS,
                    view.graph.name,
                    root.producer.label,
                    root.name,
                    ops=(root.producer.op,),
                    reason=f"{best.matched} of {best.size} operators match; expected {best.expected}, found {best.found}",
                    numbers={"matched": best.matched, "of": best.size, "expected": best.expected, "found": best.found},
                )
