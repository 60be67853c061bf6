"""What `doctor` finds, and what it says to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from onnxfuse import doctor, runtime
from onnxfuse.doctor import State
from tests.cli.conftest import Cli, run_python


def findings() -> dict[str, doctor.Finding]:
    return {f.part: f for f in doctor.examine()}


def test_here_everything_needed_is_there(cli: Cli) -> None:
    done = cli("doctor")
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("Ready: models can be optimised and run\n")
    found = findings()
    assert str(runtime.library_path()) in found["Operator library"].found
    assert "onnxruntime" in found["ONNX Runtime"].found and "kernels run on" in found["CPU"].found


def test_every_remedy_goes_with_something_to_mend() -> None:
    found = findings()
    assert len(found) >= 8
    assert [f for f in found.values() if (f.state is State.GOOD) == bool(f.remedy)] == []


def test_two_runtimes_clash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed_runtimes", lambda: {"onnxruntime": "1.23.2", "onnxruntime-gpu": "1.22.0"})
    found = findings()["ONNX Runtime"]
    assert found.state is State.BROKEN and "overwrite" in found.found
    assert "pip uninstall -y onnxruntime onnxruntime-gpu" in found.remedy


def test_old_runtime_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime.require_onnxruntime(), "__version__", "1.17.3")
    found = findings()["ONNX Runtime"]
    assert found.state is State.BROKEN and "pip install -U onnxruntime" in found.remedy


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("onnxfuse.__path__", [str(tmp_path)])
    monkeypatch.setattr(runtime, "_installed", lambda name: iter(()))
    assert findings()["Operator library"].state is State.BROKEN


def test_library_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(b"no library")
    monkeypatch.setattr(runtime, "library_path", lambda: tmp_path / "lib.so")
    found = findings()["Operator library"]
    assert found.state is State.BROKEN and "lib.so" in found.found and "pip install" in found.remedy


def test_profile_that_was_measured_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = replace(doctor.find("cpu"), confidence="high", sources=("measured by `onnxfuse calibrate` on 2026-11-30",))
    monkeypatch.setattr(doctor, "find", lambda name: measured)
    found = findings()["Cost model"]
    assert found.state is State.GOOD and "measured by `onnxfuse calibrate` on 2026-11-30" in found.found


WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(("onnx", "numpy", "onnxruntime", "onnx_graphsurgeon", "google.protobuf", "ml_dtypes")))
from onnxfuse.cli import main
main()
"""


def test_doctor_comes_to_its_end_where_nothing_else_can_be_imported() -> None:
    done = run_python("-c", WITHOUT, "doctor")
    assert done.returncode == 1 and done.stderr == ""
    assert "Not ready: onnx, onnx-graphsurgeon, numpy, ONNX Runtime, Operator library" in done.stdout


def test_other_commands_then_say_what_is_missing() -> None:
    done = run_python("-c", WITHOUT, "rules")
    assert done.returncode == 1 and done.stderr.startswith("error: ") and "onnxfuse doctor" in done.stderr


@pytest.mark.parametrize(
    ("flags", "wish", "isa"),
    [
        (doctor.AMX, "", "amx"),
        (doctor.AMX, "avx512", "avx512"),
        (doctor.AMX - {"avx512vl"}, "", "avx2"),
        (doctor.AVX512, "", "avx512"),
        (doctor.AVX512 - {"avx512vl"}, "", "avx2"),
        (doctor.AVX2 - {"f16c"}, "", "baseline"),
        (doctor.AVX512, "avx2", "avx2"),
        (doctor.AVX2, "avx512", "avx2"),
        (doctor.AVX512, "sse9", "avx512"),
    ],
)
def test_chosen_instruction_set(monkeypatch: pytest.MonkeyPatch, flags: frozenset[str], wish: str, isa: str) -> None:
    monkeypatch.setenv("ONNXFUSE_ISA", wish)
    assert doctor.chosen_isa(flags) == isa


def test_gpu_without_a_runtime_for_it_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "gpus", lambda: ["NVIDIA H200"])
    monkeypatch.setattr(runtime.require_onnxruntime(), "get_available_providers", lambda: ["CPUExecutionProvider"])
    found = findings()["GPUs"]
    assert found.state is State.NOTE and "H200" in found.found and "onnxruntime-gpu" in found.remedy


def test_check_that_fails_in_its_own_way_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Iterator[Mapping[str, str]]:
        raise OSError("no such thing")

    monkeypatch.setattr(doctor, "gpus", broken)
    assert any(f.state is State.BROKEN and "no such thing" in f.found for f in doctor.examine())
