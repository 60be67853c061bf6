"""The report as JSON, for programs: `docs/report.md` says what each field means."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from enum import Enum
from typing import Any

from onnxfuse.decision import Decision, Price
from onnxfuse.report.record import Report

VERSION = 2  # goes up when a field is taken away or changes its meaning; a new field leaves it


def document(report: Report, *, output: str | None = None) -> dict[str, Any]:
    """The report as plain dicts, lists, strings and numbers. output: the file that was written."""
    return {
        "version": VERSION,
        "model": report.model,
        "output": output,
        "device": report.device,
        "level": report.level,
        "target": report.target,
        "sizes": dict(report.sizes),
        "nodes_before": report.nodes_before,
        "nodes_after": report.nodes_after,
        "plans": [asdict(plan) for plan in report.plans],
        "decisions": [_decision(d) for d in report.decisions],
        "changes": list(report.changes),
        "verified": list(report.verified),
        "not_verified": list(report.not_verified),
        "seconds": plain(report.seconds),
    }


def to_json(report: Report, *, output: str | None = None) -> str:
    """The document as text, ending in a newline."""
    return json.dumps(document(report, output=output), indent=1, allow_nan=False) + "\n"


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "rule": decision.rule,
        "verdict": decision.verdict.value,
        "reason": decision.reason,
        "scope": decision.scope,
        "node": decision.node,
        "value": decision.value,
        "ops": list(decision.ops),
        "nodes": list(decision.nodes),
        "target": decision.target,
        "new_node": decision.new_node,
        "price": None if decision.price is None else _price(decision.price),
        "numbers": plain(decision.numbers),
    }


def _price(price: Price) -> dict[str, Any]:
    """What every price has, and under `details` whatever else the cost model knows."""
    known = {
        "saved_us": price.saved_us,
        "saved_bytes": price.saved_bytes,
        "saved_launches": price.saved_launches,
        "worth": price.worth,
        "failures": list(price.failures),
        "reason": price.reason(),
    }
    fields: dict[str, Any] = asdict(price) if is_dataclass(price) and not isinstance(price, type) else {}
    details = {k: v for k, v in fields.items() if k not in known}
    return {k: plain(v) for k, v in {**known, "details": details}.items()}


def plain(value: Any) -> Any:
    """JSON's own types; a number that JSON has no word for (NaN, infinity) becomes null."""
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in value]
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a numpy scalar
        return plain(value.item())
    return str(value)
