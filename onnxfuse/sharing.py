"""What candidates save only together: nodes that vanish with their last reader, and operators that are added once for all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from onnxfuse.bonus import Apart, Bonus, Once, Together
from onnxfuse.candidate import Candidate
from onnxfuse.graph import Graph, Node, Value
from onnxfuse.pricing import Pricer
from onnxfuse.recipe import Recipes
from onnxfuse.rule import Made
from onnxfuse.vanishing import helpers, needed, vanished

NOTHING = 1e-9  # microseconds: differences below it are rounding
Needs = frozenset[frozenset[int]]


def bonuses(found: Sequence[Candidate], recipes: Recipes, pricers: Mapping[Graph, Pricer]) -> list[Bonus]:
    """The bonuses of candidates of any graphs, by their positions in `found`."""
    by_graph: dict[Graph, list[int]] = defaultdict(list)
    for position, candidate in enumerate(found):
        by_graph[candidate.view.graph].append(position)
    made: list[Bonus] = []
    for graph, positions in by_graph.items():
        members = {i: found[i] for i in positions}
        made += _together(graph, members, recipes, pricers[graph])
        made += _once(members, recipes, pricers[graph])
        made += _apart(graph, members, recipes, pricers[graph])
    return made


def _together(graph: Graph, members: Mapping[int, Candidate], recipes: Recipes, pricer: Pricer) -> Iterator[Bonus]:
    """Nodes that no candidate makes vanish alone, by what it takes that they do."""
    worth: dict[tuple[Needs, frozenset[int]], float] = defaultdict(float)
    for node, (needs, unless) in _needs(graph, members).items():
        if len(frozenset().union(*needs)) > 1 and len(needs) > 1:
            worth[needs, unless] += _time_us(node, recipes, pricer)
    for (needs, unless), saved in worth.items():
        if saved > 0:
            yield Together(saved, tuple(sorted(needs, key=sorted)), unless)


def _needs(graph: Graph, members: Mapping[int, Candidate]) -> dict[Node, tuple[Needs, frozenset[int]]]:
    """For each node that candidates make vanish only together: sets of positions, of each of which one must be chosen.

    And those that make it vanish by themselves: where one of them is chosen, the others save nothing by it.
    """
    takers: dict[Node, set[int]] = defaultdict(set)
    readers: dict[Value, set[int]] = defaultdict(set)
    for i, candidate in members.items():
        for node in vanished([candidate]):
            takers[node].add(i)
        for value in needed(candidate):
            readers[value].add(i)
    needs: dict[Node, Needs] = {}
    shared: dict[Node, tuple[Needs, frozenset[int]]] = {}
    for node in reversed(graph.nodes):
        own = frozenset(takers.get(node, ()))
        found = _through_readers(node, readers, needs)
        if found is not None and all(need - own for need in found):
            shared[node] = frozenset(need - own for need in found), own
        if own or found is not None:
            needs[node] = frozenset({own}) if own else found or frozenset()
    return shared


def _through_readers(node: Node, readers: Mapping[Value, set[int]], needs: Mapping[Node, Needs]) -> Needs | None:
    """What must be chosen for all that reads the node to vanish; None when something always reads it."""
    found: set[frozenset[int]] = set()
    outputs = [v for v in node.outputs if v is not None]
    if any(v.is_output or v.captured for v in outputs) or not any(v.users for v in outputs):
        return None
    for value in outputs:
        for user in value.users:
            if user not in needs:
                return None
            found |= {need - readers.get(value, frozenset()) for need in needs[user]}
    return frozenset(need for need in found if not any(other < need for other in found)) if all(found) else None


def _once(members: Mapping[int, Candidate], recipes: Recipes, pricer: Pricer) -> Iterator[Bonus]:
    """Operators that several rewrites add in front of theirs; equal ones are made once."""
    users: dict[Made, set[int]] = defaultdict(set)
    for i, candidate in members.items():
        for made in helpers(candidate.call.operands):
            users[made].add(i)
    for made, positions in users.items():
        work = pricer.work(recipes.made(made)) if len(positions) > 1 else None
        if work is not None and (saved := pricer.model.time_us(work)) > 0:
            yield Once(saved, frozenset(positions))


def _apart(graph: Graph, members: Mapping[int, Candidate], recipes: Recipes, pricer: Pricer) -> Iterator[Bonus]:
    """Pairs that each take a part of what the runtime makes one kernel of: both count that the kernel goes."""
    takers: dict[frozenset[Node], dict[int, frozenset[Node]]] = defaultdict(dict)
    for i, candidate in members.items():
        gone = vanished([candidate])
        for group in {recipes.merged[node] for node in gone if node in recipes.merged}:
            takers[group][i] = group & gone
    worth: dict[frozenset[int], float] = defaultdict(float)
    for group, parts in takers.items():
        times = _Times(graph, recipes, pricer)
        for (i, one), (j, two) in combinations(parts.items(), 2):
            if not one & two:
                worth[frozenset((i, j))] += times.of(group - one) + times.of(group - two) - times.of(group) - times.of(group - one - two)
    for pair, saved in worth.items():
        if abs(saved) > NOTHING:
            yield Apart(saved, pair)


@dataclass
class _Times:
    """Microseconds of nodes of one graph as the runtime runs them, by themselves."""

    graph: Graph
    recipes: Recipes
    pricer: Pricer
    known: dict[frozenset[Node], float] = field(default_factory=dict)

    def of(self, nodes: frozenset[Node]) -> float:
        if nodes not in self.known:
            works = self.pricer.works(self.recipes.kernels(self.graph, nodes))
            self.known[nodes] = self.pricer.model.times(self.pricer.model.as_run(works))["total_us"]
        return self.known[nodes]


def _time_us(node: Node, recipes: Recipes, pricer: Pricer) -> float:
    kernel = recipes.node(node)
    work = pricer.work(kernel) if kernel is not None else None
    return 0.0 if work is None else pricer.model.time_us(work)
