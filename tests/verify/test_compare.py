"""Results are the same only if they are: by type, shape, every NaN and every element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from onnxfuse.verify import compare
from onnxfuse.verify.compare import MODEL_BUDGETS, REWRITE_BUDGETS, UNITS, difference, largest_error, scale_of

X = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)


def changed(index: tuple[int, ...], value: float) -> Any:
    array = X.copy()
    array[index] = value
    return array


def test_equal_arrays_do_not_differ() -> None:
    assert compare(X, X.copy(), rtol=0, atol=0) is None


@pytest.mark.parametrize(
    ("got", "reason"),
    [
        (X.T, "shape [3, 2] instead of [2, 3]"),
        (X.astype(np.float64), "type float64 instead of float32"),
        (changed((1, 2), math.nan), "NaN in other places"),
        (changed((0, 1), math.inf), "1 of 6 values differ"),
        (changed((0, 1), -2.1), "1 of 6 values differ"),
        (None, "nothing instead of float32 array"),
    ],
)
def test_a_difference_says_what_it_is(got: Any, reason: str) -> None:
    found = compare(got, X, rtol=1e-3, atol=1e-6)
    assert found is not None
    assert found.reason.startswith(reason)


def test_the_worst_element_is_named_with_its_numbers() -> None:
    got = X + np.array([[0, 0.1, 0], [0, 0, 0.5]], np.float32)
    found = compare(got, X, rtol=1e-3, atol=0)
    assert found is not None
    assert found.index == (1, 2)
    assert "at [1, 2]: -0.5 instead of -1, off by 0.5" in str(found)


def test_nan_excuses_only_itself() -> None:
    want = changed((0, 0), math.nan)
    got = want.copy()
    assert compare(got, want, rtol=0, atol=0) is None
    got[1, 1] = 5
    assert compare(got, want, rtol=1e-3, atol=0) is not None


def test_nan_that_became_zero_differs() -> None:
    want = np.full((2, 3), math.nan, np.float32)
    found = compare(np.zeros_like(want), want, rtol=1, atol=1)
    assert found is not None
    assert "NaN in other places (0 instead of 6 of 6)" in found.reason


def test_infinities_must_have_the_same_sign() -> None:
    want = changed((0, 0), math.inf)
    assert compare(want.copy(), want, rtol=0, atol=0) is None
    assert compare(changed((0, 0), -math.inf), want, rtol=1, atol=1) is not None
    assert compare(changed((0, 0), 3e38), want, rtol=1, atol=1) is not None


def test_a_small_element_is_judged_by_the_scale_of_its_tensor() -> None:
    want = np.array([100.0, 120.0, -90.0, 0.001], np.float32)
    assert compare(want + np.array([0, 0, 0, 0.05], np.float32), want, rtol=1e-3, atol=0) is None
    assert compare(want + np.array([0, 0, 0, 0.2], np.float32), want, rtol=1e-3, atol=0) is not None


@pytest.mark.parametrize("filler", [-1e4, -65504.0, -1e9, -3.4e38, -math.inf])
def test_fillers_of_a_mask_do_not_widen_the_tolerance(filler: float) -> None:
    want = np.full((4, 8), filler, np.float32)
    want[0, 0] = 1
    got = want.copy()
    got[0, 0] = 1.1
    assert scale_of(want) == 1
    assert compare(got, want, rtol=1e-3, atol=1e-6) is not None


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.bool_])
def test_integers_and_truth_are_exact(dtype: Any) -> None:
    want = np.array([0, 1, 1, 0], dtype)
    got = want.copy()
    got[2] = 0
    found = compare(got, want, rtol=10, atol=10)
    assert found is not None
    assert found.index == (2,)


def test_text_is_exact() -> None:
    want = np.array(["a", "bc"], object)
    assert compare(want.copy(), want, rtol=0, atol=0) is None
    found = compare(np.array(["a", "bd"], object), want, rtol=0, atol=0)
    assert found is not None
    assert "'bd' instead of 'bc'" in found.reason


def test_sequences_and_maps_are_compared_item_by_item() -> None:
    assert compare([X, {"a": 1.0}], [X, {"a": 1.0}], rtol=0, atol=0) is None
    assert compare([X], [X, X], rtol=0, atol=0) is not None
    assert compare({"a": X}, {"b": X}, rtol=0, atol=0) is not None
    found = compare([X, X + 1], [X, X], rtol=1e-3, atol=0)
    assert found is not None
    assert found.reason.startswith("item 1: ")


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)])
def test_empty_arrays_are_equal_if_their_shapes_are(shape: tuple[int, ...]) -> None:
    empty = np.zeros(shape, np.float32)
    assert compare(empty, empty.copy(), rtol=0, atol=0) is None
    assert compare(empty, np.zeros((1, *shape), np.float32), rtol=0, atol=0) is not None


def test_an_element_may_be_near_either_of_two() -> None:
    want, other = np.array([1.0, 2.0], np.float16), np.array([5.0, 2.0], np.float16)
    assert difference(np.array([5.0, 2.0], np.float16), want, REWRITE_BUDGETS, other=other) is None
    assert difference(np.array([3.0, 2.0], np.float16), want, REWRITE_BUDGETS, other=other) is not None


@pytest.mark.parametrize("budgets", [MODEL_BUDGETS, REWRITE_BUDGETS], ids=["model", "rewrite"])
def test_every_budget_lets_rounding_pass_and_stays_below_a_third(budgets: dict[str, Any]) -> None:
    assert budgets.keys() == UNITS.keys()
    for name, budget in budgets.items():
        assert 8 * UNITS[name] < budget.rtol < 0.34


def test_largest_error_leaves_out_what_is_not_finite() -> None:
    got = np.array([1.0, math.nan, math.inf, 2.5])
    assert largest_error(got, np.array([1.0, math.nan, math.inf, 2.0])) == 0.5
    assert largest_error(np.zeros(2), np.zeros(3)) == 0
