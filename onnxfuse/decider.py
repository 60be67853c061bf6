"""Finds what rules match in one model, prices it on one device, and chooses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

from onnxfuse.candidate import Candidate, candidates, replaces_enough
from onnxfuse.canonical import View
from onnxfuse.cost.device import Cpu
from onnxfuse.cost.model import Price
from onnxfuse.decision import Decision, Later
from onnxfuse.generated.candidates import Finder, Generator, Regions, acyclic, crowded
from onnxfuse.graph import Graph, Model, Node
from onnxfuse.op import DOMAIN
from onnxfuse.plan import Plan, Planner
from onnxfuse.pricing import Pricer
from onnxfuse.ranges import USUAL, At, Ranges
from onnxfuse.recipe import Recipe, Recipes
from onnxfuse.rule import Rule
from onnxfuse.select import NEVER, largest_first, select
from onnxfuse.sharing import bonuses
from onnxfuse.target import Target

Kind = tuple[Graph, Recipe]
Place = tuple[str, str, str, str, tuple[str, ...]]
Progress = Callable[[str, int, int], None]
SURE_US = 2.0  # what a product must save by another operator alone: less may be an error of the model
MOST_LOSS = 0.05  # of a model's time, at any size that a dim may take
ELEMENTWISE, ATTENTION = "elementwise", "attention"  # kinds of rules
PRODUCTS = ("MatMul", "Gemm", "Conv")
# what taking an operator counts, 1 where it is not here; products are computed in either case, and views move nothing
COVERS = {
    **dict.fromkeys(("Constant", "Identity"), 0.0),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), 0.1),
    **dict.fromkeys(PRODUCTS, 0.3),
}
NO_GENERATORS: Mapping[str, Generator] = {}
NONE: frozenset[Node] = frozenset()


class Decider:
    """What rules find in one model, priced for one device at one set of sizes.

    found: candidates with their prices. declined: matches that cannot be made. ranges: sizes, those that the caller knows
    and those that are usual. most_loss: the part of the model's time that a choice which pays at usual sizes may lose at
    others. asked: names of rules that the caller wants wherever they match.
    """

    def __init__(
        self,
        model: Model,
        rules: Sequence[Rule],
        target: Target,
        ranges: Ranges,
        progress: Progress,
        *,
        most_loss: float = MOST_LOSS,
        generators: Mapping[str, Generator] = NO_GENERATORS,
        asked: Collection[str] = (),
    ) -> None:
        self.model, self.cost, self.ranges, self.most_loss, self.asked = model, ranges.cost, ranges, most_loss, asked
        # what our own operators mean stays as it is: a body fused into the operator itself would call itself
        own = {body for f in model.functions if f.function is not None and f.function.domain == DOMAIN for body in f.walk()}
        self.views = [View(g) for g in model.graphs() if g not in own]
        self.recipes = Recipes()
        self.pricers: dict[Graph, Pricer] = {}
        self._unfused: dict[At, float] = {}
        self.found: list[Candidate] = []
        self.declined: list[Decision] = []
        self.finder = Finder(generators, self.cost.max_nodes, on_cpu=isinstance(self.cost.device, Cpu))
        self._regions: dict[tuple[Graph, frozenset[Node], frozenset[Node]], Regions] = {}
        self._generated: dict[Place, Candidate] = {}
        for done, view in enumerate(self.views):
            progress("match", done, len(self.views))
            self._find(view, rules, target)

    def choose(
        self, found: Sequence[Candidate] | None = None, *, everything: bool = False, barred: frozenset[Node] = NONE, generate: bool = True
    ) -> tuple[list[Candidate], list[Decision]]:
        """(chosen, how the others ended) of these candidates, by default of all, and of what can be generated beside them.

        everything: as much as can be made, whatever it saves. barred: nodes that nothing is generated for.
        """
        named, ended = self._choose(self.found if found is None else found, everything)
        made, left = self._generate(named, everything, barred) if generate else ([], [])
        return [*named, *made], [*ended, *left]

    def regions(self, chosen: Sequence[Candidate], barred: frozenset[Node] = NONE) -> Iterator[tuple[View, Regions]]:
        """What can be generated in each graph beside these candidates of rules, with prices."""
        for view in self.views:
            own = [c for c in chosen if c.view is view]
            key = view.graph, frozenset(n for c in own for n in c.removed), barred
            if key not in self._regions:
                self._regions[key] = self._priced(self.finder.find(view, own, barred))
            yield view, self._regions[key]

    def _priced(self, regions: Regions) -> Regions:
        for position, candidate in enumerate(regions.found):
            pricer = self.pricers[candidate.view.graph]
            regions.found[position] = priced = candidate.priced(pricer.price(self.recipes.of(candidate)))
            self._generated[_place(priced.decision)] = priced
        return regions

    def _choose(self, found: Sequence[Candidate], everything: bool) -> tuple[list[Candidate], list[Decision]]:
        if everything:
            return select(found, covered)
        # on a GPU what a kernel finds in L2 hangs on all that runs before it
        measure = None if isinstance(self.cost.device, Cpu) else lambda some: self.planner.plan("", some).time_us
        while True:
            chosen, ended = select(found, worth, bonuses(found, self.recipes, self.pricers), measure)
            loser = self._loser(chosen, chosen)
            if loser is None:
                return chosen, ended
            found = [_refused(c, loser[1]) if self._kind(c) == loser[0] else c for c in found]

    def _generate(self, named: Sequence[Candidate], everything: bool, barred: frozenset[Node]) -> tuple[list[Candidate], list[Decision]]:
        """Chooses among what can be generated beside the candidates of rules that are made."""
        found = [c for _, regions in self.regions(named, barred) for c in regions.found]
        weigh = covered if everything else worth
        while True:
            chosen, ended = select(found, weigh, () if everything else bonuses(found, self.recipes, self.pricers))
            loser = None if everything else self._loser([*named, *chosen], chosen)
            if loser is None:
                break
            found = [_refused(c, loser[1]) if self._kind(c) == loser[0] else c for c in found]
        kept, apart = acyclic(named, chosen)
        left, over = crowded(kept, weigh)
        return left, [*ended, *apart, *over]

    def told(self, decision: Decision) -> Decision:
        """The decision with the sizes at which it flips, by dim, among its numbers."""
        kind = self.kind_of(decision)
        return decision if kind is None else replace(decision, numbers=Later(lambda: {**decision.numbers, **self._flips(*kind)}))

    def _flips(self, graph: Graph, recipe: Recipe) -> dict[str, Any]:
        usual, crossings = self.ranges.sizes(graph), self.ranges.crossings(graph, recipe)
        ranges = {dim: {**asdict(c), "at": usual[dim], "text": c.text(dim)} for dim, c in crossings.items()}
        return {"ranges": ranges} if ranges else {}

    def kind_of(self, decision: Decision) -> Kind | None:
        """The graph and recipe of the candidate that the decision is about."""
        candidate = self._by_place.get(_place(decision)) or self._generated.get(_place(decision))
        return None if candidate is None else self._kind(candidate)

    @cached_property
    def _by_place(self) -> dict[Place, Candidate]:
        return {_place(c.decision): c for c in self.found}

    def _loser(self, chosen: Sequence[Candidate], among: Sequence[Candidate]) -> tuple[Kind, str] | None:
        """(the kind among these that loses most where the model loses most by all chosen, why it is refused) if that is too much."""
        kinds = Counter(map(self._kind, chosen))
        loss, at = max(((self._loss(kinds, at), at) for at in self.ranges.probes()), default=(0.0, USUAL))
        if loss <= self.most_loss or not among:
            return None
        worst = min(dict.fromkeys(map(self._kind, among)), key=lambda kind: kinds[kind] * self._saved_us(kind, at))
        why = f"it pays at usual sizes, but the model would lose {loss:.0%} at {at[0]}={at[1]}, more than {self.most_loss:.0%}"
        return worst, why

    def _kind(self, candidate: Candidate) -> Kind:
        """What equal candidates have in common."""
        return candidate.view.graph, self.recipes.of(candidate)

    def _loss(self, kinds: Mapping[Kind, int], at: At) -> float:
        """The part of the model's time that these fusions lose together at some sizes; 0 where they save."""
        saved = sum(count * self.planner.runs(kind[0]) * self._saved_us(kind, at) for kind, count in kinds.items())
        return -saved / self._unfused_us(at) if saved < 0 else 0.0

    def _saved_us(self, kind: Kind, at: At) -> float:
        unfused, fused = self.ranges.pricer(kind[0], at).times(kind[1])
        return unfused - fused

    def _unfused_us(self, at: At) -> float:
        """What the model takes with nothing fused."""
        if at not in self._unfused:
            pricers = {view.graph: self.ranges.pricer(view.graph, at) for view in self.views}
            self._unfused[at] = Planner(self.model, self.cost, self.recipes, pricers).plan("none", []).time_us
        return self._unfused[at]

    def before_and_after(self, chosen: Sequence[Candidate]) -> tuple[Plan, ...]:
        """What the model costs with nothing fused, and with these."""
        return self.planner.plan("none", []), self.planner.plan("chosen", chosen)

    def plans(self, chosen: Sequence[Candidate], found: Sequence[Candidate]) -> tuple[Plan, ...]:
        """What the chosen ones cost, and what other ways to choose from `found` would have."""
        return (
            self.planner.plan("chosen", chosen),
            *(self.planner.plan(name, self.choose(some, generate=bool(some))[0]) for name, some in self.strategies(found).items()),
            self.planner.plan("largest first", largest_first(found, worth)),
        )

    def strategies(self, found: Sequence[Candidate]) -> dict[str, list[Candidate]]:
        """The candidates that each way to optimise a model may choose from, by its name."""
        return {
            "none": [],
            "elementwise": _of_kinds(found, [ELEMENTWISE]),
            "without attention": [c for c in found if c.rule.kind != ATTENTION],
            "full": list(found),
        }

    @cached_property
    def planner(self) -> Planner:
        return Planner(self.model, self.cost, self.recipes, self.pricers)

    def _find(self, view: View, rules: Sequence[Rule], target: Target) -> None:
        pricer = self.pricers[view.graph] = self.ranges.pricer(view.graph)
        self.recipes.merged.update((node, group) for group in pricer.merged(view.graph, self.recipes) for node in group)
        quiet = {r.name for r in rules if r.levels and r.name not in self.asked}  # of interest only where they pay
        for item in candidates(view, rules, target):
            if isinstance(item, Decision):
                if item.rule not in quiet:
                    self.declined.append(item)
            elif replaces_enough(item):
                priced = item.priced(pricer.price(self.recipes.of(item)))
                if not self._is_idle(priced):
                    self.found.append(priced)

    def _is_idle(self, candidate: Candidate) -> bool:
        """Whether it gives a product to another operator that is not known to be faster, though nobody asked for that.

        On a GPU none is: that ours are ahead of the library's products was never measured.
        """
        if not candidate.retargets or candidate.rule.name in self.asked or not any(n.op in PRODUCTS for n in candidate.removed):
            return False
        return worth(candidate) < SURE_US or not isinstance(self.cost.device, Cpu)


def covered(candidate: Candidate) -> float:
    """How much of the graph a candidate takes, the fewer of two candidates that take the same counting more.

    Products and views count little: what is taken in behind them may be the start of a norm or a gate.
    """
    taken = max(1.0, sum(COVERS.get(node.op, 1.0) for node in candidate.removed))
    return taken - 0.5 if _is_able(candidate) else NEVER


def worth(candidate: Candidate) -> float:
    """Microseconds that a candidate saves; below 0 where they are within the model's error, for others to lift above it."""
    price = candidate.price
    if not isinstance(price, Price) or price.refused or not _is_able(candidate):
        return NEVER
    return price.saved_us if price.worth else min(0.0, price.saved_us - price.margin_us)


def _place(decision: Decision) -> Place:
    return decision.rule, decision.scope, decision.value, decision.target, decision.nodes


def _refused(candidate: Candidate, why: str) -> Candidate:
    return candidate.priced(candidate.price.refused_for(why)) if isinstance(candidate.price, Price) else candidate


def _is_able(candidate: Candidate) -> bool:
    return candidate.price is None or not candidate.price.failures


def _of_kinds(found: Sequence[Candidate], kinds: Collection[str]) -> list[Candidate]:
    return [c for c in found if c.rule.kind in kinds]
