"""Random programs: what our library computes is what ONNX Runtime computes of the body. `benchmarks/fuzz_programs.py` runs more."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfuse.generated import fuzz
from onnxfuse.generated.made_up import Example, made_up, numpy_type
from onnxfuse.generated.program import parse

SEEDS, PART = 300, 25


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_made_up_programs_give_the_numbers_of_their_bodies(first: int) -> None:
    for seed in range(first, first + PART):
        example = made_up(seed)
        found = fuzz.difference(example)
        assert found is None, f"seed {seed}: {found}\n{fuzz.shrunk(example).program.text}"


def test_the_made_up_programs_run_and_are_of_every_sort() -> None:
    examples = [made_up(seed) for seed in range(SEEDS)]
    ran = [e for e in examples if fuzz.runs(e)]
    assert len(ran) > 0.95 * SEEDS
    assert {step.type for e in ran for step in e.program.steps} > {
        "float",
        "float16",
        "double",
        "int64",
        "int8",
        "uint8",
        "bool",
        "bfloat16",
    }
    assert any(e.program.is_reduction and e.axes > 1 for e in ran)
    assert any(e.program.is_reduction and "Concat" in e.program.ops for e in ran)
    assert any(0 in a.shape for e in ran for a in e.arrays)
    assert any(a.ndim == 0 for e in ran for a in e.arrays)
    assert any(np.isnan(a).any() for e in ran for a in e.arrays if a.dtype.kind == "f")


def test_what_is_computed_of_constants_alone_has_the_common_shape() -> None:
    program = parse("x0:int8\nv0:int64 = Const(2)\nv1:int64 = Sign(v0)\n-> v1")
    assert fuzz.difference(Example(program, 0, (np.zeros((3, 1, 5), np.int8),))) is None


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "uint8", "uint16", "int64"])
def test_floats_out_of_range_become_the_integers_that_the_runtime_makes(kind: str) -> None:
    program = parse(f"x0:float\nv0:{kind} = Cast(x0)\n-> v0")
    ends = np.array([0.5, -0.5, 1.99, -1.99, 127.9, 128, 255.9, 256, -129, 32768, 65536, -1e6, 3e9, -3e9, 1e19, -1e19, np.inf, np.nan])
    assert fuzz.difference(Example(program, 0, (np.resize(ends, (5, 37)).astype(np.float32),))) is None


def test_what_is_steep_may_differ_by_a_rounding_that_the_runtime_leaves_out() -> None:
    """ONNX Runtime takes acosh of the float, before it is rounded to a half; near 1 that is another number."""
    program = parse("x0:float\nv0:float16 = Cast(x0)\nv1:float16 = Acosh(v0)\n-> v1")
    assert fuzz.difference(Example(program, 0, (np.linspace(1.0001, 1.02, 64, dtype=np.float32),))) is None


@pytest.mark.parametrize("text", ["v0:float = Cos(x0)\nv1:float = Atanh(v0)", "v0:float = Erf(x0)\nv1:float = Atanh(v0)"])
def test_what_is_steep_may_differ_by_the_rounding_of_what_it_is_computed_of(text: str) -> None:
    """Near 1 an inverse hyperbolic tangent makes much of the last bit of a cosine, which no change of the angle shows."""
    x = np.concatenate([np.linspace(-0.02, 0.02, 257), np.linspace(2.5, 3, 257)]).astype(np.float32)
    example = Example(parse(f"x0:float\n{text}\n-> v1"), 0, (x,))
    assert fuzz.difference(example) is None


def test_an_error_that_no_rounding_explains_is_found_in_what_is_steep(monkeypatch: pytest.MonkeyPatch) -> None:
    program = parse("x0:float\nv0:float = Cos(x0)\nv1:float = Atanh(v0)\n-> v1")
    monkeypatch.setitem(fuzz_names(), "Atanh", ("Asinh", {}))
    assert "v1: " in str(fuzz.difference(Example(program, 0, (np.linspace(0.01, 0.5, 64, dtype=np.float32),))))


@pytest.mark.parametrize("kind", ["float", "float16", "bfloat16", "double"])
def test_the_sign_of_nan_is_what_the_runtime_makes_of_it(kind: str) -> None:
    program = parse(f"x0:float\nv0:{kind} = Cast(x0)\nv1:{kind} = Sign(v0)\nv2:float = Cast(v1)\n-> v2")
    x = np.resize(np.array([np.nan, -np.nan, 1.5, -1.5, 0.0, -0.0, np.inf, -np.inf], np.float32), 67)
    assert fuzz.difference(Example(program, 0, (x,))) is None


@pytest.mark.parametrize("kind", ["float", "double", "int32"])
def test_the_mean_of_nothing_is_what_the_runtime_makes_of_it(kind: str) -> None:
    program = parse(f"x0:{kind}\nv0:{kind} = ReduceMean(x0)\n-> v0")
    for shape, axes in (((3, 0), 1), ((17, 0, 64), 2)):
        assert fuzz.difference(Example(program, axes, (np.zeros(shape, numpy_type(kind)),))) is None


def test_a_difference_is_found_and_made_as_small_as_it_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The body is made wrong: what it calls Tanh is a sine."""
    program = parse(
        "x0:float x1:float\nv0:float = Add(x0, x1)\nv1:float = Tanh(v0)\nv2:float = Mul(v1, x1)\nv3:bool = IsNaN(v2)\n-> v2, v3, v0"
    )
    example = Example(program, 0, (np.ones((2, 3), np.float32), np.ones(3, np.float32)))
    assert fuzz.difference(example) is None
    monkeypatch.setitem(fuzz_names(), "Tanh", ("Sin", {}))
    assert "v2: " in str(fuzz.difference(example))
    assert fuzz.shrunk(example).program.ops == ("Tanh",)


def fuzz_names() -> dict[str, tuple[str, dict[str, object]]]:
    """Operators whose names differ from those of their primitives."""
    from onnxfuse.generated import body

    return body.RENAMED
