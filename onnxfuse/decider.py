"""Finds what rules match in one model, prices it on one device, and chooses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property

from onnxfuse.candidate import Candidate, candidates, replaces_enough
from onnxfuse.canonical import View
from onnxfuse.cost.model import Model as CostModel
from onnxfuse.cost.model import Price
from onnxfuse.cost.typical import typical
from onnxfuse.decision import Decision
from onnxfuse.fitting import Fitting
from onnxfuse.graph import Graph, Model
from onnxfuse.op import DOMAIN
from onnxfuse.plan import Plan, Planner
from onnxfuse.pricing import Pricer
from onnxfuse.recipe import Recipes
from onnxfuse.rule import Rule
from onnxfuse.select import NEVER, largest_first, select
from onnxfuse.sharing import bonuses
from onnxfuse.target import Target

Progress = Callable[[str, int, int], None]
ELEMENTWISE, ATTENTION = "elementwise", "attention"  # kinds of rules


class Decider:
    """What rules find in one model, priced for one device at one set of sizes.

    found: candidates with their prices. declined: matches that cannot be made. given: sizes of symbolic dims that the
    caller knows; sizes: those of all dims, as they are priced.
    """

    def __init__(
        self,
        model: Model,
        rules: Sequence[Rule],
        target: Target,
        cost: CostModel,
        given: Mapping[str, int],
        progress: Progress,
    ) -> None:
        self.model, self.cost, self.given = model, cost, given
        # what our own operators mean stays as it is: a body fused into the operator itself would call itself
        own = {body for f in model.functions if f.function is not None and f.function.domain == DOMAIN for body in f.walk()}
        self.views = [View(g) for g in model.graphs() if g not in own]
        self.recipes = Recipes()
        self.sizes: dict[str, int] = dict(given)
        self.pricers: dict[Graph, Pricer] = {}
        self.found: list[Candidate] = []
        self.declined: list[Decision] = []
        for done, view in enumerate(self.views):
            progress("match", done, len(self.views))
            self._find(view, rules, target)

    def choose(self, found: Sequence[Candidate] | None = None, *, everything: bool = False) -> tuple[list[Candidate], list[Decision]]:
        """(chosen, how the others ended) of these candidates, by default of all. everything: as much as can be made, whatever it saves."""
        found = self.found if found is None else found
        return select(found, covered) if everything else select(found, worth, bonuses(found, self.recipes, self.pricers))

    def plans(self, chosen: Sequence[Candidate], found: Sequence[Candidate]) -> tuple[Plan, ...]:
        """What the chosen ones cost, and what other ways to choose from `found` would have."""
        return (
            self.planner.plan("chosen", chosen),
            *(self.planner.plan(name, self.choose(some)[0]) for name, some in self.strategies(found).items()),
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
        sizes = Fitting(view.graph).usual({**self.sizes, **self.given}, typical)
        self.sizes = {**sizes, **self.sizes}  # those of the main graph hold in the bodies inside it too
        pricer = self.pricers[view.graph] = Pricer(self.cost, sizes)
        self.recipes.merged.update((node, group) for group in pricer.merged(view.graph, self.recipes) for node in group)
        for item in candidates(view, rules, target):
            if isinstance(item, Decision):
                self.declined.append(item)
            elif replaces_enough(item):
                self.found.append(item.priced(pricer.price(self.recipes.of(item))))


def covered(candidate: Candidate) -> float:
    """How much of the graph a candidate takes, the fewer of two candidates that take the same counting more."""
    return sum(n.op not in ("Constant", "Identity") for n in candidate.removed) - 0.5 if _is_able(candidate) else NEVER


def worth(candidate: Candidate) -> float:
    """Microseconds that a candidate saves; below 0 where they are within the model's error, for others to lift above it."""
    price = candidate.price
    if not isinstance(price, Price) or not _is_able(candidate):
        return NEVER
    return price.saved_us if price.worth else min(0.0, price.saved_us - price.margin_us)


def _is_able(candidate: Candidate) -> bool:
    return candidate.price is None or not candidate.price.failures


def _of_kinds(found: Sequence[Candidate], kinds: Collection[str]) -> list[Candidate]:
    return [c for c in found if c.rule.kind in kinds]
