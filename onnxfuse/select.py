"""Chooses which candidates to make: the best set that does not overlap, by predicted saving.

Deterministic, and knows no rule by name: what a candidate saves by itself comes from `Price`, what several of them save
together from `Bonus`. Small groups are solved exactly; in large ones candidates are taken by priority, those around each
are priced again, and the result is improved until no group and no single exchange makes it better.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf

from onnxfuse.bonus import Bonus, Tally
from onnxfuse.candidate import Candidate
from onnxfuse.decision import Decision, Verdict
from onnxfuse.graph import Node

EXACT = 12  # groups of at most this many overlapping candidates are solved exactly
NOISE = 1e-9  # differences below this are rounding
NEVER = -inf  # the worth of a candidate that may not be made


def select(
    found: Sequence[Candidate],
    weigh: Callable[[Candidate], float],
    bonuses: Sequence[Bonus] = (),
    measure: Callable[[Sequence[Candidate]], float] | None = None,
) -> tuple[list[Candidate], list[Decision]]:
    """(chosen, how each other one ended).

    weigh: what a candidate is worth by itself; one worth at most 0 is chosen only for its bonuses, and one worth NEVER not at all.
    measure: what all costs with a set made, where that is not quite what worth and bonuses add up to: no set is then chosen
    that costs more than taking the largest first.
    """
    problem = _Problem(found, [weigh(c) for c in found], bonuses)
    taken = problem.solve()
    if measure is not None:
        taken = min(taken, problem.by_size(), key=lambda some: measure([found[i] for i in sorted(some)]))
    made = Choice(problem, taken)
    chosen = sorted((problem.told(i, made) for i in taken), key=lambda c: c.region[-1].index)
    refused = [_refused(c) for i, c in enumerate(found) if i not in taken and problem.worth[i] <= 0]
    lost = [_lost(c, problem.winner(i, taken)) for i, c in enumerate(found) if i not in taken and problem.worth[i] > 0]
    return chosen, refused + lost


def largest_first(found: Sequence[Candidate], weigh: Callable[[Candidate], float]) -> list[Candidate]:
    """What a matcher without a cost model takes of the candidates that are worth something: always the one with the most nodes."""
    problem = _Problem(found, [weigh(c) for c in found], ())
    return sorted((found[i] for i in problem.by_size()), key=lambda c: c.region[-1].index)


def _refused(candidate: Candidate) -> Decision:
    reason = candidate.price.reason() if candidate.price is not None else "nothing is saved"
    return candidate.decision.ended(Verdict.NOT_WORTH_IT, reason)


def _lost(candidate: Candidate, winner: Candidate | None) -> Decision:
    if winner is None:
        return candidate.decision.ended(Verdict.LOST, "another set of fusions saves more here")
    reason = f"{winner.rule.name} at {winner.decision.node} takes the same nodes and saves more"
    numbers = {"winner": winner.rule.name, "winner_node": winner.decision.node}
    return replace(candidate.decision.ended(Verdict.LOST, reason), numbers={**candidate.decision.numbers, **numbers})


class _Problem:
    """Candidates by position, what each is worth, who excludes whom, and what they save together."""

    def __init__(self, found: Sequence[Candidate], worth: Sequence[float], bonuses: Sequence[Bonus]) -> None:
        self.found, self.worth, self.bonuses = found, worth, bonuses
        self.links: dict[int, list[int]] = defaultdict(list)  # by candidate: places of its bonuses
        for place, bonus in enumerate(bonuses):
            for i in bonus.members:
                self.links[i].append(place)
        self.open = [i for i in range(len(found)) if self.most(i) > 0]
        self.rivals = self._find_rivals()

    def solve(self) -> set[int]:
        """Positions of the best set."""
        opened = frozenset(self.open)
        groups = _components(self.open, [{i, *self.rivals[i]} for i in self.open])
        whole = _components(self.open, [*groups, *(b.members & opened for b in self.bonuses)])
        home = {i: n for n, cluster in enumerate(whole) for i in cluster}
        parts: dict[int, list[list[int]]] = defaultdict(list)
        for group in groups:
            parts[home[group[0]]].append(group)
        return {i for cluster in parts.values() for i in self._best(cluster)}

    def told(self, i: int, taken: Choice) -> Candidate:
        """The candidate, its decision with what it saves together with others of those that are taken."""
        candidate, shared = self.found[i], sum(t.part() for t in taken.tallies(i))
        if abs(shared) <= NOISE:
            return candidate
        decision = replace(candidate.decision, numbers={**candidate.decision.numbers, "shared": shared})
        if self.worth[i] <= 0:
            reason = f"worth it with the fusions around it: {shared:.2f} us more are saved by all of them together"
            decision = replace(decision, reason=reason)
        return replace(candidate, decision=decision)

    def winner(self, i: int, taken: set[int]) -> Candidate | None:
        """The first of those taken, in graph order, that excludes the candidate."""
        rivals = [self.found[r] for r in self.rivals[i] & taken]
        return min(rivals, key=lambda c: (c.region[-1].index, c.rule.name), default=None)

    def most(self, i: int) -> float:
        """No less than what `i` can add to any set."""
        return self.worth[i] + sum(max(0.0, self.bonuses[place].worth) for place in self.links.get(i, ()))

    def rank(self, i: int) -> tuple[float, int, int, str]:
        """An order of candidates that does not depend on the one they were found in."""
        candidate = self.found[i]
        return -self.worth[i], -len(candidate.removed), candidate.region[-1].index, candidate.rule.name

    def in_turn(self, order: Iterable[int]) -> set[int]:
        """Each candidate that no earlier one excludes."""
        chosen: set[int] = set()
        for i in order:
            if not self.rivals[i] & chosen:
                chosen.add(i)
        return chosen

    def by_size(self) -> set[int]:
        """Always the one with the most nodes, of those that are worth something by themselves."""
        worthy = (i for i in self.open if self.worth[i] > 0)
        order = sorted(worthy, key=lambda i: (-len(self.found[i].removed), self.found[i].region[-1].index, self.found[i].rule.name))
        return self.in_turn(order)

    def _find_rivals(self) -> dict[int, set[int]]:
        owners: dict[Node, list[int]] = defaultdict(list)
        for i in self.open:
            for node in self.found[i].removed:
                owners[node].append(i)
        rivals: dict[int, set[int]] = {i: set() for i in self.open}
        for i in self.open:
            read = [v.producer for v in self.found[i].inputs if v.producer is not None]
            for other in (o for node in (*self.found[i].removed, *read) for o in owners.get(node, ())):
                if other != i and other not in rivals[i] and self.found[i].conflicts(self.found[other]):
                    rivals[i].add(other)
                    rivals[other].add(i)
        return rivals

    def _best(self, groups: Sequence[Sequence[int]]) -> set[int]:
        """The best set of one cluster: groups whose members exclude each other, tied to one another by bonuses alone."""
        every = sorted((i for group in groups for i in group), key=self.rank)
        if len(every) <= EXACT:
            return Choice(self).exact(every)
        ends = [self._improved(start, groups) for start in self._starts(every)]
        return max(ends, key=lambda end: end.saved).chosen

    def _starts(self, every: Sequence[int]) -> Iterator[Iterable[int]]:
        yield ()  # each group at its best by itself
        yield self._by_priority(every)
        worthy = [i for i in every if self.worth[i] > 0]
        pushed = {i: sum(max(0.0, self.worth[r]) for r in self.rivals[i]) for i in worthy}
        yield self.in_turn(worthy)
        yield self.in_turn(sorted(worthy, key=lambda i: -len(self.found[i].removed)))
        yield self.in_turn(sorted(worthy, key=lambda i: -self.worth[i] / (self.worth[i] + pushed[i])))

    def _by_priority(self, every: Sequence[int]) -> set[int]:
        """Always the one that promises most; those that save something together with it are priced again."""
        state = Choice(self)
        places = {i: place for place, i in enumerate(every)}
        queue = [(-state.promise(i), place, i) for i, place in places.items()]
        heapq.heapify(queue)
        while queue:
            priority, place, i = heapq.heappop(queue)
            now = -state.promise(i)
            if i in state.chosen or self.rivals[i] & state.chosen or now >= 0:
                continue
            if now > priority + NOISE:
                heapq.heappush(queue, (now, place, i))
                continue
            state.take(i)
            for other in sorted({o for t in state.tallies(i) for o in t.priced_anew() if o in places}):
                heapq.heappush(queue, (-state.promise(other), places[other], other))
        return state.chosen

    def _improved(self, start: Iterable[int], groups: Sequence[Sequence[int]]) -> Choice:
        """The set with one group after the other at its best, the rest as it is, until nothing changes."""
        state = Choice(self, start)
        changed = True
        while changed:
            before = state.saved
            for group in groups:
                state.improve(group)
            changed = state.saved > before + NOISE
        return state


class Choice:
    """A set of candidates that is built up and taken apart, and what it saves."""

    def __init__(self, problem: _Problem, start: Iterable[int] = ()) -> None:
        self.problem = problem
        self.chosen: set[int] = set()
        self.saved = 0.0
        self._tallies = [bonus.tally() for bonus in problem.bonuses]
        self._replace([], sorted(start))

    def tallies(self, i: int) -> list[Tally]:
        """Those of the bonuses that a candidate is a member of."""
        return [self._tallies[place] for place in self.problem.links.get(i, ())]

    def change(self, i: int) -> float:
        """What taking `i` would add."""
        return self.problem.worth[i] + sum(t.added(i) for t in self.tallies(i))

    def promise(self, i: int) -> float:
        """What `i` adds, or would add if those came that it saves something with."""
        return self.problem.worth[i] + sum(max(t.added(i), t.hope(i)) for t in self.tallies(i))

    def take(self, i: int) -> None:
        self.saved += self.change(i)
        self.chosen.add(i)
        for tally in self.tallies(i):
            tally.take(i)

    def drop(self, i: int) -> None:
        self.chosen.remove(i)
        for tally in self.tallies(i):
            tally.drop(i)
        self.saved -= self.change(i)

    def improve(self, group: Sequence[int]) -> None:
        """Change what is chosen of one group, whose members exclude each other but nobody else, so that more is saved."""
        if len(group) > EXACT:
            self._exchange(group)
            return
        own = [i for i in group if i in self.chosen]
        before = self.saved
        for i in own:
            self.drop(i)
        best = sorted(self.exact(group))
        self._replace([], best)
        if self.saved <= before + NOISE:
            self._replace(best, own)

    def exact(self, group: Sequence[int]) -> set[int]:
        """The best of the group to take beside what is chosen, none of the group being chosen yet."""
        ordered = sorted(group, key=self.problem.rank)
        most = [self.problem.most(i) for i in ordered]
        start, best, best_saved = self.saved, set[int](), 0.0
        taken: set[int] = set()

        def extend(position: int, rest: float) -> None:
            nonlocal best, best_saved
            saved = self.saved - start
            if saved > best_saved + NOISE:
                best, best_saved = set(taken), saved
            if position == len(ordered) or saved + rest <= best_saved + NOISE:
                return
            i, rest = ordered[position], rest - most[position]
            if not self.problem.rivals[i] & taken:
                self.take(i)
                taken.add(i)
                extend(position + 1, rest)
                taken.remove(i)
                self.drop(i)
            extend(position + 1, rest)

        extend(0, sum(most))
        return best

    def _exchange(self, group: Sequence[int]) -> None:
        """Let a candidate in where it adds more than all it pushes out, and out where it adds nothing, until nothing changes."""
        changed = True
        while changed:
            changed = False
            for i in group:
                out = [i] if i in self.chosen else sorted(self.problem.rivals[i] & self.chosen)
                into = [] if i in self.chosen else [i]
                before = self.saved
                self._replace(out, into)
                if self.saved > before + NOISE:
                    changed = True
                else:
                    self._replace(into, out)

    def _replace(self, out: Iterable[int], into: Iterable[int]) -> None:
        for i in out:
            self.drop(i)
        for i in into:
            self.take(i)


def _components(items: Sequence[int], ties: Iterable[Iterable[int]]) -> list[list[int]]:
    """The items in the groups that the ties hold together, each in the order of `items`."""
    above = {i: i for i in items}

    def top(i: int) -> int:
        while above[i] != i:
            above[i] = above[above[i]]
            i = above[i]
        return i

    for first, *others in filter(None, map(list, ties)):
        for other in others:
            above[top(other)] = top(first)
    members: dict[int, list[int]] = defaultdict(list)
    for i in items:
        members[top(i)].append(i)
    return list(members.values())
