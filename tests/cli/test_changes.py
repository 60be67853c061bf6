"""What `optimize` does beside fusing: `--clean` and `--opset`."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from onnxfuse.ruletest import parse
from tests.cli.conftest import Cli, Done

UNTIDY = """<opset_import: ["" : 14]> g (float[batch, 6] x) => (float[batch, 2, 3] y) <int64[1] first = {0}, int64[2] rest = {2, 3}> {
    size = Shape(x)  batch = Gather(size, first)  to = Concat <axis = 0> (batch, rest)
    a = Sigmoid(x)  b = Mul(x, a)  y = Reshape(b, to)
}"""


@pytest.fixture
def untidy(tmp_path: Path) -> Path:
    path = tmp_path / "untidy.onnx"
    onnx.save(parse(UNTIDY), path)
    return path


def operators(path: Path) -> list[str]:
    return [n.op_type for n in onnx.load(path).graph.node]


def opset(path: Path) -> int:
    return int(onnx.load(path).opset_import[0].version)


def said(done: Done, *lines: str) -> None:
    assert done.returncode == 0, done.stderr
    assert [line for line in lines if line not in done.stdout] == [], done.stdout


def test_clean_goes_with_fusing(cli: Cli, untidy: Path, tmp_path: Path) -> None:
    done = cli("optimize", untidy, tmp_path / "out.onnx", "--level", "all", "--only", "silu", "--clean", "--report", tmp_path / "r.json")
    said(done, "Cleaned   3 nodes went: 3 unread", "Nodes     6 -> 2", "same on")
    assert operators(tmp_path / "out.onnx") == ["Silu", "Reshape"]
    assert json.loads((tmp_path / "r.json").read_text())["changes"] == ["Cleaned   3 nodes went: 3 unread"]


def test_clean_goes_without(cli: Cli, untidy: Path, tmp_path: Path) -> None:
    said(cli("optimize", untidy, tmp_path / "out.onnx", "--level", "none", "--clean"), "Cleaned   3 nodes went", "largest error 0 ")
    assert operators(tmp_path / "out.onnx") == ["Sigmoid", "Mul", "Reshape"]


def test_clean_of_what_is_clean_is_a_copy_byte_for_byte(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    said(cli("optimize", gelu, tmp_path / "out.onnx", "--level", "none", "--clean"), "byte-for-byte copy")
    assert (tmp_path / "out.onnx").read_bytes() == gelu.read_bytes()


def test_later_opset_brings_its_operators(cli: Cli, untidy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    said(cli("optimize", untidy, out, "--opset", "24", "--target", "standard", "--level", "all"), "Opset     14 -> 24", "same on")
    assert opset(out) == 24 and "Swish" in operators(out) and opset(untidy) == 14


@pytest.mark.parametrize("number", [13, 999])
def test_opset_that_cannot_be_is_refused(cli: Cli, untidy: Path, tmp_path: Path, number: int) -> None:
    done = cli("optimize", untidy, tmp_path / "out.onnx", "--opset", number)
    assert done.returncode == 2 and "--opset must be from 14, which the model has, to " in done.stderr
    assert not (tmp_path / "out.onnx").exists()


def test_model_with_functions_is_not_raised(cli: Cli, gelu: Path, tmp_path: Path) -> None:
    fused = tmp_path / "fused.onnx"
    assert cli("optimize", gelu, fused, "--level", "all").returncode == 0
    done = cli("optimize", fused, tmp_path / "out.onnx", "--opset", 20)
    assert done.returncode == 1 and "has functions of its own" in done.stderr and "Leave --opset out" in done.stderr
