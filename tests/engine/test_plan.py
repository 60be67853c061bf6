"""Predicted plans: what decisions save adds up, and the chosen set is the best of all that were weighed."""

from __future__ import annotations

from pathlib import Path

import onnx.parser
import pytest

from onnxfuse.decider import worth
from onnxfuse.decision import Decision, Verdict
from onnxfuse.plan import Plan
from onnxfuse.recipe import close_order
from onnxfuse.report.record import Report
from onnxfuse.ruletest import parse
from onnxfuse.vanishing import vanished
from tests.engine.harness import decider

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.onnx"))
TWICE = """g (float[1,4,64,16] q, float[1,4,64,16] k, float[1,4,64,16] v) => (float[1,4,64,16] b) <float scale = {0.25}>
{ turned = Transpose<perm = [0,1,3,2]>(k)
  s1 = MatMul(q, turned) t1 = Mul(s1, scale) p1 = Softmax<axis = -1>(t1) a = MatMul(p1, v)
  s2 = MatMul(a, turned) t2 = Mul(s2, scale) p2 = Softmax<axis = -1>(t2) b = MatMul(p2, v) }"""


def saved(decisions: list[Decision]) -> float:
    return sum((d.price.saved_us if d.price else 0.0) + d.numbers.get("shared", 0.0) for d in decisions)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_what_decisions_save_is_the_difference_of_the_plans(path: Path) -> None:
    found = decider(path)
    chosen, _ = found.choose()
    none, made = found.planner.plan("none", []), found.planner.plan("chosen", chosen)
    assert chosen
    assert saved([c.decision for c in chosen]) == pytest.approx(none.time_us - made.time_us)
    assert made.launches < none.launches and made.peak_bytes <= none.peak_bytes


@pytest.mark.parametrize("device", ["cpu-generic", "a100", "h100"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_chosen_plan_is_the_fastest_of_all_alternatives(path: Path, device: str) -> None:
    """At the sizes it is made for: what may be lost at others limits nothing here."""
    found = decider(path, device, most_loss=1.0)
    plans = {p.name: p for p in found.plans(found.choose()[0], found.found)}
    assert set(plans) == {"chosen", "none", "elementwise", "without attention", "full", "largest first"}
    assert plans["chosen"].time_us <= min(p.time_us for p in plans.values()) * (1 + 1e-9)


def test_node_that_two_fusions_read_is_saved_by_both_together() -> None:
    found = decider(parse(TWICE))
    chosen, _ = found.choose()
    assert [c.rule.name for c in chosen] == ["attention", "attention"]
    gone = {n.op for n in vanished(chosen)} - {n.op for c in chosen for n in vanished([c])}
    assert gone == {"Transpose"}
    shares = {c.decision.numbers["shared"] for c in chosen}
    assert len(shares) == 1 and shares.pop() > 0
    assert saved([c.decision for c in chosen]) == pytest.approx(found.planner.plan("", []).time_us - found.planner.plan("", chosen).time_us)


def test_part_of_what_the_runtime_fuses_itself_is_priced_with_the_rest_of_it() -> None:
    """A norm's last product left over: the runtime's own norm goes, and the product comes on top."""
    found = decider(next(p for p in EXAMPLES if p.stem == "gpt2_torchscript"))
    partial = [c for c in found.found if c.rule.name == "skip_layer_norm" and c.root.producer is not None and c.root.producer.op == "Div"]
    assert partial
    for candidate in partial:
        alone = found.planner.plan("none", []).time_us - found.planner.plan("alone", [candidate]).time_us
        assert candidate.price is not None and candidate.price.saved_us == pytest.approx(alone)


def test_order_puts_what_a_node_reads_before_it() -> None:
    for path in EXAMPLES:
        for scope in decider(path).model.graphs():
            order = {node: place for place, node in enumerate(close_order(scope))}
            assert set(order) == set(scope.nodes)
            assert all(order[v.producer] < order[n] for n in scope.nodes for v in n.inputs if v and v.producer and v.graph is scope)


def test_peak_counts_weights_and_what_is_alive_at_one_time() -> None:
    text = "g (float[8,16] x) => (float[8,16] y) <float[16] w = {" + ",".join(["1"] * 16) + "}> { a = Exp(x) b = Mul(a, w) y = Neg(b) }"
    found = decider(parse(text))
    tensor, weight = 8 * 16 * 4, 16 * 4
    assert found.planner.plan("none", []).peak_bytes == weight + 3 * tensor  # x, and two of a, b, y


def test_view_takes_no_memory_of_its_own() -> None:
    text = "g (float[8,16] x) => (float[128] y) <int64[1] s = {-1}> { a = Exp(x) b = Reshape(a, s) y = Neg(b) }"
    assert decider(parse(text)).planner.plan("none", []).peak_bytes == 8 + 3 * 8 * 16 * 4


def test_function_counts_once_for_each_call() -> None:
    plans = [planned_calls(calls) for calls in ("y = local.f(x)", "a = local.f(x) y = local.f(a)")]
    assert plans[0].launches == 2 and plans[1].launches == 4
    assert plans[1].time_us == pytest.approx(2 * plans[0].time_us)


def planned_calls(calls: str) -> Plan:
    """The plan of a graph that calls f(x) = -exp(x)."""
    head = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]>'
    function = '<domain: "local", opset_import: ["" : 17]> f (x) => (y) { a = Exp(x) y = Neg(a) }'
    model = onnx.parser.parse_model(f"{head} g (float[64,64] x) => (float[64,64] y) {{ {calls} }} {function}")
    return decider(model).planner.plan("none", [])


def test_budget_that_is_broken_is_never_chosen() -> None:
    found = decider(parse(TWICE))
    broken = [c for c in found.found if c.price is not None and c.price.failures]
    assert [worth(c) for c in broken] == [float("-inf")] * len(broken)
    assert all(d.verdict in (Verdict.NOT_WORTH_IT, Verdict.LOST) for d in found.choose()[1])


def test_report_of_no_optimisation_has_no_plans() -> None:
    assert Report("m", "cpu", "none", (), 1, 1).plans == ()
