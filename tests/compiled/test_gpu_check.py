"""The script for a machine with a GPU ends well where there is none, and says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.compiled.client import ROOT

BENCHMARKS = ROOT / "benchmarks"


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), str(BENCHMARKS)])
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": paths, **environment}, capture_output=True, text=True, cwd=ROOT)


def test_without_python_nothing_is_checked(tmp_path: Path) -> None:
    done = run("bash", str(BENCHMARKS / "gpu_check.sh"), str(tmp_path), PYTHON="/nowhere/python")
    assert done.returncode == 0 and "no /nowhere/python here: nothing is checked" in done.stdout


def test_without_a_gpu_nothing_is_checked(tmp_path: Path) -> None:
    """CUDA_VISIBLE_DEVICES hides what there may be."""
    done = run("bash", str(BENCHMARKS / "gpu_check.sh"), str(tmp_path), PYTHON=sys.executable, CUDA_VISIBLE_DEVICES="-1")
    assert done.returncode == 0, done.stderr
    assert "missing: an NVIDIA GPU that the driver shows" in done.stdout and "nothing is checked" in done.stdout
    assert json.loads((tmp_path / "machine.json").read_text())["gpus"] == []


def test_what_was_not_measured_stands_in_the_table(tmp_path: Path) -> None:
    row = {"case": "attention", "ours": "1.0", "other": "2.0 us flash", "ratio": "2.00", "peak": "70%"}
    (tmp_path / "times.json").write_text(json.dumps([row]))
    done = run(sys.executable, str(BENCHMARKS / "gpu_check.py"), "table", str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert lines[2:] == [
        "| numbers | not measured | | | |",
        "| attention | 1.0 | 2.0 us flash | 2.00 | 70% |",
        "| sessions | not measured | | | |",
    ]
