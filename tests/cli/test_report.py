"""Decisions as log lines, tables and JSON."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from onnxfuse.decision import Decision, Verdict
from onnxfuse.plan import Plan
from onnxfuse.report import Report
from onnxfuse.report.document import VERSION, document, to_json
from onnxfuse.report.tables import decisions_table, fused_table, reasons_table, totals
from onnxfuse.report.text import counted, log_line, operators, show_bytes, show_us

DOCS = Path(__file__).parents[2] / "docs" / "report.md"


@dataclass(frozen=True)
class Cost:
    saved_us: float = 31.4
    saved_bytes: int = 12_600_000
    saved_launches: int = 1
    worth: bool = True
    failures: tuple[str, ...] = ()
    terms: dict[str, float] = field(default_factory=lambda: {"speed": float("inf"), "us": 2.5})

    def reason(self) -> str:
        return "worth it: 40 -> 8.6 us"


FUSED = Decision(
    "skip_layer_norm",
    Verdict.FUSED,
    "main graph",
    "norm",
    "y",
    ops=("Add", "LayerNormalization"),
    nodes=("add", "norm"),
    target="SkipLayerNorm",
    new_node="SkipLayerNorm_0",
    price=Cost(),
)
DECLINED = Decision(
    "attention", Verdict.DECLINED, "main graph", "/encoder/layer.0/Softmax", "p", reason="mask depends on axis 1 of unknown size"
)
REPORT = Report("model.onnx", "cpu", "cost", (FUSED, DECLINED), 10, 9, sizes={"seq": 128}, verified=("same",), seconds={"match": 0.5})


def shown(renderable: Any, width: int = 200) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(renderable)
    return file.getvalue()


def test_fused_line() -> None:
    assert (
        log_line(FUSED) == "[FUSION] fused skip_layer_norm: Add + LayerNormalization -> SkipLayerNorm_0 (2 nodes, saves 12.6 MB, 1 launch)"
    )


def test_declined_line() -> None:
    assert log_line(DECLINED) == "[FUSION] skipped attention at /encoder/layer.0/Softmax: mask depends on axis 1 of unknown size"


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_a_line_with_its_reason(verdict: Verdict) -> None:
    line = log_line(replace(DECLINED, verdict=verdict))
    assert line.startswith("[FUSION] ") and "attention" in line
    assert verdict is Verdict.FUSED or "unknown size" in line
    assert verdict not in (Verdict.LOST, Verdict.NOT_WORTH_IT) or verdict.value in line


def test_verdict_is_not_said_twice() -> None:
    assert log_line(replace(DECLINED, verdict=Verdict.NOT_WORTH_IT, reason="not worth it: 1 -> 2 us")).count("not worth it") == 1


def test_fused_line_leaves_out_what_is_not_saved() -> None:
    assert log_line(replace(FUSED, price=Cost(saved_bytes=-5, saved_launches=0))).endswith("SkipLayerNorm_0 (2 nodes)")
    assert log_line(replace(FUSED, price=None)).endswith("(2 nodes)")


def test_operators_are_counted_in_order_of_appearance() -> None:
    assert operators(("MatMul", "Mul", "Softmax", "MatMul")) == "MatMul x2 + Mul + Softmax"
    assert operators(tuple("abcdefgh")) == "a + b + c + d + e + f + 2 more kinds"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (999.7, "1 kB"), (12_600_000, "12.6 MB"), (-2_500, "-2.5 kB"), (999_700, "1 MB"), (5e15, "5e+03 TB")],
)
def test_bytes_have_three_digits(count: float, text: str) -> None:
    assert show_bytes(count) == text


def test_times_and_counts() -> None:
    assert (show_us(18.34), show_us(2_500.0), counted(1, "node"), counted(2, "launch", "es")) == (
        "18.3 us",
        "2.5 ms",
        "1 node",
        "2 launches",
    )


def test_fused_table_says_rule_op_count_nodes_saving_and_why() -> None:
    row = shown(fused_table(REPORT, {"skip_layer_norm": "the sum never travels"})).splitlines()[-2]
    for part in ("skip_layer_norm", "SkipLayerNorm", "31.4 us, 12.6 MB, 1 launch", "Add + LayerNormalization", "the sum never travels"):
        assert part in row
    assert row.split()[1:3] == ["1", "2"]


def test_alike_fusions_share_a_row_with_their_sums() -> None:
    text = shown(fused_table(replace(REPORT, decisions=(FUSED, FUSED, FUSED)), {}))
    assert text.count("SkipLayerNorm") == 1
    assert "94.2 us, 37.8 MB, 3 launches" in text


def test_alike_reasons_share_a_row() -> None:
    decisions = tuple(replace(DECLINED, reason=f"'v{i}' must have rank {i}", node=f"node{i}") for i in range(5))
    text = shown(reasons_table(replace(REPORT, decisions=decisions)))
    assert text.count("must have rank") == 1
    assert " 5 " in text and "node0" in text


def test_many_reasons_are_counted_and_all_shown_if_asked() -> None:
    reasons = ["reason " + "x" * i for i in range(1, 31)]
    report = replace(REPORT, decisions=tuple(replace(DECLINED, reason=r) for r in reasons))
    assert "10 more reasons" in shown(reasons_table(report))
    assert shown(reasons_table(report, full=True)).count("reason x") == 30


@pytest.mark.parametrize("width", [40, 80, 200])
def test_nothing_is_cut_off_however_narrow(width: int) -> None:
    name = "/a/very/long/node/name/" + "abcdefgh" * 12
    text = shown(decisions_table([replace(DECLINED, node=name, reason="because " + "y" * 90)]), width)
    assert "…" not in text
    assert text.count("y") >= 90
    assert max(map(len, text.splitlines())) <= width


def test_totals_say_nodes_saving_and_verification() -> None:
    plans = (Plan("none", 0, 3, 14_600_000, 50.0, 0), Plan("chosen", 1, 2, 2_000_000, 18.6, 0))
    lines = totals(replace(REPORT, not_verified=("no memory",), gained=lambda: plans))
    assert lines[0] == "Nodes     10 -> 9 (10% fewer)"
    assert lines[1].startswith("Predicted 50 us -> 18.6 us a run on ") and "(31.4 us less, saves 12.6 MB, 1 launch)" in lines[1]
    assert "seq=128" in lines[1]
    assert "(31.4 us MORE)" in totals(replace(REPORT, gained=lambda: plans[::-1]))[1]
    assert any("same" in line for line in lines) and any("no memory" in line for line in lines)


def test_json_keeps_every_fact_and_has_no_number_that_json_lacks() -> None:
    read = json.loads(to_json(REPORT, output="out.onnx"))
    assert (read["version"], read["model"], read["output"], read["nodes_before"], read["nodes_after"]) == (
        VERSION,
        "model.onnx",
        "out.onnx",
        10,
        9,
    )
    fused, declined = read["decisions"]
    assert fused["verdict"] == "fused" and fused["nodes"] == ["add", "norm"] and fused["price"]["saved_bytes"] == 12_600_000
    assert fused["price"]["details"]["terms"] == {"speed": None, "us": 2.5}
    assert declined["price"] is None and declined["reason"] == DECLINED.reason


def test_numpy_numbers_become_json_numbers() -> None:
    numbers = {"a": np.float32(0.5), "b": np.int64(3), "c": (np.float64("nan"), Verdict.LOST)}
    assert document(replace(REPORT, decisions=(replace(FUSED, numbers=numbers),)))["decisions"][0]["numbers"] == {
        "a": 0.5,
        "b": 3,
        "c": [None, "lost to another"],
    }


def keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {k for name, v in value.items() if name not in ("details", "numbers", "sizes", "seconds") for k in keys(v)}
    return {k for v in value for k in keys(v)} if isinstance(value, list) else set()


def test_every_field_of_the_report_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert [name for name in keys(document(REPORT)) if f"`{name}`" not in text] == []
    assert f"version {VERSION}" in text.lower()
    assert [v.value for v in Verdict if f"`{v.value}`" not in text] == []
