"""Selection: the heaviest set without overlaps, the same whatever the order, and a reason for the rest."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from onnxfuse.bonus import Bonus, Once, Together
from onnxfuse.decision import Decision, Verdict
from onnxfuse.select import EXACT, NEVER, largest_first, select


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


# ---- what several save together


def together(found: Sequence[Choice], bonuses: Sequence[Bonus]) -> list[Choice]:
    return select(found, lambda c: c.worth, bonuses)[0]  # type: ignore[arg-type, attr-defined, return-value]


def total(found: Sequence[Choice], some: Sequence[Choice], bonuses: Sequence[Bonus]) -> float:
    """What a set saves, bonuses worked out from their definition."""
    taken = {found.index(c) for c in some}
    saved = weight(some)
    for bonus in bonuses:
        if isinstance(bonus, Together):
            saved += bonus.worth if all(need & taken for need in bonus.needs) else 0.0
        elif isinstance(bonus, Once):
            saved += bonus.worth * max(0, len(bonus.members & taken) - 1)
    return saved


def heaviest_together(found: Sequence[Choice], bonuses: Sequence[Bonus]) -> float:
    able = [c for c in found if c.worth > NEVER]
    sets = (some for size in range(len(able) + 1) for some in itertools.combinations(able, size))
    return max(total(found, s, bonuses) for s in sets if not any(a.conflicts(b) for a, b in itertools.combinations(s, 2)))


def random_bonuses(rng: random.Random, count: int, members: int) -> list[Bonus]:
    made: list[Bonus] = []
    for _ in range(count):
        some = rng.sample(range(members), min(members, rng.randrange(2, 5)))
        worth = round(rng.uniform(0.1, 4), 2)
        needs = tuple(frozenset({i, rng.randrange(members)}) for i in some)
        made.append(Once(worth, frozenset(some)) if rng.random() < 0.4 else Together(worth, needs))
    return made


def plain(found: Sequence[Choice], some: Sequence[Choice]) -> list[Choice]:
    """The choices as they were made: select notes on them what they share."""
    return [next(c for c in found if c.rule is s.rule) for s in some]


@pytest.mark.parametrize("seed", range(60))
def test_small_groups_with_bonuses_are_solved_exactly(seed: int) -> None:
    rng = random.Random(3000 + seed)
    found = random_choices(rng, rng.randrange(2, 10), 9)
    bonuses = random_bonuses(rng, rng.randrange(1, 4), len(found))
    best = plain(found, together(found, bonuses))
    assert not any(a.conflicts(b) for a, b in itertools.combinations(best, 2))
    assert total(found, best, bonuses) == pytest.approx(heaviest_together(found, bonuses))


@pytest.mark.parametrize("seed", range(20))
def test_large_groups_with_bonuses_are_no_worse_than_greedy_or_without_them(seed: int) -> None:
    rng = random.Random(4000 + seed)
    found = random_choices(rng, 3 * EXACT, 30)
    bonuses = random_bonuses(rng, 12, len(found))
    best = plain(found, together(found, bonuses))
    assert not any(a.conflicts(b) for a, b in itertools.combinations(best, 2))
    greedy = largest_first(found, lambda c: c.worth)  # type: ignore[arg-type, attr-defined]
    for other in (greedy, chosen(found)):
        assert total(found, best, bonuses) >= total(found, other, bonuses) - 1e-9  # type: ignore[arg-type]
    for candidate in best:
        assert total(found, best, bonuses) >= total(found, [c for c in best if c is not candidate], bonuses) - 1e-9


def test_many_that_pay_only_together_are_all_chosen() -> None:
    found = [choice(f"c{i}", [2 * i, 2 * i + 1], -1.0) for i in range(20)]
    bonus = Together(25.0, tuple(frozenset({i}) for i in range(20)))
    assert len(together(found, [bonus])) == 20
    assert together(found, [replace(bonus, worth=19.0)]) == []


def test_what_is_saved_together_is_noted_in_equal_parts() -> None:
    found = [choice(f"c{i}", [2 * i], -1.0) for i in range(4)]
    made = together(found, [Together(8.0, tuple(frozenset({i}) for i in range(4)))])
    assert [c.decision.numbers["shared"] for c in made] == [2.0] * 4
    assert made[0].decision.reason.startswith("worth it with the fusions around it: 2.00 us more")


def test_operator_added_once_lifts_the_second_and_later_ones() -> None:
    found = [choice("first", [0], 2.0), choice("second", [1], -1.0), choice("third", [2], -1.0)]
    assert len(together(found, [Once(1.5, frozenset({0, 1, 2}))])) == 3
    assert [c.rule.name for c in together(found, [Once(0.5, frozenset({0, 1, 2}))])] == ["first"]


def test_what_may_never_be_made_is_not_made_for_any_bonus() -> None:
    found = [choice("able", [0], 1.0), choice("unable", [1], NEVER)]
    assert [c.rule.name for c in together(found, [Together(100.0, (frozenset({0}), frozenset({1})))])] == ["able"]


def test_largest_first_ignores_what_the_parts_would_save() -> None:
    whole, left, right = choice("whole", [0, 1, 2, 3], 2.5), choice("left", [0, 1], 1.5), choice("right", [2, 3], 1.5)
    idle = choice("idle", [4, 5, 6, 7, 8], 0.0)
    assert largest_first([left, right, whole, idle], lambda c: c.worth) == [whole]  # type: ignore[arg-type, attr-defined, comparison-overlap]


def test_many_layers_tied_by_one_bonus_are_solved_layer_by_layer() -> None:
    """600 groups tied by one bonus: each is solved by itself, the others as they are."""
    nodes = [Stub(f"m{i}", i) for i in range(3600)]
    made = Decision("r", Verdict.DECLINED, "g", "n", "v")
    found = [
        Choice(
            Stub(f"{k}{i}"), frozenset(nodes[6 * i + a : 6 * i + b]), worth, outputs=(Stub("v", 0, nodes[6 * i + b - 1]),), decision=made
        )
        for i in range(600)
        for k, a, b, worth in (("whole", 0, 6, 2.5), ("left", 0, 3, 1.5), ("right", 3, 6, 1.5))
    ]
    bonus = Together(700.0, tuple(frozenset({3 * i}) for i in range(600)))
    assert {c.rule.name.rstrip("0123456789") for c in together(found, [bonus])} == {"whole"}
    assert {c.rule.name.rstrip("0123456789") for c in together(found, [replace(bonus, worth=200.0)])} == {"left", "right"}
