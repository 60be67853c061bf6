"""Runs the command line as users do: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx.parser
import pytest

import onnxfuse

Done = subprocess.CompletedProcess[str]
Cli = Callable[..., Done]
SAME = {**os.environ, "PYTHONPATH": str(Path(onnxfuse.__path__[0]).parent)}  # a new process finds the onnxfuse that is tested

GELU = """<ir_version: 8, opset_import: ["" : 17]>
gelu (float[batch, 8] x) => (float[batch, 8] y) {
  root = Constant <value = float {1.4142135}> ()
  two = Constant <value = float {2.0}> ()
  one = Constant <value = float {1.0}> ()
  scaled = Div (x, root)
  erf = Erf (scaled)
  sum = Add (erf, one)
  product = Mul (sum, x)
  y = Div (product, two)
}"""


def run_python(*args: object, cwd: Path | None = None, **environment: str) -> Done:
    """Run this Python with these arguments."""
    command = [sys.executable, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, env={**SAME, **environment})


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """`cli("optimize", a, b)` in an empty folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    return lambda *args, **environment: run_python("-m", "onnxfuse", *args, cwd=folder, **environment)


@pytest.fixture
def gelu(tmp_path: Path) -> Path:
    """A model that is one GELU spelled out."""
    path = tmp_path / "gelu.onnx"
    onnx.save(onnx.parser.parse_model(GELU), path)
    return path
