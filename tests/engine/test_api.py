"""optimize and explain, from a model to a written file: what each level does, and what is refused or rolled back."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxfuse import api
from onnxfuse.decision import Verdict
from onnxfuse.errors import ModelError, OnnxFuseError, RuleError, UsageError, VerificationError
from onnxfuse.rule import LEVELS
from tests.engine.harness import GELU_CONSTANTS, assert_same_numbers, gelu, parse
from tests.engine.spelled import FAMILIES, spell

ATTENTION = """g (float[2,3,64,32] q, float[2,3,32,64] k, float[2,3,64,32] v) => (float[2,3,64,32] y) {
    d = MatMul(q, k) p = Softmax(d) y = MatMul(p, v)
}"""
BOTH = f"""g (float[2,3,64,32] q, float[2,3,32,64] k, float[2,3,64,32] v) => (float[2,3,64,32] y) {GELU_CONSTANTS} {{
    d = MatMul(q, k) p = Softmax(d) a = MatMul(p, v) {gelu("a", "y")}
}}"""
RMS = """g (float[2,8] x) => (float[2,8] y) <float eps = {0.00001}> {
    q = Mul(x, x) m = ReduceMean<axes = [1]>(q) a = Add(m, eps) r = Sqrt(a) y = Div(x, r)
}"""
SILU = "g (float[2,8] x) => (float[2,8] y) { s = Sigmoid(x) y = Mul(s, x) }"

WRONG_RULE = '''"""x * sigmoid(x) -> Silu(x): but with another alpha."""
from onnxfuse.custom_ops.silu.op import SILU
from onnxfuse.pattern import Var, op
from onnxfuse.rule import Rule
x = Var("x")
RULE = Rule(before=op.Swish(x, alpha=1.0), after=SILU(x, alpha=1.5))
'''
RAISING_RULE = '''"""x * sigmoid(x) -> nothing: it raises."""
from onnxfuse.pattern import Var, op
from onnxfuse.rule import Rule
x = Var("x")
RULE = Rule(before=op.Swish(x, alpha=1.0), after=lambda match: 1 / 0)
'''
CONTRIB_RULE = '''"""x * sigmoid(x) -> QuickGelu(x)."""
from onnxfuse.pattern import Scalar, Var, op, target
from onnxfuse.rule import Rule
x, alpha = Var("x"), Scalar("alpha")
RULE = Rule(before=op.Swish(x, alpha=alpha), after=target("com.microsoft").QuickGelu(x, alpha=alpha))
'''
STANDARD_RULE = '''"""x * hard_sigmoid(x) -> HardSwish(x)."""
from onnxfuse.pattern import Var, op, target
from onnxfuse.rule import Rule
x = Var("x")
RULE = Rule(before=op.HardSwish(x), after=target("").HardSwish(x))
'''
NEARLY_RULE = '''"""exp(tanh(erf(x))) -> exp(x)."""
from onnxfuse.pattern import Var, op, target
from onnxfuse.rule import Rule
x = Var("x")
RULE = Rule(before=op.Exp(op.Tanh(op.Erf(x))), after=target("").Exp(x))
'''
UNKNOWN_OP_RULE = '''"""x * sigmoid(x) -> acme.Silu(x)."""
from onnxfuse.pattern import Var, op, target
from onnxfuse.rule import Rule
x = Var("x")
RULE = Rule(before=op.Swish(x, alpha=1.0), after=target("acme").Silu(x))
'''


@pytest.fixture
def rule_file(tmp_path: Path) -> Path:
    return tmp_path / "mine.py"


def ops(model: onnx.ModelProto) -> list[str]:
    return [n.op_type for n in model.graph.node]


def verdicts(report: api.Report) -> dict[str, Verdict]:
    return {d.rule: d.verdict for d in report.decisions}


# ---- levels


def test_level_all_makes_all_that_matches() -> None:
    assert ops(api.optimize(parse(BOTH), level="all").model) == ["Attention", "Gelu"]


def test_level_elementwise_leaves_attention() -> None:
    assert "Attention" not in ops(api.optimize(parse(BOTH), level="elementwise").model)
    assert {d.rule for d in api.optimize(parse(BOTH), level="elementwise").report.decisions} <= {"gelu"}


SQUARES = """g (float[n,1024] x, float[1024] w) => (float[n,1024] y) <float eps = {0.00001}> {
    s = Mul(x, x) m = ReduceMean<axes = [-1]>(s) e = Add(m, eps) r = Sqrt(e) d = Div(x, r) y = Mul(d, w)
}"""  # the runtime's own fusion wants a Pow


def test_level_cost_makes_what_is_worth_it_and_says_of_the_rest_what_it_would_cost() -> None:
    small = api.optimize(parse(SILU), level="cost")
    assert ops(small.model) == ["Sigmoid", "Mul"]
    assert verdicts(small.report)["silu"] is Verdict.NOT_WORTH_IT
    assert "us (x" in small.report.decisions[0].reason
    large = api.optimize(parse(RMS.replace("[2,8]", "[4096,1024]")), level="cost", verify=False)
    assert ops(large.model) == ["RMSNorm"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("number", range(4))
def test_level_none_is_the_identity(family: str, number: int, tmp_path: Path) -> None:
    model = spell(family, number)
    before = model.SerializeToString()
    assert api.optimize(model, level="none").model.SerializeToString() == before
    onnx.save(model, tmp_path / "in.onnx")
    api.optimize(tmp_path / "in.onnx", tmp_path / "out.onnx", level="none")
    assert (tmp_path / "out.onnx").read_bytes() == (tmp_path / "in.onnx").read_bytes()


@pytest.mark.parametrize("level", LEVELS)
def test_no_rules_is_the_identity_at_every_level(level: str) -> None:
    model = parse(BOTH)
    done = api.optimize(model, level=level, only=["rotary_embedding"])
    assert done.model.SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)


@pytest.mark.parametrize("level", LEVELS)
def test_the_model_given_is_not_changed(level: str) -> None:
    model = parse(BOTH)
    before = model.SerializeToString(deterministic=True)
    api.optimize(model, level=level, verify=False)
    assert model.SerializeToString(deterministic=True) == before


def test_what_was_optimised_is_left_alone_the_second_time() -> None:
    once = api.optimize(parse(BOTH), level="all", verify=False).model
    assert api.optimize(once, level="all").model.SerializeToString(deterministic=True) == once.SerializeToString(deterministic=True)


# ---- rules of the user


def test_a_rule_that_is_wrong_is_rolled_back_and_named(rule_file: Path) -> None:
    rule_file.write_text(WRONG_RULE)
    done = api.optimize(parse(SILU), level="all", rules=[rule_file], only=["mine"])
    assert ops(done.model) == ["Sigmoid", "Mul"]
    (decision,) = done.report.decisions
    assert (decision.rule, decision.verdict) == ("mine", Verdict.ROLLED_BACK)
    assert "values differ" in decision.reason


def test_a_rule_that_is_wrong_makes_room_for_one_that_is_right(rule_file: Path) -> None:
    rule_file.write_text(WRONG_RULE)
    done = api.optimize(parse(SILU), level="all", rules=[rule_file], only=["mine", "silu"])
    assert ops(done.model) == ["Silu"]
    assert_same_numbers(parse(SILU), done.model)
    assert verdicts(done.report)["silu"] is Verdict.FUSED


def test_a_rule_that_raises_is_reported_and_the_rest_go_on(rule_file: Path) -> None:
    rule_file.write_text(RAISING_RULE)
    alone = api.optimize(parse(SILU), level="all", rules=[rule_file], only=["mine"])
    assert [(d.verdict, d.reason) for d in alone.report.decisions] == [
        (Verdict.DECLINED, "the rule raised ZeroDivisionError: division by zero")
    ]
    assert ops(api.optimize(parse(SILU), level="all", rules=[rule_file]).model) == ["Silu"]


def test_a_rule_may_make_an_op_of_onnx_runtime(rule_file: Path) -> None:
    rule_file.write_text(CONTRIB_RULE)
    done = api.optimize(parse(SILU), level="all", rules=[rule_file], only=["mine"])
    assert [(n.domain, n.op_type) for n in done.model.graph.node] == [("com.microsoft", "QuickGelu")]
    assert len(done.model.functions) == 0


def test_a_rule_may_make_a_standard_op(rule_file: Path) -> None:
    rule_file.write_text(STANDARD_RULE)
    model = parse("g (float[2,8] x) => (float[2,8] y) { s = HardSigmoid<alpha = 0.16666667>(x) y = Mul(s, x) }")
    done = api.optimize(model, level="all", rules=[rule_file], only=["mine"])
    assert [(n.domain, n.op_type) for n in done.model.graph.node] == [("", "HardSwish")]
    assert [o.domain for o in done.model.opset_import] == [""]


def test_a_rewrite_to_an_op_that_nothing_can_run_is_not_trusted(rule_file: Path) -> None:
    rule_file.write_text(UNKNOWN_OP_RULE)
    done = api.optimize(parse(SILU), level="all", rules=[rule_file], only=["mine"])
    assert ops(done.model) == ["Sigmoid", "Mul"]
    assert verdicts(done.report)["mine"] is Verdict.ROLLED_BACK
    unverified = api.optimize(parse(SILU), level="all", rules=[rule_file], only=["mine"], verify=False)
    assert [(n.domain, n.op_type) for n in unverified.model.graph.node] == [("acme", "Silu")]


@pytest.mark.parametrize(
    ("content", "words"),
    [("RULE = ", "SyntaxError"), ("x = 1", "defines no rule"), ("import nothing_of_that_name", "nothing_of_that_name")],
)
def test_a_rule_file_that_cannot_be_loaded_says_why(rule_file: Path, content: str, words: str) -> None:
    rule_file.write_text(content)
    with pytest.raises(RuleError, match=words):
        api.optimize(parse(SILU), level="all", rules=[rule_file])


# ---- what is refused; nothing is written then


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"level": "most"}, UsageError),
        ({"only": ["gellu"]}, UsageError),
        ({"disable": ["nothing"]}, UsageError),
        ({"device": "abacus"}, UsageError),
        ({"rules": ["missing.py"]}, RuleError),
        ({"inputs": "missing.npz"}, OnnxFuseError),
        ({"shapes": {"nobody": 3}}, UsageError),
    ],
)
def test_a_wrong_call_is_refused_and_writes_nothing(options: dict[str, object], error: type[Exception], tmp_path: Path) -> None:
    onnx.save(parse(SILU), tmp_path / "in.onnx")
    with pytest.raises(error):
        api.optimize(tmp_path / "in.onnx", tmp_path / "out.onnx", **{"level": "all", **options})  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == ["in.onnx"]


def test_the_output_is_not_the_input(tmp_path: Path) -> None:
    onnx.save(parse(SILU), tmp_path / "in.onnx")
    before = (tmp_path / "in.onnx").read_bytes()
    with pytest.raises(UsageError):
        api.optimize(tmp_path / "in.onnx", tmp_path / "in.onnx", level="all")
    assert (tmp_path / "in.onnx").read_bytes() == before


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.onnx").write_bytes(b"no model at all")
    with pytest.raises(ModelError):
        api.optimize(tmp_path / "in.onnx", tmp_path / "out.onnx")
    assert os.listdir(tmp_path) == ["in.onnx"]


def test_what_is_wrong_as_a_whole_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewrite that slips through validation is caught on the whole model."""
    (tmp_path / "mine.py").write_text(WRONG_RULE)
    monkeypatch.setattr("onnxfuse.validate.verify_rewrite", lambda *args, **options: None)
    onnx.save(parse(SILU), tmp_path / "in.onnx")
    with pytest.raises(VerificationError, match="other numbers"):
        api.optimize(tmp_path / "in.onnx", tmp_path / "out.onnx", level="all", rules=[tmp_path / "mine.py"], only=["mine"])
    assert sorted(os.listdir(tmp_path)) == ["in.onnx", "mine.py"]


def test_weights_in_another_file_are_read_and_kept(tmp_path: Path) -> None:
    model = parse(
        "g (float[2,8] x) => (float[2,8] y) <float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}> { z = Mul(x, w) s = Sigmoid(z) y = Mul(s, z) }"
    )
    onnx.save(model, tmp_path / "in.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    api.optimize(tmp_path / "in.onnx", tmp_path / "out.onnx", level="all")
    done = onnx.load(tmp_path / "out.onnx")
    assert ops(done) == ["Mul", "Silu"]
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(done.graph.initializer[0]), np.arange(1.0, 9.0, dtype=np.float32))


# ---- the report, and near misses


def test_explain_decides_like_optimize_and_writes_nothing() -> None:
    model = parse(BOTH)
    told, done = api.explain(model, level="all"), api.optimize(model, level="all")
    assert {(d.rule, d.value) for d in told.fused} == {(d.rule, d.value) for d in done.report.fused} == {("attention", "a"), ("gelu", "y")}
    assert (told.nodes_before, told.nodes_after) == (8, 2)


def test_explain_tells_how_far_a_pattern_got_and_what_stopped_it(rule_file: Path) -> None:
    rule_file.write_text(NEARLY_RULE)
    model = parse("g (float[2,8] x) => (float[2,8] y) { s = Sin(x) t = Tanh(s) y = Exp(t) }")
    (miss,) = api.explain(model, level="all", rules=[rule_file], only=["mine"]).decisions
    assert (miss.verdict, miss.node) == (Verdict.NEAR_MISS, "y")
    assert miss.reason == "2 of 3 operators match; expected Erf(x), found Sin(x)"


def test_explain_is_silent_where_nothing_is_near() -> None:
    assert api.explain(parse("g (float[2,8] x) => (float[2,8] y) { y = Sin(x) }"), level="all").decisions == ()


def test_progress_and_log_are_told() -> None:
    phases: set[str] = set()
    lines: list[str] = []
    api.optimize(parse(BOTH), level="all", progress=lambda phase, done, total: phases.add(phase), log=lines.append)
    assert {"match", "validate", "verify"} <= phases
    assert any("fused attention" in line for line in lines)


OWN_OP = '''"""sin(x) * y -> SineGate(x, y): an op of a library of one's own."""
from onnxfuse.op import Op
from onnxfuse.pattern import Var, op
from onnxfuse.rule import Rule, same_shape
x, y = Var("x"), Var("y")
SINE_GATE = Op(
    signature="SineGate(x: T[...], y: T[...]) -> (z: T[...])",
    types={"T": ("float",)},
    reference="{ s = Sin(x)  z = Mul(s, y) }",
    tolerance={"float": 1e-6},
    domain="my.library",
)
RULE = Rule(before=op.Sin(x) * y, after=SINE_GATE(x, y), where=[same_shape(x, y)])
'''


def test_an_op_of_ones_own_carries_its_meaning_and_is_not_fused_into_itself(rule_file: Path) -> None:
    rule_file.write_text(OWN_OP)
    model = parse("g (float[2,8] a, float[2,8] b) => (float[2,8] c) { s = Sin(a) c = Mul(b, s) }")
    done = api.optimize(model, level="all", rules=[rule_file], only=["mine"]).model
    assert [(n.domain, n.op_type) for n in done.graph.node] == [("my.library", "SineGate")]
    assert [(f.domain, f.name) for f in done.functions] == [("my.library", "SineGate")]
    assert_same_numbers(model, done)
    again = api.optimize(done, level="all", rules=[rule_file], only=["mine"])
    assert again.model.SerializeToString(deterministic=True) == done.SerializeToString(deterministic=True)
    assert again.report.decisions == ()


@pytest.mark.parametrize(("node", "words"), [("y = Transpose<perm = [0, 5]>(x)", "perm"), ("y = Softmax<axis = 7>(x)", "axis")])
def test_a_node_that_onnx_does_not_accept_is_the_models_fault(node: str, words: str) -> None:
    with pytest.raises(ModelError, match=f"no valid ONNX model.*{words}"):
        api.optimize(parse(f"g (float[2,8] x) => (float[2,8] y) {{ {node} }}"), level="all")


def test_sizes_that_only_contents_speak_of_have_numbers_too() -> None:
    text = """g (float[3,s,4] q, float[3,4,t] k, float[3,1,1] z) => (float[3,s,t] d, float[3,s,1] y) {
        d = MatMul(q, k) n = Shape(d) i = Constant<value = int64[2] {0, 1}>() f = Gather(n, i)
        o = Constant<value = int64[1] {1}>() to = Concat<axis = 0>(f, o) y = Expand(z, to)
    }"""
    assert api.optimize(parse(text), level="all").report.verified


def test_inputs_too_large_for_memory_leave_the_model_as_it_is() -> None:
    text = "g (float[2147483648,1048576] x) => (float[2147483648,1048576] y) { a = Add(x, x) y = Erf(a) }"
    assert not api.optimize(parse(text), level="all").report.fused
