"""`onnxfuse explain`: what each way to fuse would cost, sizes at which decisions flip, and models without data."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest

import onnxfuse
from tests.cli.conftest import Cli

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "gpt2_dynamo.onnx"
# as published, but for GPT-2: its table of tokens stands twice, and its positions are an input
WEIGHTS = {"GPT-2 small": 124_439_808 + 50257 * 768 - 1024 * 768, "LLaMA-7B": 6_738_415_616, "LLaMA-70B": 68_976_648_192}


@pytest.fixture(scope="module")
def blueprints() -> Any:
    """The module of models that are built from sizes alone."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield importlib.import_module("blueprints")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def test_strategies_stand_side_by_side(cli: Cli, tmp_path: Path) -> None:
    done = cli("explain", EXAMPLE, "--strategies", "--device", "h100", "--report", tmp_path / "r.json")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    for words in ("none", "element-wise only", "full, without attention", "full, with attention"):
        assert any(row[: len(words.split())] == words.split() for row in rows), words
    assert "Predicted on h100, at " in done.stdout
    plans = {p["name"]: p for p in json.loads((tmp_path / "r.json").read_text())["plans"]}
    assert plans["full"]["time_us"] < plans["elementwise"]["time_us"] < plans["none"]["time_us"]
    assert plans["full"]["launches"] < plans["none"]["launches"] and plans["chosen"] == {**plans["full"], "name": "chosen"}


def test_explain_says_at_which_sizes_decisions_flip(cli: Cli) -> None:
    done = cli("explain", EXAMPLE, "--device", "cpu-generic", "--rule", "skip_layer_norm", "--range-loss", "1000")
    assert "pays from " in "".join(done.stdout.split("\n")) and "Priced    on cpu-generic, at " in done.stdout


def test_size_of_fusions_is_limited(cli: Cli, gelu: Path) -> None:
    done = cli("explain", gelu, "--level", "all", "--max-fusion-size", "3")
    assert done.returncode == 0 and "5 nodes > 3" in done.stdout and "1 not worth it" in done.stdout


def test_blueprints_have_as_many_weights_as_the_models(blueprints: Any) -> None:
    found = {c.name: sum(prod(t.dims) for t in build(c).graph.initializer if t.name.startswith("w")) for c, build in blueprints.BLUEPRINTS}
    assert found == WEIGHTS


@pytest.mark.parametrize("index", range(3))
def test_blueprint_is_fused_layer_by_layer_without_its_data(blueprints: Any, index: int) -> None:
    config, build = blueprints.BLUEPRINTS[index]
    model = build(replace(config, layers=2))
    assert model.ByteSize() < 1_000_000
    report = onnxfuse.explain(model, device="a100", shapes={"batch": 1, "seq": config.length})
    rules = [d.rule for d in report.fused]
    sums = ("skip_layer_norm", "skip_rms_norm", "linear.residual")  # a residual sum goes with the norm behind it or the product before it
    assert rules.count("attention") == 2 and sum(map(rules.count, sums)) == 4
    assert rules.count("rotary_embedding") == (0 if config.name.startswith("GPT") else 4)
    plans = {p.name: p for p in report.plans}
    assert plans["full"].time_us < plans["without attention"].time_us <= plans["elementwise"].time_us < plans["none"].time_us
