"""The textbook's calculators."""

from __future__ import annotations

from typing import Any

import pytest

from onnxfuse.cost.traffic import chain_traffic, decision, onchip_reuse
from onnxfuse.errors import UsageError

MIB, KIB = 2**20, 2**10


@pytest.mark.parametrize(("groups", "tensors"), [(4, 6), (2, 2), (1, 0)])
def test_chain_of_four_moves_6_2_or_0_intermediates(groups: int, tensors: int) -> None:
    traffic = chain_traffic(4, groups, 64 * MIB)
    assert traffic.launches == groups
    assert traffic.intermediate_bytes == tensors * 64 * MIB
    assert traffic.external_bytes == 2 * 64 * MIB


def test_reuse_of_a_tile_that_fits_avoids_all_reads_but_one() -> None:
    reuse = onchip_reuse(32 * KIB, 3, 96 * KIB)
    assert (reuse.fits, reuse.avoided_bytes) == (True, 64 * KIB)
    assert reuse.utilisation == pytest.approx(1 / 3)


def test_tile_that_does_not_fit_avoids_nothing() -> None:
    reuse = onchip_reuse(128 * KIB, 3, 96 * KIB)
    assert (reuse.fits, reuse.avoided_bytes) == (False, 0)
    assert reuse.utilisation == pytest.approx(4 / 3)


def test_tile_as_large_as_the_memory_fits() -> None:
    assert onchip_reuse(96 * KIB, 1, 96 * KIB).fits


def test_decision_lists_what_failed_and_reorder_bytes_do_not_reject() -> None:
    good = decision("a", semantics_match=True, shape_supported=True, onchip_fit=True, backend_lowered=True, extra_reorder_bytes=10**12)
    assert (good.accepted, good.failures, good.extra_reorder_bytes) == (True, (), 10**12)
    bad = decision("b", semantics_match=True, shape_supported=False, onchip_fit=True, backend_lowered=False)
    assert (bad.accepted, bad.failures) == (False, ("shape_supported", "backend_lowered"))


@pytest.mark.parametrize(
    ("call", "arguments", "says"),
    [
        (chain_traffic, (0, 1, 8), "ops must be an integer of at least 1; got 0"),
        (chain_traffic, (4, 0, 8), "groups must be"),
        (chain_traffic, (4, 5, 8), "groups must be at most ops, 4; got 5"),
        (chain_traffic, (4, 2, -1), "tensor_bytes must be"),
        (chain_traffic, (4.0, 2, 8), "ops must be an integer"),
        (chain_traffic, (True, 1, 8), "ops must be an integer"),
        (onchip_reuse, (-1, 1, 8), "tile_bytes must be"),
        (onchip_reuse, (8, 0, 8), "uses must be"),
        (onchip_reuse, (8, 1, 0), "capacity_bytes must be"),
    ],
)
def test_bad_input_says_what_must_hold(call: Any, arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        call(*arguments)


def test_negative_reorder_bytes_are_refused() -> None:
    with pytest.raises(UsageError, match="extra_reorder_bytes must be"):
        decision("a", semantics_match=True, shape_supported=True, onchip_fit=True, backend_lowered=True, extra_reorder_bytes=-1)
