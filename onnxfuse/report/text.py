"""Decisions in words: the log lines of `-v`, and the numbers of the tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from onnxfuse.decision import Decision, Verdict

MAX_KINDS = 6  # operator types that a line names


def log_line(decision: Decision) -> str:
    """One line in the manner of `[FUSION] fused gelu: Erf + Mul -> Gelu_0 (2 nodes, saves 12.6 MB, 1 launch)`."""
    if decision.verdict is Verdict.FUSED:
        price = decision.price
        saved = savings(price.saved_bytes, price.saved_launches) if price else ""
        facts = [counted(len(decision.nodes), "node"), *([f"saves {saved}"] if saved else [])]
        made = decision.new_node or decision.target
        return f"[FUSION] fused {decision.rule}: {operators(decision.ops)} -> {made} ({', '.join(facts)})"
    return f"[FUSION] {_WORDS[decision.verdict]} {decision.rule} at {decision.node}: {reason(decision)}"


_WORDS = {
    Verdict.DECLINED: "skipped",
    Verdict.NOT_WORTH_IT: "skipped",
    Verdict.LOST: "skipped",
    Verdict.ROLLED_BACK: "rolled back",
    Verdict.NEAR_MISS: "nearly",
}


def reason(decision: Decision) -> str:
    """Why the candidate ended as it did; the verdict is in it where it is more than a guard that did not hold."""
    text = told(decision)
    if decision.verdict in (Verdict.DECLINED, Verdict.NEAR_MISS) or text.startswith(decision.verdict.value):
        return text or decision.verdict.value
    return f"{decision.verdict.value}: {text}" if text else decision.verdict.value


def told(decision: Decision) -> str:
    """The reason, and the sizes of symbolic dims at which the decision is another: `...; pays from seq >= 96`."""
    text = decision.reason or (decision.price.reason() if decision.price else "")
    ranges = decision.numbers.get("ranges", {})
    return "; ".join(filter(None, [text, *(r["text"] for r in ranges.values() if r["flips"])]))


def kind_of_reason(text: str) -> str:
    """The reason without the names and numbers of the place, so that alike ones can be counted together."""
    return re.sub(r"'[^']*'| at \S+|\d[\d,.]*", "", text)


def operators(ops: Sequence[str]) -> str:
    """Operator types in the order they first appear: `MatMul x2 + Softmax`; past six kinds the rest is counted."""
    counts = Counter(ops)
    shown = [f"{op} x{count}" if count > 1 else op for op, count in list(counts.items())[:MAX_KINDS]]
    more = len(counts) - len(shown)
    return " + ".join([*shown, *([counted(more, "more kind")] if more else [])])


def savings(saved_bytes: int, launches: int) -> str:
    """What fusions save besides time: `12.6 MB, 1 launch`; what they do not save is left out."""
    parts = [show_bytes(saved_bytes)] if saved_bytes > 0 else []
    return ", ".join([*parts, counted(launches, "launch", "es")] if launches > 0 else parts)


def counted(count: int, noun: str, plural: str = "s") -> str:
    """`1 launch`, `2 launches`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{plural}"


def show_bytes(count: float) -> str:
    """A number of bytes with three digits: `12.6 MB` (10^6 bytes)."""
    return _scaled(count, 1000, ("B", "kB", "MB", "GB", "TB"))


def show_us(microseconds: float) -> str:
    """A time with three digits: `18.3 us`."""
    return _scaled(microseconds, 1000, ("us", "ms", "s"))


def _scaled(number: float, step: int, units: Sequence[str]) -> str:
    for unit in units[:-1]:
        if abs(number) < step - 0.5:
            return f"{number:.3g} {unit}"
        number /= step
    return f"{number:.3g} {units[-1]}"
