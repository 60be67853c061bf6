"""Selection: the heaviest set without overlaps, the same whatever the order, and a reason for the rest."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from onnxfuse.decision import Decision, Verdict
from onnxfuse.select import EXACT, select


@dataclass(eq=False)
class Stub:
    """As much of a value or node as selection looks at."""

    name: str
    index: int = 0
    producer: Any = None


@dataclass(frozen=True, eq=False)
class Choice:
    """As much of a candidate as selection looks at."""

    rule: Any
    removed: frozenset[Stub]
    worth: float
    inputs: tuple[Stub, ...] = ()
    outputs: tuple[Stub, ...] = ()
    price: Any = None
    decision: Decision = field(default_factory=lambda: Decision("r", Verdict.DECLINED, "g", "n", "v"))

    @property
    def region(self) -> tuple[Stub, ...]:
        return tuple(sorted(self.removed, key=lambda n: n.index))

    def conflicts(self, other: Choice) -> bool:
        return bool(self.removed & other.removed) or self._starves(other) or other._starves(self)

    def _starves(self, other: Choice) -> bool:
        return any(v.producer in self.removed and v not in self.outputs for v in other.inputs)


NODES = [Stub(f"n{i}", i) for i in range(60)]
VALUES = [Stub(f"v{i}", i, node) for i, node in enumerate(NODES)]


def choice(name: str, nodes: Sequence[int], worth: float, reads: Sequence[int] = ()) -> Choice:
    made = Decision(name, Verdict.DECLINED, "g", NODES[max(nodes)].name, "v")
    last = (VALUES[max(nodes)],)
    return Choice(Stub(name), frozenset(NODES[n] for n in nodes), worth, tuple(VALUES[r] for r in reads), last, decision=made)


def chosen(found: Sequence[Choice]) -> list[Choice]:
    return select(found, lambda c: c.worth)[0]  # type: ignore[arg-type, attr-defined, return-value]


def ended(found: Sequence[Choice]) -> list[Decision]:
    return select(found, lambda c: c.worth)[1]  # type: ignore[arg-type, attr-defined]


def weight(found: Sequence[Choice]) -> float:
    return sum(c.worth for c in found)


def heaviest(found: Sequence[Choice]) -> float:
    """By trying all sets."""
    best = 0.0
    for size in range(len(found) + 1):
        for some in itertools.combinations(found, size):
            if not any(a.conflicts(b) for a, b in itertools.combinations(some, 2)):
                best = max(best, weight(some))
    return best


def random_choices(rng: random.Random, count: int, nodes: int) -> list[Choice]:
    """Windows of a chain, some of which read what lies inside another."""
    found = []
    for k in range(count):
        start = rng.randrange(nodes)
        window = sorted({start, *(min(nodes - 1, start + rng.randrange(1, 4)) for _ in range(rng.randrange(3)))})
        reads = [rng.randrange(max(1, window[0]))] if rng.random() < 0.5 and window[0] else []
        found.append(choice(f"r{k}", window, round(rng.uniform(-1, 5), 2), reads))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_small_groups_are_solved_exactly(seed: int) -> None:
    rng = random.Random(seed)
    found = random_choices(rng, rng.randrange(1, 11), 9)
    best = chosen(found)
    assert not any(a.conflicts(b) for a, b in itertools.combinations(best, 2))
    assert weight(best) == pytest.approx(heaviest(found))


@pytest.mark.parametrize("seed", range(20))
def test_large_groups_are_valid_and_no_single_exchange_makes_them_heavier(seed: int) -> None:
    rng = random.Random(1000 + seed)
    found = random_choices(rng, 3 * EXACT, 30)
    best = chosen(found)
    assert not any(a.conflicts(b) for a, b in itertools.combinations(best, 2))
    for candidate in found:
        if candidate not in best and candidate.worth > 0:
            assert candidate.worth <= weight([c for c in best if c.conflicts(candidate)]) + 1e-9
    by_size: list[Choice] = []
    for candidate in sorted(found, key=lambda c: -len(c.removed)):
        if candidate.worth > 0 and not any(candidate.conflicts(c) for c in by_size):
            by_size.append(candidate)
    assert weight(best) >= weight(by_size) - 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_weight_does_not_depend_on_the_order_things_were_found_in(seed: int) -> None:
    rng = random.Random(2000 + seed)
    found = random_choices(rng, rng.choice([8, 40]), 25)
    mixed = list(found)
    rng.shuffle(mixed)
    assert weight(chosen(found)) == pytest.approx(weight(chosen(mixed)))


def test_same_candidates_in_the_same_order_give_the_same_answer() -> None:
    found = random_choices(random.Random(5), 40, 25)
    assert [c.rule.name for c in chosen(found)] == [c.rule.name for c in chosen(found)]


def test_the_largest_wins_over_its_parts_and_the_parts_over_a_lesser_whole() -> None:
    whole, left, right = choice("whole", [0, 1, 2, 3], 3.5), choice("left", [0, 1], 1.5), choice("right", [2, 3], 1.5)
    assert chosen([left, right, whole]) == [whole]
    assert chosen([left, right, replace(whole, worth=2.5)]) == [left, right]


def test_nothing_that_saves_nothing_is_chosen() -> None:
    assert chosen([choice("a", [0], 0.0), choice("b", [1], -1.0)]) == []


def test_one_that_reads_what_another_takes_away_conflicts_with_it() -> None:
    taker, reader = choice("taker", [0, 1, 2], 2.0), choice("reader", [5], 1.0, reads=[1])
    assert chosen([taker, reader]) == [taker]
    assert chosen([taker, choice("reads the result", [5], 1.0, reads=[2])])[0] is taker
    assert len(chosen([taker, choice("reads the result", [5], 1.0, reads=[2])])) == 2


def test_chosen_ones_come_in_the_order_of_the_graph() -> None:
    found = [choice("c", [7, 8], 1.0), choice("a", [0, 1], 1.0), choice("b", [3], 5.0)]
    assert [c.rule.name for c in chosen(found)] == ["a", "b", "c"]


def test_losers_name_the_winner_and_the_unworthy_their_price() -> None:
    whole, part, idle = choice("whole", [0, 1, 2], 3.0), choice("part", [1], 1.0), choice("idle", [9], 0.0)
    reasons = {d.rule: d for d in ended([part, whole, idle])}
    assert reasons["part"].verdict is Verdict.LOST and reasons["part"].reason == "whole at n2 takes the same nodes and saves more"
    assert reasons["part"].numbers == {"winner": "whole", "winner_node": "n2"}
    assert reasons["idle"].verdict is Verdict.NOT_WORTH_IT
