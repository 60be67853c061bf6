"""Every example: fused whole, equal with the library and without it, and found by what the documents say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxfuse
from onnxfuse.inputs import feeds
from onnxfuse.library import rules_in
from tests.cli.conftest import Cli, run_python

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.onnx"))
BIASED_SILU = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] a) => (float[n, 4] y) <float[4] b = {1.0, 2.0, 3.0, 4.0}> { s = Add(b, a) g = Sigmoid(s) y = Mul(s, g) }"""


def ops(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def test_there_is_a_model_of_each_family_from_each_exporter() -> None:
    assert {p.stem for p in EXAMPLES} >= {
        f"{family}_{way}" for family in ("bert", "gpt2", "llama", "vit") for way in ("dynamo", "torchscript")
    }
    assert [p.name for p in EXAMPLES if p.stat().st_size >= 10**6] == []


@pytest.mark.parametrize("source", EXAMPLES, ids=lambda p: p.stem)
def test_every_attention_is_fused_and_the_numbers_stay(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.onnx"
    onnxfuse.optimize(source, target, level="all")
    assert "Softmax" in ops(source) and "Softmax" not in ops(target)
    assert ops(target).count("Attention") == ops(source).count("Softmax")
    cpu = ["CPUExecutionProvider"]
    original = onnxruntime.InferenceSession(str(source), providers=cpu)
    ways = [onnxfuse.session(target, cpu), onnxruntime.InferenceSession(str(target), providers=cpu)]
    for feed in feeds(onnx.load(source), seed=7):
        want = original.run(None, feed)
        for session in ways:
            for a, b in zip(session.run(None, feed), want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("source", EXAMPLES[:2], ids=lambda p: p.stem)
def test_optimising_again_changes_nothing(source: Path, tmp_path: Path) -> None:
    once, twice = tmp_path / "once.onnx", tmp_path / "twice.onnx"
    onnxfuse.optimize(source, once, level="all", verify=False)
    report = onnxfuse.optimize(once, twice, level="all", verify=False).report
    assert [d.rule for d in report.fused] == []
    assert twice.read_bytes() == once.read_bytes()


def test_session_script_runs(tmp_path: Path) -> None:
    done = run_python(ROOT / "examples" / "run_session.py", EXAMPLES[0], tmp_path / "out.onnx")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("largest difference") == 9


def test_users_rule_fuses_into_an_operator_of_onnx_runtime(cli: Cli, tmp_path: Path) -> None:
    options = ("--rules", ROOT / "examples" / "my_rules.py", "--only", "my_rules.gelu", "--level", "all")
    done = cli("optimize", ROOT / "examples" / "bert_torchscript.onnx", tmp_path / "out.onnx", *options)
    assert done.returncode == 0, done.stderr
    assert ops(tmp_path / "out.onnx").count("BiasGelu") == 2
    assert "No place" not in done.stdout, "of the rule that --only leaves out"
    done = cli("optimize", ROOT / "examples" / "bert_torchscript.onnx", tmp_path / "out.onnx", *options[:2])
    assert "No place  my_rules.silu_of_sum" in done.stdout


def test_users_rule_fuses_into_one_of_our_operators(cli: Cli, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(BIASED_SILU), tmp_path / "in.onnx")
    options = ("--rules", ROOT / "examples" / "my_rules.py", "--only", "my_rules.silu_of_sum", "--level", "all")
    done = cli("optimize", tmp_path / "in.onnx", tmp_path / "out.onnx", *options)
    assert done.returncode == 0, done.stderr
    assert ops(tmp_path / "out.onnx") == ["Silu"]


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "examples" / "README.md"]


@pytest.mark.parametrize("document", documents(), ids=lambda p: str(p.relative_to(ROOT)))
def test_documents_name_only_options_and_files_that_exist(document: Path, cli: Cli) -> None:
    text = document.read_text(encoding="utf-8")
    commands = set(
        re.findall(
            r"onnxfuse (optimize|verify|explain|rules|ops|devices|bench|doctor|calibrate|kernels show|kernels build|kernels check)\b", text
        )
    )
    known = {"--help", "--version", *(option for c in commands for option in re.findall(r"--[a-z-]+", cli(*c.split(), "--help").stdout))}
    used = {option for line in re.findall(r"onnxfuse [^`\n]*", text) for option in re.findall(r"(?<![\w-])--[a-z-]+", line)}
    assert commands and used - known == set()
    files = re.findall(r"(?:examples|docs|rules|custom_ops|cost|tests)/[\w./-]+\.(?:onnx|py|md|cc|h|toml)", text)
    assert [f for f in files if not (ROOT / f).exists()] == []


def test_readme_shows_the_rules_that_ship_as_an_example() -> None:
    rules = (ROOT / "examples" / "my_rules.py").read_text(encoding="utf-8")
    assert rules in (ROOT / "README.md").read_text(encoding="utf-8")


SCALED = "g (float[2,3] x, float[3,4] w) => (float[2,4] y)"


def test_what_the_readme_shows_for_python_runs(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "libonnxfuse_ops.so").symlink_to(onnxfuse.library_path())
    blocks = re.findall(r"```python\n(import .*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    done = [run_python("-c", block, cwd=tmp_path) for block in blocks]
    assert [d.stderr for d in done if d.returncode] == [] and len(done) == 2
    assert "fusions," in done[0].stdout


BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "rules.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n", 1)[0])
def test_every_rule_in_the_documents_is_read(block: str, tmp_path: Path) -> None:
    (tmp_path / "documented.py").write_text(block, encoding="utf-8")
    assert list(rules_in(tmp_path / "documented.py")) == ["documented"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("g (float[2,8] x) => (float[2,8] y) { s = Sigmoid(x) y = Mul(s, x) }", "[FUSION] fused documented: Sigmoid + Mul -> "),
        ("g (float[2,8] x) => (float[2,8] y) { s = LogSoftmax(x) y = Exp(s) }", "[FUSION] fused documented: LogSoftmax + Exp -> "),
        ("g (float[2,9999] x) => (float[2,9999] y) { s = LogSoftmax(x) y = Exp(s) }", "x must have at most 4096 columns; it has 9999"),
        (
            f"{SCALED} {{ a = Constant<value = float {{0.5}}>() p = MatMul(x, w) y = Mul(p, a) }}",
            "[FUSION] fused documented: MatMul + Mul -> ",
        ),
        (f"{SCALED} {{ a = Constant<value = float {{0.3}}>() p = MatMul(x, w) y = Mul(p, a) }}", "alpha must be a power of two"),
    ],
)
def test_every_rule_in_the_documents_does_what_is_said(text: str, line: str, tmp_path: Path) -> None:
    lines: list[str] = []
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    for number, block in enumerate(BLOCKS):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "documented.py").write_text(block, encoding="utf-8")
        onnxfuse.optimize(model, level="all", rules=[tmp_path / str(number) / "documented.py"], only=["documented"], log=lines.append)
    assert [found for found in lines if line in found], lines
