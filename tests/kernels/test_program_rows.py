"""Programs with reductions on the CPU, on every instruction set: rows that fit into the cache and rows that do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.kernels.harness import Array, Kernels
from tests.kernels.program import DTYPES, REALS, WHOLES, Compiled, ProgramError

ROWS = ((1, 1), (3, 0), (0, 3), (2, 2), (3, 15), (2, 16), (3, 17), (5, 127), (2, 1031), (1, 30011), (2, 70001))
UNIT = {"float": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "double": 2.0**-52}


def log_sum_exp(x: Array) -> Array:
    top = x.max(-1, keepdims=True)
    return np.asarray(top + np.log(np.exp(x - top).sum(-1, keepdims=True)))


REDUCTIONS: dict[str, Callable[[Array], Array]] = {
    "ReduceSum": lambda x: x.sum(-1, keepdims=True),
    "ReduceMean": lambda x: x.mean(-1, keepdims=True),
    "ReduceSumSquare": lambda x: (x * x).sum(-1, keepdims=True),
    "ReduceL1": lambda x: np.abs(x).sum(-1, keepdims=True),
    "ReduceL2": lambda x: np.sqrt((x * x).sum(-1, keepdims=True)),
    "ReduceMax": lambda x: x.max(-1, keepdims=True),
    "ReduceMin": lambda x: x.min(-1, keepdims=True),
    "ReduceProd": lambda x: x.prod(-1, keepdims=True),
    "ReduceLogSumExp": log_sum_exp,
}


def reduce(op: str, kind: str) -> str:
    return f"x0:{kind}\nv0:{kind} = {op}(x0)\n-> v0"


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reduction_of_real_types(kernels: Kernels, op: str) -> None:
    for kind in REALS:
        for shape in ROWS:
            if shape[1] == 0:
                continue
            x = (np.random.default_rng(0).standard_normal(shape) * 0.1 + (1 if op == "ReduceProd" else 0)).astype(DTYPES[kind])
            if op == "ReduceProd":
                x[:, 100:] = 1
            wide = x.astype(np.float64)
            got = Compiled(kernels, reduce(op, kind), axes=1)(x)[0].astype(np.float64)
            want = REDUCTIONS[op](wide)
            size = np.abs(want) + (np.abs(wide).sum(-1, keepdims=True) / shape[1] if op == "ReduceMean" else 0)
            size = size + (np.abs(wide).sum(-1, keepdims=True) if op == "ReduceSum" else 0)
            assert (np.abs(got - want) <= 6 * UNIT[kind] * size + 1e-30).all(), (op, kind, shape, got, want)


@pytest.mark.parametrize("kind", WHOLES)
def test_reduction_of_integers_wraps(kernels: Kernels, kind: str) -> None:
    info = np.iinfo(DTYPES[kind])
    for shape in ROWS:
        if shape[1] == 0:
            continue
        x = np.random.default_rng(0).integers(info.min, info.max, shape, dtype=DTYPES[kind], endpoint=True)
        bits = 8 * info.dtype.itemsize
        unsigned = np.dtype(f"u{info.dtype.itemsize}")
        with np.errstate(all="ignore"):
            total = x.view(unsigned).astype(np.uint64).sum(-1, keepdims=True).astype(unsigned).view(x.dtype)
            square = (x * x).view(unsigned).astype(np.uint64).sum(-1, keepdims=True).astype(unsigned).view(x.dtype)
            product = x.view(unsigned).astype(np.uint64).prod(-1, keepdims=True).astype(unsigned).view(x.dtype)
        want = {
            "ReduceSum": total,
            "ReduceSumSquare": square,
            "ReduceProd": product,
            "ReduceMax": x.max(-1, keepdims=True),
            "ReduceMin": x.min(-1, keepdims=True),
        }
        for op, expected in want.items():
            assert np.array_equal(Compiled(kernels, reduce(op, kind), axes=1)(x)[0], expected), (op, bits, shape)


def test_mean_of_integers_is_cut(kernels: Kernels) -> None:
    x = np.array([[7, -3, 1], [-7, 3, -1]], np.int32)
    assert Compiled(kernels, reduce("ReduceMean", "int32"), axes=1)(x)[0].tolist() == [[1], [-1]]


def test_rows_without_elements(kernels: Kernels) -> None:
    x = np.zeros((3, 0), np.float32)
    want = {"ReduceSum": 0.0, "ReduceProd": 1.0, "ReduceMax": -np.inf, "ReduceMin": np.inf, "ReduceMean": 0.0, "ReduceL2": 0.0}
    for op, value in want.items():
        got = Compiled(kernels, reduce(op, "float"), axes=1)(x)[0]
        assert np.array_equal(got, np.full((3, 1), value), equal_nan=True), op
    assert Compiled(kernels, reduce("ReduceMin", "int16"), axes=1)(np.zeros((1, 0), np.int16))[0].tolist() == [[32767]]


def test_a_sum_over_a_long_row_keeps_its_digits(kernels: Kernels) -> None:
    x = (1 + np.random.default_rng(0).random((1, 3_000_001))).astype(np.float32)
    got = float(Compiled(kernels, reduce("ReduceSum", "float"), axes=1)(x)[0][0, 0])
    want = x.astype(np.float64).sum()
    ours, numpy_error = abs(got - want) / want, abs(float(x.sum(dtype=np.float32)) - want) / want
    assert ours <= max(2.0**-24, numpy_error)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_greatest_and_least_pass_over_nan_but_for_a_first_one(kernels: Kernels, op: str) -> None:
    for kind in REALS:
        for cols in (3, 33, 70001):
            x = np.linspace(-1, 1, cols).astype(DTYPES[kind])[None].repeat(2, 0)
            x[0, 1], x[1, 0] = np.nan, np.nan
            got = Compiled(kernels, reduce(op, kind), axes=1)(x)[0].astype(np.float64)
            assert got[0, 0] == (1 if op == "ReduceMax" else -1) and np.isnan(got[1, 0])


SOFTMAX = "v0:{0} = ReduceMax(x0)\nv1:{0} = Sub(x0, v0)\nv2:{0} = Exp(v1)\nv3:{0} = ReduceSum(v2)\nv4:{0} = Div(v2, v3)\n-> v4, v0"
NORM = (
    "v0:float = ReduceMean(x0)\nv1:float = Sub(x0, v0)\nv2:float = Mul(v1, v1)\nv3:float = ReduceMean(v2)\nv4:float = Add(v3, x2)\n"
    "v5:float = Sqrt(v4)\nv6:float = Div(v1, v5)\nv7:float = Mul(v6, x1)\n-> v7, v4, v6"
)


@pytest.mark.parametrize("shape", ROWS)
def test_softmax(kernels: Kernels, shape: tuple[int, int]) -> None:
    for kind in ("float", "double", "float16"):
        x = (np.random.default_rng(0).standard_normal(shape) * 3).astype(DTYPES[kind])
        program = Compiled(kernels, f"x0:{kind}\n" + SOFTMAX.format(kind), axes=1)
        for threads in (1, 3):
            got, top = program(x, threads=threads)
            assert got.shape == shape and top.shape == (shape[0], 1)
            if got.size:
                power = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True).astype(np.float64))
                assert np.abs(got - power / power.sum(-1, keepdims=True)).max() <= 8 * UNIT[kind]
                assert (top == x.max(-1, keepdims=True)).all()


@pytest.mark.parametrize("shape", ROWS)
def test_norm_with_scale_for_columns_and_a_number_for_rows(kernels: Kernels, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x, scale = rng.standard_normal(shape).astype(np.float32), rng.standard_normal(shape[1]).astype(np.float32)
    for epsilon in (np.full((), 0.5, np.float32), np.full((shape[0], 1), 0.5, np.float32)):
        head = "x0:float x1:float x2:float/row\n"
        got, variance, normal = Compiled(kernels, head + NORM, axes=1)(x, scale, epsilon)
        assert variance.shape == (shape[0], 1)
        if got.size:
            wide = x.astype(np.float64)
            want = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 0.5)
            assert np.abs(normal - want).max() <= 1e-6 and np.abs(got - want * scale).max() <= 1e-5
            assert np.abs(variance - (wide.var(-1, keepdims=True) + 0.5)).max() <= 1e-6


def test_rows_of_several_axes_with_inputs_of_all_layouts(kernels: Kernels) -> None:
    text = "x0:float x1:float x2:float\nv0:float = Mul(x0, x1)\nv1:float = Add(v0, x2)\n"
    text += "v2:float = ReduceSum(v1)\nv3:float = Sub(v1, v2)\n-> v3, v2"
    rng = np.random.default_rng(0)
    for x0, x1, x2 in [
        ((2, 3, 4, 5), (4, 1), (2, 1, 1, 5)),
        ((3, 200, 300), (200, 1), (300,)),
        ((4, 5), (4, 5), (1, 5)),
        ((7, 1, 9), (6, 1), (9,)),
    ]:
        x = [rng.integers(0, 5, shape).astype(np.float32) for shape in (x0, x1, x2)]
        v1 = x[0] * x[1] + x[2]
        total = v1.sum((-2, -1), keepdims=True)
        got = Compiled(kernels, text, axes=2)(*x)
        assert np.array_equal(got[0], v1 - total) and np.array_equal(got[1], total)


def test_a_result_may_be_written_over_the_row_that_is_read_again(kernels: Kernels) -> None:
    text = "x0:float\nv0:float = Add(x0, x0)\nv1:float = ReduceSum(v0)\nv2:float = Sub(x0, v1)\n-> v2, v0"
    for shape in ((3, 17), (2, 70001)):
        x = np.random.default_rng(0).integers(0, 3, shape).astype(np.float32)
        got = Compiled(kernels, text, axes=1)(x, over=0)
        assert np.array_equal(got[0], x - 2 * x.sum(-1, keepdims=True)) and np.array_equal(got[1], 2 * x)


def test_reductions_of_reductions_and_of_constants(kernels: Kernels) -> None:
    text = "x0:float\nv0:float = ReduceSum(x0)\nv1:float = ReduceSum(v0)\nv2:float = Const(2)\n"
    text += "v3:float = ReduceSum(v2)\nv4:float = Add(x0, v1)\n-> v4, v1, v3"
    for shape in ((3, 7), (2, 70001)):
        x = np.random.default_rng(0).integers(0, 3, shape).astype(np.float32)
        total = x.sum(-1, keepdims=True) * shape[1]
        got = Compiled(kernels, text, axes=1)(x)
        assert np.allclose(got[1], total, rtol=1e-6) and np.allclose(got[0], x + total, rtol=1e-6)
        assert (got[2] == 2 * shape[1]).all()


def test_a_row_input_must_have_one_element_a_row(kernels: Kernels) -> None:
    program = Compiled(kernels, "x0:float x1:float/row\nv0:float = ReduceSum(x0)\nv1:float = Add(v0, x1)\n-> v1", axes=1)
    assert program(np.ones((2, 3), np.float32), np.ones((2, 1), np.float32))[0].tolist() == [[4], [4]]
    with pytest.raises(ProgramError, match=r"input 1 must have size 1 along the last 1 axes, as the program marks it /row; got \[2,3\]"):
        program(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32))


def test_reductions_need_axes(kernels: Kernels) -> None:
    with pytest.raises(ProgramError, match="reductions need at least one axis"):
        Compiled(kernels, reduce("ReduceSum", "float"))


@pytest.mark.parametrize("axis", [-3, -2, -1])
def test_rows_of_joined_inputs(kernels: Kernels, axis: int) -> None:
    """Pieces of a row, whole rows, and rows of several axes; short rows, and ones that are read again for each pass."""
    for tail in ((3, 9), (2, 40000)):
        shapes = [[2, *tail], [2, *tail]]
        shapes[1][axis] = 5
        arrays = [np.random.default_rng(seed).standard_normal(shape).astype(np.float32) for seed, shape in enumerate(shapes)]
        joined = np.concatenate(arrays, axis).astype(np.float64)
        for axes in (1, 2):
            program = Compiled(
                kernels,
                f"x0:float x1:float\nv0:float = Concat(x0, x1, {axis})\nv1:float = ReduceMax(v0)\nv2:float = Sub(v0, v1)\n-> v2, v1",
                axes,
            )
            rows = tuple(range(-axes, 0))
            most = joined.max(rows, keepdims=True)
            down, top = program(*arrays, threads=2)
            np.testing.assert_array_equal(top, most.astype(np.float32))
            np.testing.assert_allclose(down, joined - most, rtol=1e-6)
