"""Whatever way a computation is spelled it is fused, and what only looks like it keeps its numbers."""

from __future__ import annotations

import random
from typing import Any

import onnx
import pytest

from tests.engine.harness import assert_same_numbers, declare_outputs, feed, fuse, run
from tests.engine.mutations import mutate
from tests.engine.spelled import FAMILIES, spell

EVERY_FAMILY = pytest.mark.parametrize("family", FAMILIES)
SPELLINGS, MUTANTS, CHUNK = 40, 60, 10


@EVERY_FAMILY
@pytest.mark.parametrize("number", range(SPELLINGS))
def test_every_spelling_is_fused_and_keeps_its_numbers(family: str, number: int) -> None:
    model = spell(family, number)
    done = fuse(model, FAMILIES[family].rule)
    assert done.own == [FAMILIES[family].op], f"{done.reasons}\n{onnx.printer.to_text(model)}"
    assert_same_numbers(model, done.model, feed(model, number))


@EVERY_FAMILY
@pytest.mark.parametrize("number", range(0, SPELLINGS, 4))
def test_all_rules_together_keep_its_numbers(family: str, number: int) -> None:
    model = spell(family, number)
    assert_same_numbers(model, fuse(model).model, feed(model, number))


@EVERY_FAMILY
@pytest.mark.parametrize("chunk", range(0, MUTANTS, CHUNK))
def test_what_only_looks_like_it_keeps_its_numbers(family: str, chunk: int) -> None:
    """One thing is changed at random: mostly nothing may be fused then, and what is must be right."""
    ran = 0
    for number in range(chunk, chunk + CHUNK):
        rng = random.Random(f"{family} {number} changed")
        model = mutate(spell(family, number, kind="float"), rng)
        feeds = runs(model)
        if model is not None and feeds:
            ran += 1
            assert_same_numbers(model, fuse(model).model, *feeds)
    assert ran


def runs(model: onnx.ModelProto | None) -> list[dict[str, Any]]:
    """Feeds for the model, its outputs declared; none where the change made no valid model."""
    if model is None:
        return []
    feeds = [feed(model, 1), feed(model, 2)]
    try:
        declare_outputs(model, [run(model, values) for values in feeds][0])
    except Exception:  # noqa: BLE001  # ONNX Runtime's own exceptions share no base but this
        return []
    return feeds
