"""Kernels are built, kept, and judged, with no GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onnxfuse.errors import KernelError, RuntimeMissingError, UsageError
from onnxfuse.kernel_build import build, cubin, gate, sass
from onnxfuse.kernel_build.sass import Instruction
from onnxfuse.triton_kernel import BYTES
from tests.compiled.client import compiled_ops, every_kernel

KERNELS = {op: every_kernel(op) for op in compiled_ops()}
TYPES = ("float", "float16", "bfloat16")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One kernel, built."""
    made = tmp_path_factory.mktemp("kernels")
    assert build.build(build.tasks([90], ["attention_float16_64"]), made, jobs=1).failed == {}
    return made


def test_every_run_has_a_kernel_without_conditions() -> None:
    """The host registers an operator by these: one for every type, and every mask."""
    for op, kernels in KERNELS.items():
        masks = ["none", "bool", *TYPES] if op == "Attention" else [""]
        free = [(k.variant["dtype"], k.variant.get("mask", "")) for k in kernels if k.role == "tile" and not k.conditions]
        assert sorted(free) == sorted((dtype, mask) for dtype in TYPES for mask in masks)


@pytest.mark.parametrize("op", KERNELS)
@pytest.mark.parametrize("arch", build.ARCHS)
def test_names_and_ranks_tell_kernels_apart(op: str, arch: int) -> None:
    kernels = every_kernel(op, arch)
    assert len({k.name for k in kernels}) == len(kernels)
    ranked = [(k.role, *k.variant.items(), k.rank) for k in kernels]
    assert len(set(ranked)) == len(ranked)


@pytest.mark.parametrize("op", KERNELS)
def test_promised_alignment_is_one_load(op: str) -> None:
    for kernel in KERNELS[op]:
        pointers = {name for name, kind in kernel.types.items() if kind.startswith("*")}
        for condition in kernel.conditions:
            if condition.align is not None and condition.name not in ("depth", *pointers):
                width = BYTES[kernel.variant["mask" if condition.name.startswith("mask_") else "dtype"]]
                assert condition.align * width == 16, (kernel.name, condition)
            assert condition.align in (None, 16) or condition.name not in pointers


def test_what_is_built_says_what_the_host_must_know(folder: Path) -> None:
    (facts,) = build.facts(folder)
    assert (facts["op"], facts["role"], facts["variant"]) == ("Attention", "tile", {"dtype": "float16", "mask": "none"})
    assert (facts["arch"], facts["target"], facts["stack"], facts["scratch"]) == (90, "sm_90a", 0, 0)
    assert facts["tile"]["q"] == 128 and facts["block"] == [128, 1, 1] and facts["ptx"] <= "9.0"
    assert [a["name"] for a in facts["arguments"]][-2:] == ["global_scratch", "profile_scratch"]
    assert {"name": "q", "align": 16} in facts["conditions"] and {"name": "head_size", "equals": 64} in facts["conditions"]
    read = cubin.read(Path(facts["path"]).read_bytes())
    assert (read.name, read.registers, len(read.parameters)) == (facts["entry"], facts["registers"], len(facts["arguments"]))


def test_what_has_not_changed_is_kept(folder: Path) -> None:
    (task,) = build.tasks([90], ["attention_float16_64"])
    before = (folder / f"{task.stem}.json").stat().st_mtime_ns
    assert build.build([task], folder, jobs=1).kept == (task.stem,)
    assert (folder / f"{task.stem}.json").stat().st_mtime_ns == before
    (other,) = build.tasks([90], ["attention_float16_64"], newest_ptx=89)
    assert other.source != task.source


def test_a_kernel_that_does_not_compile_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    (good,) = build.tasks([80], ["attention_float16_combine"])
    bad = replace(good, kernel=replace(good.kernel, name="nobody"))
    built = build.build([bad, good], tmp_path, jobs=2)
    assert built.made == (good.stem,) and list(built.failed) == [bad.stem]
    assert "the compiler ended with 1" in built.failed[bad.stem]


def test_a_changed_cubin_is_not_taken(folder: Path, tmp_path: Path) -> None:
    (facts,) = build.facts(folder)
    stem = Path(facts["path"]).stem
    (tmp_path / f"{stem}.json").write_bytes((folder / f"{stem}.json").read_bytes())
    with pytest.raises(KernelError, match="must be JSON beside its cubin"):
        build.facts(tmp_path)
    (tmp_path / f"{stem}.cubin").write_bytes(b"\x7fELF")
    with pytest.raises(KernelError, match="is of another cubin"):
        build.facts(tmp_path)
    with pytest.raises(KernelError, match="must be a 64-bit ELF file"):
        cubin.read(b"\x7fELF")


def test_without_triton_the_command_that_brings_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RuntimeMissingError, match=r'pip install "onnxfuse\[kernels\]"'):
        build.tasks([80])


def test_wrong_requests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert build.arch_number("sm_90a") == build.arch_number("90") == 90
    with pytest.raises(UsageError, match="--arch must be one of sm_80"):
        build.arch_number("sm_75")
    with pytest.raises(UsageError, match="no kernel is called 'attention_float16'"):
        build.tasks([80], ["attention_float16"])
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(UsageError, match="Unset it"):
        build.tasks([80])


def test_the_gate_passes_a_good_kernel_and_says_what_is_wrong_with_others(folder: Path) -> None:
    (facts,) = build.facts(folder)
    verdict = gate.judge(facts)
    assert verdict.complaints == () and verdict.share >= gate.LEAST_SHARE and verdict.mix["HGMMA"] > 0
    wrong: dict[str, Any] = {"stack": 8, "shared": 1 << 18, "block": [32, 1, 1]}
    said = " ".join(gate.judge({**facts, **wrong}).complaints)
    assert "does not start: smem" in said and "8 bytes of stack" in said and "loads of 16 bytes in the hot loop, where" in said
    assert "no HMMA in the hot loop" in " ".join(gate.judge({**facts, "arch": 80}).complaints)


def test_without_a_disassembler_nothing_is_judged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (facts,) = build.facts(folder)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(RuntimeMissingError, match="needs nvdisasm"):
        gate.judge(facts)


def test_the_hot_loop_is_the_innermost_with_most_products() -> None:
    product, other = Instruction("HMMA", ".16816.F32"), Instruction("FADD", "")
    outer = [
        other,
        other,
        product,
        Instruction("BRA", "", 2),
        other,
        product,
        product,
        Instruction("BRA", "", 5),
        Instruction("BRA", "", 0),
    ]
    assert list(sass.hot_loop(outer)) == outer[5:8]
    waits = [product, other, Instruction("BRA", "", 1), product, Instruction("BRA", "", 0)]
    assert list(sass.hot_loop(waits)) == waits
    assert sass.hot_loop([other, other]) == [other, other]
    assert (product.products, Instruction("HGMMA", ".64x128x16.F32").products) == (2048, 32768)
    assert Instruction("HMMA", ".1688.F32.TF32").is_tf32
