"""The generated text, compiled for real: no spills, loads of 16 bytes. Two architectures; benchmarks/gpu_registers.py has them all."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from benchmarks.gpu_registers import Sample, samples
from onnxfuse import gpu_code
from onnxfuse.commands import kernels as command
from onnxfuse.errors import RuntimeMissingError, UsageError

ARCHS = (80, 90)
SAMPLES = {sample.name: sample for sample in samples()}
CHOSEN = list(SAMPLES.values())[::4]


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    try:
        gpu_code.compiler()
    except RuntimeMissingError as error:
        pytest.skip(f"generated text is not compiled here: {error}")


def _kernels(sample: Sample) -> list[gpu_code.Kernels]:
    return gpu_code.kernels_of(sample.op, sample.attributes, sample.inputs, sample.outputs)


@pytest.mark.parametrize("sample", CHOSEN, ids=[s.name for s in CHOSEN])
def test_kernels_compile_without_spills(sample: Sample) -> None:
    for kernels in _kernels(sample):
        for arch in ARCHS:
            made = gpu_code.compiled(kernels.source, arch)
            assert [m.name for m in made] == list(kernels.names) or {m.name for m in made} == set(kernels.names)
            assert all((m.spills, m.stack) == (0, 0) and m.registers <= 255 for m in made), made


@pytest.mark.parametrize("name", ["gelu float", "gelu float16", "layer norm float16 4096", "chain of 6 float", "rotary float16"])
def test_loads_and_stores_have_16_bytes(name: str) -> None:
    (kernels, *_) = _kernels(SAMPLES[name])
    text = gpu_code.ptx(kernels.source, 80)
    moves = [line.split()[0] for line in text.splitlines() if line.strip().startswith(("ld.global", "st.global"))]
    assert moves and all(".v4.b32" in m or ".v2.b64" in m or ".v4.u32" in m or ".v2.u64" in m or ".v4.f32" in m for m in moves), moves


def test_a_row_that_fits_is_read_once() -> None:
    kernels = {name: _kernels(SAMPLES[name])[0] for name in ("layer norm float 768", "layer norm float 32768")}
    loads = {name: gpu_code.ptx(k.source, 80).count("ld.global") for name, k in kernels.items()}
    assert "kv0" not in kernels["layer norm float 32768"].source
    assert loads["layer norm float 768"] == 8 * 3, "eight vectors a thread of x, scale and bias each"


def test_what_the_compiler_refuses_is_told() -> None:
    with pytest.raises(UsageError, match="refuses the kernel for sm_90"):
        gpu_code.compiled("this is no CUDA", 90)


def test_the_command_shows_program_text_and_figures_of_a_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """<ir_version: 9, opset_import: ["": 17, "ai.onnxfuse": 1]> g (float16[batch,seq,64] x) => (float16[batch,seq,64] z) {
        [first] y = ai.onnxfuse.Silu_2 <alpha = 1.5> (x)  [second] z = ai.onnxfuse.EmbedLayerNorm (x) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    command.show(tmp_path / "m.onnx", None, archs=[80, 90], sizes={"seq": 32})
    table = capsys.readouterr().out
    assert [word in table for word in ("first", "sm_80", "sm_90", "Silu_2", "100% by")] == [True] * 5
    assert "none: EmbedLayerNorm has no generated CUDA kernel" in " ".join(table.split())
    command.show(tmp_path / "m.onnx", "first", archs=[90], sizes={})
    shown = capsys.readouterr().out
    assert "v1:float = Const(1.5)" in shown and "__launch_bounds__(256, 1) fused(const Parameters p)" in shown
    with pytest.raises(UsageError, match="called 'third'. Optimise it first"):
        command.show(tmp_path / "m.onnx", "third", archs=[90], sizes={})
