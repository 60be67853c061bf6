"""The attention kernel against float64 numpy, on every instruction set, without ONNX Runtime."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.attention import Case, half_unit, random_case, reference, run
from tests.kernels.harness import Array, Kernels

# S and T around 0, 1, the vector widths, a chunk of queries (48), a block of keys (64), and a tile (192).
SIZES = [
    {"S": 1, "T": 1, "D": 1},
    {"S": 1, "T": 63, "D": 64, "H": 3},
    {"S": 1, "T": 65, "D": 17, "H": 8, "K": 2},
    {"S": 3, "T": 5, "D": 7, "B": 2},
    {"S": 2, "T": 130, "D": 128, "H": 4, "K": 2, "E": 33},
    {"S": 9, "T": 11, "D": 15, "E": 16},
    {"S": 15, "T": 16, "D": 16, "H": 2, "K": 1},
    {"S": 16, "T": 17, "D": 31, "E": 5},
    {"S": 17, "T": 64, "D": 32, "P": 3},
    {"S": 47, "T": 49, "D": 40, "B": 2, "H": 2},
    {"S": 48, "T": 128, "D": 64},
    {"S": 49, "T": 127, "D": 80, "E": 96},
    {"S": 97, "T": 31, "D": 8, "P": 64, "H": 2, "K": 1},
    {"S": 193, "T": 193, "D": 24, "H": 2},
    {"S": 12, "T": 70, "D": 160, "H": 6, "K": 3, "E": 129},
]
LIMITS: dict[str, dict[str, Any]] = {
    "whole": {},
    "causal": {"right": 0},
    "window": {"left": 3, "right": 2},
    "far": {"left": 5, "right": 0, "diagonal": 20},
    "softcap": {"softcap": 2.0, "scale": 0.5},
}
ERROR = 4e-6  # of what is computed in float, relative to the largest value


def show(value: Any) -> str:
    return " ".join(f"{k}{v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def assert_right(got: Array, case: Case) -> None:
    """NaN where the reference is, and otherwise the reference up to float's error and one rounding to the type."""
    want = reference(case)
    assert got.shape == want.shape
    wide = got.astype(np.float64)
    assert np.array_equal(np.isnan(wide), np.isnan(want))
    size = np.abs(np.where(np.isfinite(want), want, 0))
    allowed = ERROR * max(1.0, float(size.max(initial=0))) + half_unit(case.q.dtype) * size
    apart = np.where(np.isnan(want), 0, np.abs(wide - want))
    assert (apart <= allowed).all(), f"{(apart - allowed).max()} too far at {np.unravel_index((apart - allowed).argmax(), apart.shape)}"


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("sizes", SIZES, ids=show)
def test_kernel_computes_attention(kernels: Kernels, sizes: dict[str, int], limits: str) -> None:
    case = random_case(0, sizes, **LIMITS[limits])
    assert_right(run(kernels, case)[0], case)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("sizes", SIZES, ids=show)
def test_sixteen_bits_are_rounded_once(kernels: Kernels, sizes: dict[str, int], dtype: Any) -> None:
    case = random_case(1, sizes, dtype)
    case.mask = np.random.default_rng(2).standard_normal((case.q.shape[2], 1)).astype(dtype)
    assert_right(run(kernels, case)[0], case)


MASK_SHAPES = [(), (1,), (70,), (9, 1), (9, 70), (1, 1, 70), (4, 1, 1), (2, 1, 9, 70), (1, 4, 9, 70), (2, 4, 9, 70), (2, 1, 1, 70)]


@pytest.mark.parametrize("queries", [1, 9, 50])
@pytest.mark.parametrize("kind", ["bool", "bool lowest", "added"])
@pytest.mark.parametrize("shape", MASK_SHAPES, ids=str)
def test_masks_of_every_rank_are_read_in_place(kernels: Kernels, shape: tuple[int, ...], kind: str, queries: int) -> None:
    shape = tuple(queries if extent == 9 else extent for extent in shape)
    case = random_case(3, {"B": 2, "H": 4, "K": 2, "S": queries, "T": 70, "D": 20})
    values = np.asarray(np.random.default_rng(4).standard_normal(shape), case.q.dtype)
    case.mask = values if kind == "added" else np.asarray(values > 0)
    case.mask_value = float(np.finfo(np.float32).min) if kind == "bool lowest" else -math.inf
    assert_right(run(kernels, case)[0], case)


@pytest.mark.parametrize("mask_type", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_mask_of_any_type_with_queries_of_any_type(kernels: Kernels, dtype: Any, mask_type: Any) -> None:
    for queries in (2, 20):
        case = random_case(3, {"H": 2, "S": queries, "T": 40, "D": 20}, dtype)
        case.mask = np.random.default_rng(4).standard_normal((queries, 40)).astype(mask_type)
        assert_right(run(kernels, case)[0], case)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("queries", [1, 2, 50])
@pytest.mark.parametrize("limits", LIMITS)
def test_sink_takes_its_share(kernels: Kernels, limits: str, queries: int, dtype: Any) -> None:
    case = random_case(8, {"B": 2, "H": 4, "K": 2, "S": queries, "T": 70, "D": 20}, dtype, **LIMITS[limits])
    case.sink = np.array([-1.0, 0.5, 30.0, -np.inf], dtype)
    assert_right(run(kernels, case)[0], case)
    assert_right(run(kernels, case, threads=3)[0], case)


@pytest.mark.parametrize("queries", [1, 50])
def test_row_that_sees_nothing_goes_to_its_sink(kernels: Kernels, queries: int) -> None:
    case = random_case(9, {"H": 2, "S": queries, "T": 70, "D": 8})
    case.mask, case.sink = np.zeros((queries, 70), bool), np.array([0.5, -np.inf], np.float32)
    case.mask[1::2] = True
    assert_right(run(kernels, case)[0], case)
    case.left = case.right = 0
    case.diagonal = 1000  # beyond all keys: no block is looked at
    assert_right(run(kernels, case)[0], case)


@pytest.mark.parametrize("layouts", ["BSHD BSHD BSHD BSHD", "BHSD BHDS BHSD BSHD", "BSHD BHDS BSHD BHSD"])
@pytest.mark.parametrize("queries", [1, 30])
def test_layouts_are_strides(kernels: Kernels, layouts: str, queries: int) -> None:
    names = dict(zip("qkvy", layouts.split(), strict=True))
    case = random_case(5, {"B": 2, "H": 4, "K": 2, "S": queries, "T": 67, "D": 33, "E": 18, "P": 5}, layouts=names)
    y, key, value = run(kernels, case, wants_present=True)
    assert_right(y, case)
    assert case.past_key is not None and case.past_value is not None
    assert np.array_equal(key, np.concatenate([case.past_key, case.k], 2))  # type: ignore[arg-type]  # wanted, so given
    assert np.array_equal(value, np.concatenate([case.past_value, case.v], 2))  # type: ignore[arg-type]


def test_present_without_past_is_the_current(kernels: Kernels) -> None:
    case = random_case(5, {"B": 2, "H": 2, "S": 3, "T": 4, "D": 5, "E": 6}, np.float16, layouts={"k": "BSHD"})
    _, key, value = run(kernels, case, wants_present=True)
    assert np.array_equal(key, case.k) and np.array_equal(value, case.v)  # type: ignore[arg-type]


@pytest.mark.parametrize("empty", ["B", "H", "S", "T", "D", "E"])
def test_empty_sizes_give_empty_results_or_zeros(kernels: Kernels, empty: str) -> None:
    for queries in (3, 20):
        sizes = {"B": 2, "H": 2, "S": queries, "T": 4, "D": 5, "E": 6, empty: 0}
        case = random_case(6, sizes)
        assert_right(run(kernels, case, wants_present=True)[0], case)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("queries", [1, 60])
def test_rows_that_see_nothing_are_nan_or_zero(kernels: Kernels, queries: int, zero: bool) -> None:
    case = random_case(7, {"H": 2, "S": queries, "T": 70, "D": 8}, zero_masked_rows=zero)
    mask = np.random.default_rng(1).random((2, queries, 70)) > 0.5
    mask[:, ::2] = False
    case.mask = mask
    assert_right(run(kernels, case)[0], case)
    past_the_end = replace(case, mask=None, left=0, right=0, diagonal=30)  # the last queries see no key at all
    assert_right(run(kernels, past_the_end)[0], past_the_end)


@pytest.mark.parametrize("queries", [1, 60])
def test_row_masked_by_a_finite_number_is_the_average(kernels: Kernels, queries: int) -> None:
    lowest = float(np.finfo(np.float32).min)
    case = random_case(8, {"S": queries, "T": 150, "D": 8}, mask=np.zeros((1, 150), bool), mask_value=lowest)
    y = run(kernels, case)[0]
    np.testing.assert_allclose(y, np.broadcast_to(case.v.mean(2, keepdims=True), y.shape), atol=1e-6)


@pytest.mark.parametrize("queries", [1, 60])
def test_rows_that_see_only_late_keys(kernels: Kernels, queries: int) -> None:
    case = random_case(8, {"H": 2, "S": queries, "T": 400, "D": 8})
    hidden = np.random.default_rng(2).integers(0, 399, (queries, 1))  # blocks of nothing come before the first key seen
    assert_right(run(kernels, replace(case, mask=np.arange(400) > hidden))[0], replace(case, mask=np.arange(400) > hidden))
    added = np.where(np.arange(400) > hidden, 0, -np.inf).astype(np.float32)
    assert_right(run(kernels, replace(case, mask=added))[0], replace(case, mask=added))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["q", "k", "v", "mask"])
@pytest.mark.parametrize("queries", [2, 50])
def test_nan_and_inf_go_where_ieee_takes_them(kernels: Kernels, queries: int, where: str, bad: float) -> None:
    case = random_case(9, {"S": queries, "T": 90, "D": 9})
    case.q, case.k = np.abs(case.q), np.abs(case.k)  # so that inf makes inf, not NaN, of a sum
    case.mask = np.zeros((queries, 90), np.float32)
    getattr(case, where)[(0, 0, 1, 3) if where != "mask" else (1, 80)] = bad
    got, want = run(kernels, case)[0], reference(case)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert np.allclose(got, want, atol=3e-6, equal_nan=True)


def test_large_scores_do_not_overflow(kernels: Kernels) -> None:
    for queries in (2, 50):
        case = random_case(10, {"S": queries, "T": 90, "D": 16}, scale=300.0)
        want, got = reference(case), run(kernels, case)[0]
        # Scores of a thousand carry an absolute error of 1e-4, so do the logarithms of the probabilities.
        np.testing.assert_allclose(got, want, atol=2e-3)


def test_denormal_values_come_through(kernels: Kernels) -> None:
    for queries in (2, 50):
        case = random_case(11, {"S": queries, "T": 1, "D": 4})
        case.v = np.full_like(case.v, 1e-41)
        assert np.array_equal(run(kernels, case)[0], np.broadcast_to(case.v, (1, 1, queries, 4)))


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_threads_change_nothing_but_the_split(kernels: Kernels, threads: int) -> None:
    for sizes in ({"B": 2, "H": 2, "S": 60, "T": 90, "D": 16}, {"H": 4, "K": 2, "S": 1, "T": 1500, "D": 16, "P": 700}):
        case = random_case(12, sizes, right=0, diagonal=sizes["T"] + sizes.get("P", 0) - sizes["S"])
        case.mask = np.random.default_rng(1).random(sizes["T"] + sizes.get("P", 0)) > 0.2
        y, key, _ = run(kernels, case, threads=threads, wants_present=True)
        assert_right(y, case)
        assert key is not None and key.shape[2] == sizes["T"] + sizes.get("P", 0)


def test_a_split_that_sees_nothing_adds_nothing(kernels: Kernels) -> None:
    case = random_case(13, {"H": 2, "S": 1, "T": 3000, "D": 8}, left=10, right=0, diagonal=2000)
    assert_right(run(kernels, case, threads=4)[0], case)


def test_same_call_twice_gives_the_same_bits(kernels: Kernels) -> None:
    case = random_case(14, {"B": 2, "H": 3, "S": 70, "T": 130, "D": 24})
    assert np.array_equal(run(kernels, case)[0], run(kernels, case)[0])
    assert np.array_equal(run(kernels, case)[0], run(kernels, case, threads=3)[0])
