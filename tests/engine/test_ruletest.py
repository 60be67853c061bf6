"""A rule file is tested by its examples and by models made up from its patterns; what it gets wrong is shown."""

from __future__ import annotations

import random
from pathlib import Path

import onnx
import pytest

from onnxfuse import ruletest
from onnxfuse.errors import RuleError
from onnxfuse.pattern import Scalar, Var, either, op, optional
from onnxfuse.pattern_models import make_up
from onnxfuse.rule import Rule
from onnxfuse.ruletest import RuleResult
from onnxfuse.spelling import Unsuitable
from tests.cli.conftest import run_python
from tests.engine.harness import shipped

HEAD = """
from onnxfuse.custom_ops.geglu.op import GEGLU
from onnxfuse.custom_ops.gelu.op import GELU
from onnxfuse.custom_ops.layer_norm.op import LAYER_NORM
from onnxfuse.custom_ops.silu.op import SILU
from onnxfuse.pattern import Scalar, Var, op, optional, target
from onnxfuse.rule import Rule, last_axis_vector
x, y, bias, alpha = Var("x"), Var("y"), Var("bias", constant=True), Scalar("alpha")
"""
EXAMPLE = '"g (float[2,8] x) => (float[2,8] y) { s = Sigmoid(x) y = Mul(s, x) }"'
READ_TWICE = '"g (float[2,8] x) => (float[2,8] y, float[2,8] s) { s = Sigmoid(x) y = Mul(s, x) }"'
RIGHT = f"""RULE = Rule(
    before=op.Swish(x, alpha=alpha), after=SILU(x, alpha=alpha), fires_on=[{EXAMPLE}], declines={{"read by nobody": {READ_TWICE}}}
)"""

WRONG = {
    "a forgotten attribute": "RULE = Rule(before=op.Swish(x, alpha=alpha), after=SILU(x))",
    "a forgotten scalar": 'RULE = Rule(before=op.Swish(Scalar("k") * op.Erf(x), alpha=1.0), after=SILU(x))',
    "a number that is not the one": "RULE = Rule(before=op.Swish(x, alpha=1.0) * 2, after=SILU(x, alpha=1.0))",
    "exchanged operands": 'RULE = Rule(before=op.Gelu(x, approximate="none") * op.Neg(y), after=GEGLU(y, x))',
    "a bias that may be no vector": 'RULE = Rule(before=op.Exp(x + y), after=target("").Exp(x))',
    "another type of epsilon": "RULE = Rule(before=op.LayerNormalization(x, axes=alpha, epsilon=Scalar('e')), after=LAYER_NORM(x))",
}


def outcome(folder: Path, content: str, models: int = 20) -> RuleResult:
    (folder / "mine.py").write_text(f'"""a -> b."""{HEAD}{content}\n')
    (result,) = ruletest.test_rules(folder / "mine.py", models=models)
    return result


def test_a_rule_that_is_right_passes_and_fires_on_made_up_models(tmp_path: Path) -> None:
    result = outcome(tmp_path, RIGHT)
    assert (result.rule, result.fired, result.declined, result.failures) == ("mine", 1, 1, ())
    assert result.made_up >= 15 and result.fused >= 8


@pytest.mark.parametrize("name", WRONG)
def test_a_rule_that_is_wrong_is_told_with_the_smallest_model_that_shows_it(name: str, tmp_path: Path) -> None:
    result = outcome(tmp_path, WRONG[name], models=25)
    assert result.smallest is not None and result.smallest.model is not None
    assert result.smallest.what.startswith("made up from the pattern: ")
    assert len(result.smallest.model.graph.node) == min(len(f.model.graph.node) for f in result.failures if f.model is not None)
    assert onnx.parser.parse_model(result.smallest.text).graph.node


def test_the_same_models_are_made_up_each_time(tmp_path: Path) -> None:
    first, second = (outcome(tmp_path, WRONG["a forgotten attribute"]) for _ in range(2))
    assert [f.text for f in first.failures] == [f.text for f in second.failures] != []


@pytest.mark.parametrize(
    ("examples", "words"),
    [
        (
            f"fires_on=[{READ_TWICE}]",
            "must be fused once; it was fused 0 times. The report says: 's' (Sigmoid) must be read by nobody else",
        ),
        ('fires_on=["g (float[2,8] x) => (float[2,8] y) { y = Sin(x) }"]', "it was fused 0 times. The pattern does not match"),
        (f'declines={{"read by nobody": {EXAMPLE}}}', "an example of declines was fused; it must decline: read by nobody"),
        (f'declines={{"of the moon": {READ_TWICE}}}', "must decline: of the moon. The report says: 's' (Sigmoid) must be read by nobody"),
    ],
)
def test_an_example_that_does_not_do_what_it_should_is_told(examples: str, words: str, tmp_path: Path) -> None:
    result = outcome(tmp_path, f"RULE = Rule(before=op.Swish(x, alpha=alpha), after=SILU(x, alpha=alpha), {examples})", models=0)
    assert [words in f.what for f in result.failures] == [True], [f.what for f in result.failures]


def test_an_example_that_is_no_onnx_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="must be ONNX text"):
        outcome(tmp_path, 'RULE = Rule(before=op.Swish(x, alpha=alpha), after=SILU(x), fires_on=["y = x"])')


def test_a_rule_that_raises_fails(tmp_path: Path) -> None:
    result = outcome(tmp_path, "RULE = Rule(before=op.Swish(x, alpha=alpha), after=lambda match: 1 / 0)", models=5)
    assert result.smallest is not None and "the rule raised ZeroDivisionError" in result.smallest.what


def test_an_op_that_nothing_can_run_asks_for_its_library(tmp_path: Path) -> None:
    result = outcome(tmp_path, 'RULE = Rule(before=op.Swish(x, alpha=alpha), after=target("acme").Silu(x))', models=5)
    assert result.smallest is not None and "acme: Silu" in result.smallest.what and "--library" in result.smallest.what


def test_examples_may_say_their_opset() -> None:
    assert ruletest.parse("g (float[2] x) => (float[2] y) { y = Neg(x) }").opset_import[0].version == ruletest.DEFAULT_OPSET
    model = ruletest.parse('<opset_import: ["" : 20]> g (float[2] x) => (float[2] y) { y = Gelu(x) }')
    assert model.opset_import[0].version == 20 and model.ir_version == 8


# ---- models made up from patterns


# a rule that retargets has one operator as its pattern, which nothing else spells
SPELLED = {name: rule for name, rule in shipped().items() if not rule.retargets}


@pytest.mark.parametrize("rule", SPELLED.values(), ids=SPELLED)
def test_models_are_made_up_from_every_pattern_that_ships(rule: Rule) -> None:
    made, unsuitable = [], 0
    for number in range(40):
        try:
            made.append(make_up(rule.before, random.Random(number)))
        except Unsuitable:
            unsuitable += 1
    assert len(made) >= 5
    assert len({m.model.SerializeToString(deterministic=True) for m in made}) == len(made)
    assert {"", *(m.disturbance for m in made)} != {""}


def test_every_alternative_and_every_usual_attribute_comes_up() -> None:
    x, y = Var("x"), Var("y")
    pattern = op.Clip(either(op.Exp(x), op.Tanh(x)) + optional(op.Neg(y)), min=0.0, max=Scalar("top"))
    models = [make_up(pattern, random.Random(n)).model for n in range(60)]
    kinds = [{n.op_type for n in m.graph.node} for m in models]
    assert any("Exp" in k for k in kinds) and any("Tanh" in k for k in kinds)
    assert {len([i for i in m.graph.input if i.name == "y"]) for m in models} == {0, 1}


def test_a_var_has_one_tensor_and_a_constant_var_a_weight() -> None:
    x, weight = Var("x"), Var("weight", constant=True)
    for number in range(20):
        model = make_up(op.Exp(x * weight) + op.Tanh(x), random.Random(number)).model
        assert [i.name for i in model.graph.input].count("x") <= 1
        assert "weight" not in [i.name for i in model.graph.input]


# ---- the command


def test_the_command_prints_a_row_per_rule_and_passes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f'"""a -> b."""{HEAD}{RIGHT}\n')
    done = run_python("-m", "onnxfuse", "rules", "test", "mine.py", "--models", "10", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 fire, 1 decline" in done.stdout and "every number stayed" in done.stdout
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".onnx"] == []


def test_the_command_shows_and_writes_a_counter_example_and_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f'"""a -> b."""{HEAD}{WRONG["a forgotten attribute"]}\n')
    (tmp_path / "found").mkdir()
    done = run_python("-m", "onnxfuse", "rules", "test", "mine.py", "--models", "15", "--counterexamples", "found", cwd=tmp_path)
    assert done.returncode == 1
    assert "the rewrite changes a number" in done.stdout and "spelled (" in done.stdout
    assert "mine must keep every number" in done.stderr and "Traceback" not in done.stderr
    assert onnx.load(tmp_path / "found" / "mine_counterexample.onnx").graph.node


def test_the_command_refuses_a_file_that_is_none(tmp_path: Path) -> None:
    done = run_python("-m", "onnxfuse", "rules", "test", "missing.py", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("error: missing.py")
