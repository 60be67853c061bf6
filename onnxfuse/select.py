"""Chooses which candidates to make: the best set that does not overlap, by predicted saving.

Deterministic, and knows no rule by name: what a candidate saves comes from `Price`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from onnxfuse.candidate import Candidate
from onnxfuse.decision import Decision, Verdict
from onnxfuse.graph import Node

Rivals = Mapping[int, Sequence[Candidate]]  # by id: the candidates that cannot be made together with one
EXACT = 12  # groups of at most this many overlapping candidates are solved exactly


def select(found: Sequence[Candidate], weigh: Callable[[Candidate], float]) -> tuple[list[Candidate], list[Decision]]:
    """(chosen, how each other one ended). `weigh` is what a candidate is worth; at most 0 is never chosen."""
    worth = {id(c): weigh(c) for c in found}
    open_ones = [c for c in found if worth[id(c)] > 0]
    refused = [_refused(c) for c in found if worth[id(c)] <= 0]
    chosen: list[Candidate] = []
    lost: list[Decision] = []
    for group in _groups(open_ones):
        best = _best(group, worth)
        chosen += best
        lost += [_lost(c, best) for c in group if c not in best]
    chosen.sort(key=lambda c: c.region[-1].index)
    return chosen, refused + lost


def _refused(candidate: Candidate) -> Decision:
    reason = candidate.price.reason() if candidate.price is not None else "nothing is saved"
    return candidate.decision.ended(Verdict.NOT_WORTH_IT, reason)


def _lost(candidate: Candidate, best: Sequence[Candidate]) -> Decision:
    winner = next((b for b in best if b.conflicts(candidate)), None)
    if winner is None:
        return candidate.decision.ended(Verdict.LOST, "another set of fusions saves more here")
    reason = f"{winner.rule.name} at {winner.decision.node} takes the same nodes and saves more"
    numbers = {"winner": winner.rule.name, "winner_node": winner.decision.node}
    return replace(candidate.decision.ended(Verdict.LOST, reason), numbers=numbers)


def _groups(found: Sequence[Candidate]) -> Iterator[list[Candidate]]:
    """Candidates that overlap, directly or through others, in graph order."""
    owners: dict[Node, list[int]] = defaultdict(list)
    for position, candidate in enumerate(found):
        for node in candidate.removed:
            owners[node].append(position)
    group = list(range(len(found)))

    def top(i: int) -> int:
        while group[i] != i:
            group[i] = group[group[i]]
            i = group[i]
        return i

    for positions in owners.values():
        for other in positions[1:]:
            group[top(other)] = top(positions[0])
    for position, candidate in enumerate(found):
        for value in candidate.inputs:
            for owner in owners.get(value.producer, ()) if value.producer is not None else ():
                if value not in found[owner].outputs:
                    group[top(position)] = top(owner)
    members: dict[int, list[Candidate]] = defaultdict(list)
    for position, candidate in enumerate(found):
        members[top(position)].append(candidate)
    yield from members.values()


def _best(group: Sequence[Candidate], worth: dict[int, float]) -> list[Candidate]:
    """The heaviest set without overlaps: exact for small groups, else the best of several greedy ones, improved by swaps."""
    ordered = sorted(group, key=lambda c: (-worth[id(c)], -len(c.removed), c.region[-1].index, c.rule.name))
    if len(group) <= EXACT:
        return _exact(ordered, worth)
    rivals = _rivals(ordered)
    pushed = {id(c): sum(worth[id(r)] for r in rivals[id(c)]) for c in ordered}
    starts = (
        ordered,
        sorted(ordered, key=lambda c: -len(c.removed)),
        sorted(ordered, key=lambda c: -worth[id(c)] / (worth[id(c)] + pushed[id(c)])),
    )
    return max((_improved(_greedy(start, rivals), ordered, worth, rivals) for start in starts), key=lambda s: sum(worth[id(c)] for c in s))


def _rivals(group: Sequence[Candidate]) -> Rivals:
    owners: dict[Node, list[Candidate]] = defaultdict(list)
    for candidate in group:
        for node in candidate.removed:
            owners[node].append(candidate)
    found: dict[int, dict[int, Candidate]] = {id(c): {} for c in group}
    for candidate in group:
        read = [v.producer for v in candidate.inputs if v.producer is not None]
        for other in (o for node in (*candidate.removed, *read) for o in owners.get(node, ())):
            if other is not candidate and candidate.conflicts(other):
                found[id(candidate)][id(other)] = other
                found[id(other)][id(candidate)] = candidate
    return {key: list(others.values()) for key, others in found.items()}


def _greedy(start: Sequence[Candidate], rivals: Rivals) -> list[Candidate]:
    chosen: list[Candidate] = []
    barred: set[int] = set()
    for candidate in start:
        if id(candidate) not in barred:
            chosen.append(candidate)
            barred |= {id(r) for r in rivals[id(candidate)]}
    return chosen


def _exact(ordered: list[Candidate], worth: dict[int, float]) -> list[Candidate]:
    best: list[Candidate] = []
    best_weight = 0.0

    def extend(position: int, taken: list[Candidate], weight: float, rest: float) -> None:
        nonlocal best, best_weight
        if weight > best_weight + 1e-12:
            best, best_weight = list(taken), weight
        if position == len(ordered) or weight + rest <= best_weight:
            return
        candidate = ordered[position]
        own = worth[id(candidate)]
        if not any(candidate.conflicts(c) for c in taken):
            extend(position + 1, [*taken, candidate], weight + own, rest - own)
        extend(position + 1, taken, weight, rest - own)

    extend(0, [], 0.0, sum(worth[id(c)] for c in ordered))
    return best


def _improved(start: list[Candidate], ordered: Sequence[Candidate], worth: dict[int, float], rivals: Rivals) -> list[Candidate]:
    """Let a candidate in where it is worth more than all it pushes out, until nothing changes."""
    chosen = {id(c): c for c in start}
    changed = True
    while changed:
        changed = False
        for candidate in ordered:
            out = [r for r in rivals[id(candidate)] if id(r) in chosen]
            if id(candidate) not in chosen and worth[id(candidate)] > sum(worth[id(r)] for r in out) + 1e-12:
                for rival in out:
                    del chosen[id(rival)]
                chosen[id(candidate)] = candidate
                changed = True
    return list(chosen.values())
