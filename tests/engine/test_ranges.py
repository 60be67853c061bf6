"""Symbolic dims: decisions at given sizes, at usual ones, the sizes at which they flip, and what is refused for other sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxfuse import api, graph, shapes
from onnxfuse.cost.model import Model as CostModel
from onnxfuse.decision import Decision, Verdict
from onnxfuse.errors import UsageError
from onnxfuse.plan import Planner
from onnxfuse.ranges import Ranges
from onnxfuse.report.text import reason, told
from onnxfuse.ruletest import parse
from tests.engine.harness import GELU_CONSTANTS, decider, gelu

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.onnx"))
DEVICE = "cpu-generic"
VECTORS = f"float[64] s = {{{','.join(['1'] * 64)}}}, float[64] b = {{{','.join(['0'] * 64)}}}"
NORM = "t = Add(x, y) z = LayerNormalization<axis = -1>(t, s, b)"
INPUTS = "float[batch,seq,64] x, float[batch,seq,64] y"
SKIP = f"g ({INPUTS}) => (float[batch,seq,64] z) <{VECTORS}> {{ {NORM} }}"
BESIDE_A_PRODUCT = f"""g ({INPUTS}, float[4096,4096] v, float[4096,4096] w) => (float[batch,seq,64] z, float[4096,4096] m)
  <{VECTORS}> {{ m = MatMul(v, w) {NORM} }}"""
GELU = f"g (float[seq,8] x) => (float[seq,8] y) {GELU_CONSTANTS} {{ {gelu('x', 'y')} }}"


def decisions(text: str, **options: object) -> dict[str, Decision]:
    """By rule, those that were fused or not worth it, of rules that found one."""
    report = api.explain(parse(text), **{"device": DEVICE, **options})  # type: ignore[arg-type]
    return {d.rule: d for d in report.ended(Verdict.FUSED, Verdict.NOT_WORTH_IT)}


@pytest.mark.parametrize("dim", ["seq", "batch"])
def test_flips_are_where_the_decision_at_given_sizes_changes(dim: str) -> None:
    told_range = decisions(SKIP, range_loss=1000)["skip_layer_norm"].numbers["ranges"][dim]
    assert (
        told_range["at"] == {"seq": 128, "batch": 1}[dim]
        and (told_range["low"], told_range["high"]) == {"seq": (1, 2048), "batch": (1, 32)}[dim]
    )
    assert dim == "batch" or told_range["flips"], "nothing to check"
    pays = told_range["pays_at_low"]
    for flip in told_range["flips"]:
        sizes = {"seq": 128, "batch": 1}
        below, at = (decisions(SKIP, shapes={**sizes, dim: size})["skip_layer_norm"].verdict for size in (flip - 1, flip))
        assert (below is Verdict.FUSED, at is Verdict.FUSED) == (pays, not pays)
        pays = not pays


@pytest.mark.parametrize("name", ["bert_torchscript", "bert_dynamo"])
def test_no_size_is_usual_that_a_table_of_the_model_is_too_short_for(name: str) -> None:
    """These have 64 positions; the usual length would be 128."""
    sizes = api.explain(next(path for path in EXAMPLES if path.stem == name), device=DEVICE).sizes
    assert 64 in sizes.values() and 128 not in sizes.values()


def test_reason_says_where_the_decision_flips() -> None:
    found = decisions(SKIP, range_loss=1000)["skip_layer_norm"]
    flip = found.numbers["ranges"]["seq"]["flips"][0]
    assert found.verdict is Verdict.FUSED and f"pays from seq >= {flip}" in told(found)
    assert f"pays from seq >= {flip}" in reason(decisions(SKIP, shapes={"batch": 1})["skip_layer_norm"])


def test_win_that_costs_the_model_too_much_at_another_size_is_refused_unless_told() -> None:
    refused = decisions(SKIP)["skip_layer_norm"]
    assert refused.verdict is Verdict.NOT_WORTH_IT
    assert "it pays at usual sizes, but the model would lose " in refused.reason and "at seq=1, more than 5%" in refused.reason
    assert refused.price is not None and refused.price.saved_us > 0
    assert decisions(SKIP, range_loss=1000)["skip_layer_norm"].verdict is Verdict.FUSED


def test_given_size_is_decided_for_alone() -> None:
    found = decisions(SKIP, shapes={"batch": 1, "seq": 512})["skip_layer_norm"]
    assert found.verdict is Verdict.FUSED and "ranges" not in found.numbers
    assert decisions(SKIP, shapes={"batch": 1, "seq": 1})["skip_layer_norm"].verdict is Verdict.NOT_WORTH_IT


def test_loss_is_held_against_the_whole_model() -> None:
    """Beside a product that takes far longer, the same loss is nothing."""
    assert decisions(BESIDE_A_PRODUCT)["skip_layer_norm"].verdict is Verdict.FUSED


def test_sizes_that_the_graph_does_not_admit_are_not_looked_at() -> None:
    text = "g (float[past,8] p, float[seq,8] s, float[96,8] q) => (float[96,8] y) { c = Concat<axis = 0>(p, s) y = Add(c, q) }"
    model = graph.load(parse(text))
    shapes.infer(model)
    ranges = Ranges(model, CostModel(DEVICE), {"past": 32})
    assert ranges.sizes(model.main) == {"past": 32, "seq": 64}
    assert (ranges.free["seq"].low, ranges.free["seq"].high) == (64, 64)


@pytest.mark.parametrize("most_loss", [0.0, 0.05])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_no_choice_loses_more_than_allowed_at_any_size_that_is_looked_at(path: Path, most_loss: float) -> None:
    found = decider(path, most_loss=most_loss)
    chosen, _ = found.choose()
    for at in found.ranges.probes():
        pricers = {view.graph: found.ranges.pricer(view.graph, at) for view in found.views}
        planner = Planner(found.model, found.cost, found.recipes, pricers)
        shared = sum(c.decision.numbers.get("shared", 0.0) for c in chosen)  # is not looked at there
        none, made = planner.plan("none", []).time_us, planner.plan("chosen", chosen).time_us
        assert made <= none * (1 + most_loss) + shared + 1e-6, at


@pytest.mark.parametrize("level", ["cost", "all"])
def test_fusion_of_more_nodes_than_allowed_is_not_made(level: str) -> None:
    sizes = {"seq": 4096}
    assert decisions(GELU, level=level, shapes=sizes)["gelu"].verdict is Verdict.FUSED
    refused = decisions(GELU, level=level, shapes=sizes, max_fusion_size=4)["gelu"]
    assert refused.verdict is Verdict.NOT_WORTH_IT and "5 nodes > 4" in refused.reason
    assert decisions(GELU, level=level, shapes=sizes, max_fusion_size=5)["gelu"].verdict is Verdict.FUSED


def test_percentage_that_means_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="percentage of at least 0"):
        decisions(GELU, range_loss=-1)
    with pytest.raises(UsageError, match="max_nodes must be at least 1"):
        decisions(GELU, max_fusion_size=0)
