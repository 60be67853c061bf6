"""Decisions that hang on a size."""

from __future__ import annotations

import random

import pytest

from onnxfuse.cost.dynamic import crossover, probe_sizes
from onnxfuse.cost.typical import OTHER, SPANS, span, typical
from onnxfuse.errors import UsageError


@pytest.mark.parametrize("flip", [2, 3, 95, 96, 97, 1000, 4095, 4096])
def test_flip_is_found_to_the_unit(flip: int) -> None:
    rising = crossover(lambda n: n - flip + 0.5, 1, 4096)
    assert (rising.pays_at_low, rising.flips) == (False, (flip,))
    assert rising.text("seq") == f"pays from seq >= {flip}"
    falling = crossover(lambda n: flip - n - 0.5, 1, 4096)
    assert (falling.pays_at_low, falling.flips) == (True, (flip,))
    assert falling.text("seq") == f"pays up to seq <= {flip - 1}"


def test_decision_that_never_flips_says_so() -> None:
    assert crossover(lambda n: 1.0, 1, 512).text("seq") == "pays at any seq from 1 to 512"
    assert crossover(lambda n: 0.0, 1, 512).text("seq") == "does not pay at any seq from 1 to 512"


def test_two_flips_bound_an_interval() -> None:
    found = crossover(lambda n: 1.0 if 100 <= n < 1000 else -1.0, 1, 4096)
    assert found.flips == (100, 1000)
    assert found.text("n") == "pays for n in 100..999"
    outside = crossover(lambda n: -1.0 if 100 <= n < 1000 else 1.0, 1, 4096)
    assert outside.text("n") == "pays for n in 1..99, 1000..4096"


def test_single_size_is_a_range() -> None:
    assert crossover(lambda n: 1.0, 7, 7).flips == ()


def test_probes_cover_any_range() -> None:
    rng = random.Random(2)
    for _ in range(200):
        low = rng.randint(0, 5000)
        high = low + rng.randint(0, 10**6)
        sizes = probe_sizes(low, high)
        assert (sizes[0], sizes[-1]) == (low, high)
        assert sizes == sorted(set(sizes))


@pytest.mark.parametrize("sizes", [(10, 5), (-1, 5)])
def test_empty_range_is_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="low must be at least 0 and at most high"):
        crossover(lambda n: 1.0, *sizes)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *[(name, 1) for name in ("batch", "batch_size", "N")],
        *[(name, 128) for name in ("seq", "sequence_length", "decoder_sequence_length", "past", "past_sequence_length", "s53", "")],
        *[(name, 256) for name in ("total", "total_sequence_length", "past_sequence_length + sequence_length")],
        *[("height", 64), ("w", 64), ("num_channels", 3), ("vocab_size", 32000), ("num_beams", 4), ("past_decoder_sequence_length", 128)],
    ],
)
def test_typical_sizes_go_by_name(name: str, size: int) -> None:
    assert typical(name) == size


def test_every_span_holds_its_typical_size() -> None:
    for known in (OTHER, *(s for _, s in SPANS)):
        assert 0 <= known.low <= known.typical <= known.high
    assert span("seq").high >= 2048
