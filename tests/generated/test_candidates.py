"""What is generated goes the way of what rules find: chosen, written, validated, reported."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest

from onnxfuse import api, custom_ops, graph, shapes
from onnxfuse.cost.model import Model as CostModel
from onnxfuse.decider import Decider
from onnxfuse.decision import Verdict
from onnxfuse.generated import candidates
from onnxfuse.generated.candidates import GENERATORS
from onnxfuse.generated.primitives import PRIMITIVES
from onnxfuse.library import load_generators
from onnxfuse.op import DOMAIN
from onnxfuse.ranges import Ranges
from onnxfuse.ruletest import parse
from onnxfuse.target import Target
from tests.generated.harness import NAMES, apart, generate, kept, programs

CHAIN = "g (float[b,8] x, float[8] w) => (float[b,8] y) { a = Mul(x, w) t = Tanh(a) s = Sub(t, a) y = Add(s, x) }"
TWICE = """g (float[b,8] x, float[8,8] w) => (float[b,8] y) {
    a = Exp(x) b1 = Neg(a) m = MatMul(b1, w) c = Exp(m) d = Neg(c) n = MatMul(d, w) e = Tanh(n) y = Abs(e)
}"""


def test_a_chain_is_fused_validated_and_reported_with_its_name() -> None:
    result = api.optimize(parse(CHAIN), level="all")
    (decision,) = result.report.fused
    assert (decision.rule, decision.target) == ("fused_elementwise", "FusedElementwise[Mul+Tanh+Sub+Add]")
    assert decision.price is not None
    assert any("against what it replaced" in line for line in result.report.verified)


def test_rules_come_first() -> None:
    text = """g (float[2,8] x) => (float[2,8] y) <float r = {0.70710678}, float one = {1}, float half = {0.5}> {
        a = Exp(x) b = Mul(a, r) c = Erf(b) d = Add(c, one) e = Mul(a, d) f = Mul(e, half) g = Neg(f) y = Sin(g)
    }"""
    assert [d.rule for d in api.optimize(parse(text), level="all").report.fused] == ["gelu", "fused_elementwise"]


def test_equal_regions_share_a_body_and_different_ones_have_names() -> None:
    model, _ = generate(TWICE)
    types = [n.op_type for n in model.graph.node if n.domain == DOMAIN]
    assert types == ["FusedElementwise", "FusedElementwise", "FusedElementwise_2"]
    assert sorted(f.name for f in model.functions) == ["FusedElementwise", "FusedElementwise_2"]


def test_outputs_have_their_types_said() -> None:
    model, _ = generate(TWICE)
    told = {v.name for v in (*model.graph.value_info, *model.graph.output)}
    assert all(o in told for n in model.graph.node if n.domain == DOMAIN for o in n.output)


def test_no_more_names_are_written_than_the_library_has(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: candidates.Generator(g.name, g.kind, g.summary, g.op, 1) for name, g in GENERATORS.items()}
    monkeypatch.setattr(candidates, "GENERATORS", few)
    model, report = generate(TWICE)
    assert [f.name for f in model.functions] == ["FusedElementwise"]
    assert len(programs(model)) == 2
    assert any("more different regions than the library has names for" in d.reason for d in report.decisions)


@pytest.mark.parametrize("target", ["contrib", "standard"])
def test_nothing_is_generated_for_other_targets(target: str) -> None:
    result = api.optimize(parse(CHAIN), level="all", target=target, verify=False)
    assert result.report.fused == ()


@pytest.mark.parametrize(
    ("options", "fused"), [({"disable": ["fused_elementwise"]}, 0), ({"only": ["gelu"]}, 0), ({"only": ["fused_elementwise"]}, 1)]
)
def test_kinds_are_chosen_and_left_out_like_rules(options: dict[str, list[str]], fused: int) -> None:
    assert len(api.optimize(parse(CHAIN), level="all", verify=False, **options).report.fused) == fused


def test_what_does_not_pay_is_not_made_and_its_numbers_are_told() -> None:
    text = "g (float[2,2] x) => (float[2,2] y) { a = Neg(x) y = Abs(a) }"
    report = api.optimize(parse(text), level="cost", verify=False).report
    told = [d for d in report.decisions if d.rule == "fused_elementwise"]
    assert all(d.price is not None and d.price.reason() for d in told)


def test_a_long_chain_on_much_data_pays() -> None:
    steps = " ".join(f"v{i + 1} = {'Tanh' if i % 2 else 'Abs'}(v{i})" for i in range(14))
    text = f"g (float[8,512,3072] v0) => (float[8,512,3072] v14) {{ {steps} }}"
    (decision,) = api.explain(parse(text), level="cost").fused
    assert decision.price is not None
    assert decision.price.saved_bytes > 13 * 8 * 512 * 3072 * 4


def test_computing_a_small_value_for_each_large_one_is_weighed() -> None:
    """Twelve powers of one vector: computed once for each of 4,096 rows they cost more than they save."""
    steps = " ".join(f"e{i + 1} = {'Sin' if i % 2 else 'Exp'}(e{i})" for i in range(12))
    text = f"g (float[4096,1024] x, float[1024] e0) => (float[4096,1024] y) {{ {steps} a = Mul(x, e12) y = Neg(a) }}"
    report = api.explain(parse(text), level="cost")
    chosen = {op for d in report.fused for op in d.ops if "Mul" in d.ops}
    assert chosen == {"Mul", "Neg"}


def test_a_region_that_gives_other_numbers_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The body is made wrong: it gives its first input back."""
    written = candidates.body

    def wrong(*args: object) -> onnx.FunctionProto:
        made = written(*args)  # type: ignore[arg-type]  # passed on as they came
        del made.node[:]
        made.node.append(onnx.helper.make_node("Identity", ["x0"], ["y0"]))
        return made

    monkeypatch.setattr(candidates, "body", wrong)
    report = api.optimize(parse(CHAIN), level="all").report
    assert [d.verdict for d in report.decisions if d.rule == "fused_elementwise"][0] is Verdict.ROLLED_BACK
    assert report.fused == ()


def test_a_region_inside_a_branch_is_made() -> None:
    text = """g (bool c, float[4,8] x) => (float[4,8] y) {
        y = If(c) <then_branch = t () => (float[4,8] a) { e = Exp(x) f = Neg(e) a = Tanh(f) },
                   else_branch = f () => (float[4,8] b) { b = Identity(x) }>
    }"""
    result = api.optimize(parse(text), level="all", only=NAMES)
    assert len(result.report.fused) == 1


def test_bodies_and_programs_agree() -> None:
    """The body is the nodes themselves; the program is what the library runs: both are run by `generate`."""
    model, _ = generate(CHAIN)
    assert [n.op_type for n in model.functions[0].node] == ["Mul", "Tanh", "Sub", "Add"]
    assert kept(model) == []


@pytest.mark.parametrize("folder", ["fused_elementwise", "fused_reduction"])
def test_the_library_registers_as_many_names_as_may_be_written(folder: str) -> None:
    names = GENERATORS[folder].names
    source = (Path(custom_ops.__path__[0]) / folder / "op.cc").read_text()
    assert re.search(rf"\b{names}\b", source), source


def test_the_library_has_every_primitive_and_no_other() -> None:
    source = (Path(custom_ops.__path__[0]) / "_runtime" / "program.h").read_text()
    assert set(re.findall(r"\bX\(([A-Z]\w*), ", source)) == set(PRIMITIVES)


def test_kinds_of_one_operator_share_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: candidates.Generator(g.name, g.kind, g.summary, g.op, 1) for name, g in GENERATORS.items()}
    monkeypatch.setattr(candidates, "GENERATORS", few)
    text = """g (float[batch,12] x) => (float[batch,3,4] y) <int64 zero = {0}, int64[1] axis = {0}, int64[2] rest = {3, 4}> {
        a = Exp(x) b = Neg(a) s = Shape(b) n = Gather(s, zero) u = Unsqueeze(n, axis) t = Concat<axis=0>(u, rest) y = Reshape(b, t)
    }"""
    model, _ = generate(text)
    assert len(programs(model)) == 1


def test_nothing_is_generated_inside_a_function_of_the_model() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18, "local" : 1]> g (float[4,8] x) => (float[4,8] y) { y = local.F(x) }
        <domain: "local", opset_import: ["" : 18]> F (x) => (y) { a = Exp(x) b = Neg(a) y = Tanh(b) }"""
    model, _ = generate(text)
    assert programs(model) == []
    assert "in a function of the model" in apart(text)["b"]


def test_a_model_that_was_optimised_has_fewer_names_left() -> None:
    first, _ = generate(TWICE)
    again, report = generate(first)
    assert report.fused == ()
    assert again.SerializeToString(deterministic=True) == first.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("level", "only", "kinds"),
    [
        ("all", (), {"fused_elementwise", "fused_reduction", "fused_sizes"}),
        ("cost", (), {"fused_elementwise", "fused_reduction"}),
        ("cost", ("fused_sizes",), {"fused_sizes"}),
        ("elementwise", (), {"fused_elementwise", "fused_reduction"}),
        ("none", (), set()),
    ],
)
def test_each_level_has_its_kinds(level: str, only: tuple[str, ...], kinds: set[str]) -> None:
    assert load_generators(only, level=level).keys() == kinds


@pytest.mark.parametrize("name", ["bert_torchscript", "gpt2_torchscript", "llama_dynamo"])
def test_what_regions_save_is_the_difference_of_the_plans(name: str) -> None:
    loaded = graph.load(Path(__file__).parents[2] / "examples" / f"{name}.onnx")
    shapes.infer(loaded)
    kinds = {k: g for k, g in GENERATORS.items() if not g.on_request}
    decider = Decider(loaded, [], Target(), Ranges(loaded, CostModel("cpu-generic"), {}), lambda *_: None, generators=kinds)
    chosen, _ = decider.choose()
    made, none = decider.plans(chosen, decider.found)[:2]
    assert len(chosen) > 2
    saved = sum(c.price.saved_us + c.decision.numbers.get("shared", 0.0) for c in chosen if c.price is not None)
    assert saved == pytest.approx(none.time_us - made.time_us)
