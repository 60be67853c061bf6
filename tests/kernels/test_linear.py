"""The Linear kernel against float64 numpy, on every instruction set, without ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest

from tests.kernels.attention import half_unit
from tests.kernels.harness import TYPES, Array, Kernels
from tests.kernels.linear import ACTIVATIONS, Case, random_case, reference, run

# Rows, depth, columns around 0, 1, the vector widths, few rows (4 and 8), tiles of 6 and 12 rows and few of them (12, 24, 48
# rows), panels of 8, 16 and 32 columns and groups of 8 of them, slices of 16, 32, 128 and 256 steps, weights beyond 512 KB,
# tiles that go in turn (24), panels that go in turn (96), and rows that would lie in the same sets of a cache (4096 steps).
SIZES = [
    *((0, 3, 5), (4, 0, 5), (20, 0, 5), (4, 5, 0), (1, 1, 1), (1, 7, 31), (1, 64, 33), (2, 9, 17), (3, 8, 64), (5, 15, 66), (7, 33, 3)),
    *((8, 16, 300), (9, 17, 15), (10, 2, 32), (12, 31, 33), (13, 8, 127), (17, 64, 128), (24, 5, 129), (31, 100, 7), (37, 511, 8)),
    *((11, 512, 40), (14, 513, 33), (6, 1025, 70), (9, 1100, 140), (577, 7, 9), (1200, 3, 40)),
    *((23, 129, 97), (25, 257, 31), (49, 255, 64), (25, 300, 500), (47, 301, 450), (49, 270, 500), (295, 260, 513), (30, 4096, 33)),
    *((16, 48, 3089), (5, 40, 3500)),
    # Blocks of 32 rows, of which 16 or fewer are one tile, steps of 32, chunks of 128, panels of 32 and groups of 8 of them,
    # rows that go in turn (512): the AMX unit's, which takes more than 64 rows of at least 96 columns.
    *((64, 40, 96), (65, 31, 95), (65, 31, 96), (80, 32, 97), (81, 33, 127), (96, 127, 129), (97, 128, 256), (112, 129, 257)),
    *((128, 160, 300), (70, 4, 100), (513, 20, 98), (530, 130, 96), (1100, 3, 160), (65, 0, 96), (65, 1, 96)),
]
NUMBERS = {"leaky_relu": (0.2, 0.0), "clip": (-0.5, 0.75), "silu": (1.702, 0.0), "hard_sigmoid": (0.2, 0.5)}
STEP = 2.0**-23  # of a float at 1
SMALLEST = 2.0**-149  # float above 0
ERROR = 3e-6  # of what is computed in float, relative to the largest value


def assert_right(got: Array, case: Case) -> None:
    """NaN and infinities where the reference has them, and otherwise the reference up to float's error and one rounding."""
    want = reference(case)
    assert got.shape == want.shape
    wide, is_finite = got.astype(np.float64), np.isfinite(want)
    np.testing.assert_array_equal(wide[~is_finite], want[~is_finite])
    size = np.where(is_finite, np.abs(want), 0)
    allowed = ERROR * max(1.0, float(size.max(initial=0))) + half_unit(case.x.dtype) * size
    apart = np.abs(np.where(is_finite, wide, 0) - np.where(is_finite, want, 0))
    assert (apart <= allowed).all(), f"{apart.max()} apart at {np.unravel_index((apart - allowed).argmax(), apart.shape)}"


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("transposed", [False, True])
def test_every_size(kernels: Kernels, kind: str, transposed: bool) -> None:
    added: Any = cycle([("bias", "residual"), (), ("bias",), ("residual",)])
    for seed, (size, given) in enumerate(zip(SIZES, added, strict=False)):
        case = random_case(seed, size, TYPES[kind][1], *given, is_transposed=transposed)
        assert_right(run(kernels, case), case)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation(kernels: Kernels, activation: str) -> None:
    a, b = NUMBERS.get(activation, (0.0, 0.0))
    for last, rows, given in (
        (False, 3, ("bias",)),
        (True, 14, ("bias", "residual")),
        (False, 9, ("residual",)),
        (True, 70, ("bias", "residual")),
    ):
        case = random_case(rows, (rows, 21, 100), np.float32, *given, activation=activation, a=a, b=b, is_residual_last=last, alpha=1.5)
        assert_right(run(kernels, case), case)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_special_numbers_come_out_as_they_must(kernels: Kernels, activation: str) -> None:
    a, b = NUMBERS.get(activation, (0.0, 0.0))
    for rows in (2, 13, 70):
        case = random_case(rows, (rows, 5, 100), np.float32, activation=activation, a=a, b=b)
        case.weight[:] = np.abs(case.weight)
        case.x[0, 0], case.x[1, 1] = np.nan, 1e-42
        case.x[-1] = np.inf
        assert_right(run(kernels, case), case)


def assert_as_exact_as_float(got: Array, case: Case) -> None:
    """Every result within what sums of float products may be off, element by element: depth steps of the products' sizes."""
    want, wide = reference(case), got.astype(np.float64)
    is_finite = np.isfinite(want)
    np.testing.assert_array_equal(wide[~is_finite], want[~is_finite])
    with np.errstate(all="ignore"):
        sizes = np.abs(case.x.astype(np.float64)) @ np.abs(case.weight.astype(np.float64))
        allowed = (case.x.shape[1] + 4) * (STEP / 2 * sizes + SMALLEST)
        assert (np.abs(wide - want) <= allowed)[is_finite].all()


@pytest.mark.parametrize("transposed", [False, True])
def test_sums_are_as_exact_as_those_of_floats(kernels: Kernels, transposed: bool) -> None:
    rng = np.random.default_rng(5)
    for rows, depth, cols in ((6, 40, 50), (70, 1, 97), (90, 300, 110), (545, 130, 100)):
        x, weight = (rng.standard_normal(shape) * 2.0 ** rng.integers(-25, 25, shape) for shape in ((rows, depth), (depth, cols)))
        case = Case(x.astype(np.float32), weight.astype(np.float32), is_transposed=transposed)
        assert_as_exact_as_float(run(kernels, case), case)
    full = np.float32(2 - STEP)  # all bits set
    case = Case(np.full((70, 500), full), np.full((500, 100), full), is_transposed=transposed)
    assert_as_exact_as_float(run(kernels, case), case)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        *((2.0**126 * 1.999999, 1.9999999), (1.9999999 * 2.0**63, 2.0**64)),  # just below what overflows
        *((1.2345678e-17, 1.7654321e-18), (9e-20, 9e-20), (1.2345678e-9, 1.7654321e-9)),  # small products
        *((1.2345678e9, 1.7654321e9), (3e-10, 4e9), (1e10, 1.7654321e-10)),
    ],
)
def test_products_at_the_ends_of_the_range(kernels: Kernels, a: float, b: float) -> None:
    x, weight = np.full((70, 1), a, np.float32), np.full((1, 97), b, np.float32)
    assert_as_exact_as_float(run(kernels, Case(x, weight)), Case(x, weight))
    mixed = Case(np.hstack([np.ones_like(x), x]), np.vstack([np.zeros_like(weight), weight]))
    if abs(a * b) > 1e-20:  # beside a larger number that takes no part
        assert_as_exact_as_float(run(kernels, mixed), mixed)


@pytest.mark.parametrize(("tiny", "huge"), [(1.2345678e-36, 1.7654321e36), (1e-38, 1.7654321e36), (1.2345678e-30, 4e9)])
def test_tiny_times_huge_beside_a_larger_number(kernels: Kernels, tiny: float, huge: float) -> None:
    x, weight = np.tile(np.array([[1, tiny]], np.float32), (70, 1)), np.tile(np.array([[0], [huge]], np.float32), (1, 97))
    y, want = run(kernels, Case(x, weight)), reference(Case(x, weight))
    assert (np.abs(y - want) <= 2 * STEP * np.abs(want) + 2 * 2.0**-93).all()


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan, 3.3e38, -1.8e38, 1e12, 1e-12, 1e-30, 1e-42, 0.0])
def test_rows_and_columns_of_unusual_numbers(kernels: Kernels, number: float) -> None:
    is_huge = 1e38 < abs(number) < np.inf
    for rows, at in ((70, 3), (577, 560)):
        x, weight = np.random.default_rng(rows).uniform(-0.9, 0.9, (2, 600, 150)).astype(np.float32)
        usual = Case(x[:rows], weight[:110].T.copy())
        row, column = replace(usual, x=usual.x.copy()), replace(usual, weight=usual.weight.copy())
        line = np.zeros(150, np.float32) if is_huge else np.full(150, number, np.float32)
        line[7] = number  # alone where sums of such numbers are none
        row.x[at], column.weight[:, 33] = line, line
        residual = np.random.default_rng(1).standard_normal((rows, 110)).astype(np.float32)
        for case in (row, column):
            y = run(kernels, case)
            assert_as_exact_as_float(y, case)
            np.testing.assert_array_equal(run(kernels, replace(case, residual=residual)), y + residual)


@pytest.mark.parametrize("kind", TYPES)
def test_threads_share_rows_and_columns(kernels: Kernels, kind: str) -> None:
    for size in ((3, 40, 700), (9, 40, 20), (150, 20, 40), (1300, 5, 17), (40, 600, 300), (150, 200, 300), (1100, 40, 100)):
        case = random_case(1, size, TYPES[kind][1], "bias", "residual", activation="gelu")
        alone = run(kernels, case)
        assert_right(alone, case)
        np.testing.assert_array_equal(run(kernels, case, threads=3), alone)


def test_result_may_lie_over_the_residual(kernels: Kernels) -> None:
    for rows in (5, 40, 80):
        for last in (False, True):
            case = random_case(rows, (rows, 30, 110), np.float32, "bias", "residual", activation="silu", a=1.0, is_residual_last=last)
            np.testing.assert_array_equal(run(kernels, case, over_residual=True), run(kernels, case))


def test_more_of_x_than_is_packed_at_a_time(kernels: Kernels) -> None:
    case = random_case(1, (700, 8000, 2), np.float32, "residual", activation="relu")
    assert_right(run(kernels, case), replace(case))
