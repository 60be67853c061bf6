"""`--target` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from typer.testing import CliRunner

from onnxfuse.cli import app
from onnxfuse.ruletest import parse
from tests.targets.harness import operators
from tests.targets.texts import GELU


def run(*args: object) -> Any:
    return CliRunner().invoke(app, [str(a) for a in args])


@pytest.fixture
def gelu(tmp_path: Path) -> Path:
    path = tmp_path / "gelu.onnx"
    onnx.save(parse(GELU, 20), path)
    return path


@pytest.mark.parametrize(("target", "operator"), [("contrib", "com.microsoft.Gelu"), ("standard", "Gelu")])
def test_optimize_writes_for_the_target(gelu: Path, tmp_path: Path, target: str, operator: str) -> None:
    out, report = tmp_path / "out.onnx", tmp_path / "report.json"
    done = run("optimize", gelu, out, "--target", target, "--level", "all", "--report", report)
    assert done.exit_code == 0, done.output
    assert f"Target    {target}" in done.output
    assert operators(onnx.load(out))[-1] == operator
    assert json.loads(report.read_text())["target"] == target


def test_explain_tells_of_the_target(gelu: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert run("explain", gelu, "--target", "standard", "--level", "all", "--report", report).exit_code == 0
    decisions = json.loads(report.read_text())["decisions"]
    assert [d["target"] for d in decisions if d["verdict"] == "fused"] == ["Gelu"]


def test_an_unknown_target_ends_with_2(gelu: Path, tmp_path: Path) -> None:
    done = run("optimize", gelu, tmp_path / "out.onnx", "--target", "tensorrt")
    assert done.exit_code == 2
    assert not (tmp_path / "out.onnx").exists()
