"""Every rule that is there: its examples fire once and keep every value, or decline for the reason that they name."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet

from onnxfuse.rule import Rule
from tests.engine.harness import assert_kept, assert_same_numbers, feed, fuse, parse, shipped

RULES = shipped()
EVERY_RULE = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def firing() -> list[ParameterSet]:
    return [pytest.param(r, text, id=f"{name}-{i}") for name, r in RULES.items() for i, text in enumerate(r.fires_on)]


def declining() -> list[ParameterSet]:
    return [pytest.param(r, why, text, id=f"{name}-{why}") for name, r in RULES.items() for why, text in r.declines.items()]


@EVERY_RULE
def test_rule_has_an_example_that_fires_and_one_that_declines(rule: Rule) -> None:
    assert rule.fires_on and rule.declines


@EVERY_RULE
def test_rule_says_what_it_is_equal_to(rule: Rule) -> None:
    """For the tables: an equation, on one line."""
    assert "->" in rule.summary and rule.kind in ("elementwise", "attention", "matmul", "layout")


@pytest.mark.parametrize(("rule", "text"), firing())
def test_example_fires_once_and_keeps_every_value(rule: Rule, text: str) -> None:
    before = parse(text)
    done = fuse(before, rule)
    assert [c.rule.name for c in done.chosen] == [rule.name], done.reasons
    sizes = [
        feed(before, 1),
        feed(before, 2),
        feed(before, 3, **dict.fromkeys(symbols(text), 4)),
        feed(before, 4, **dict.fromkeys(symbols(text), 1)),
    ]
    assert_same_numbers(before, done.model, *sizes)
    assert fuse(done.model, rule).chosen == []  # nothing left to do


def symbols(text: str) -> set[str]:
    return {d.dim_param for i in parse(text).graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}


@pytest.mark.parametrize(("rule", "why", "text"), declining())
def test_example_declines_for_the_reason_given(rule: Rule, why: str, text: str) -> None:
    assert_kept(text, rule, because=why)
