"""Prices over the sizes that a symbolic dim may take: where a decision flips, and where a model would lose by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from onnxfuse.cost.dynamic import Crossover, crossover, probe_sizes
from onnxfuse.cost.model import Model as CostModel
from onnxfuse.cost.typical import Span, span, typical
from onnxfuse.fitting import Fitting
from onnxfuse.graph import Graph, Model
from onnxfuse.pricing import Pricer
from onnxfuse.recipe import Recipe
from onnxfuse.symbolic import symbols

At = tuple[str, int]  # a dim and its size
USUAL: At = ("", 0)
FEW = 8  # sizes of a dim at which whole models are looked at


@dataclass
class Ranges:
    """Prices of one model at any size of its symbolic dims.

    given: sizes that the caller knows. The other dims of the model's inputs are looked at from the smallest to the largest
    size that is expected of them, one dim at a time, the rest at usual sizes.
    """

    model: Model
    cost: CostModel
    given: Mapping[str, int]
    _fittings: dict[Graph, Fitting] = field(default_factory=dict)
    _sizes: dict[tuple[Graph, At], dict[str, int]] = field(default_factory=dict)
    _pricers: dict[tuple[Graph, At], Pricer] = field(default_factory=dict)
    _crossings: dict[tuple[Graph, Recipe], dict[str, Crossover]] = field(default_factory=dict)

    def sizes(self, graph: Graph, at: At = USUAL) -> dict[str, int]:
        """A number for each symbol of a graph. Those of the main graph hold in the others."""
        key = (graph, at)
        if key not in self._sizes:
            around = graph.outer or (self.model.main if graph is not self.model.main else None)
            known = self.sizes(around, at) if around is not None else {}
            fixed = {**self.given, at[0]: at[1]} if at[0] else self.given
            self._sizes[key] = {**known, **self._fitting(graph).usual({**known, **fixed}, typical)}
        return self._sizes[key]

    def pricer(self, graph: Graph, at: At = USUAL) -> Pricer:
        """What prices a graph at these sizes."""
        key = (graph, at)
        if key not in self._pricers:
            self._pricers[key] = Pricer(self.cost, self.sizes(graph, at))
        return self._pricers[key]

    @cached_property
    def free(self) -> dict[str, Span]:
        """The dims of the model's inputs that the caller gives no size for, and the sizes to look at."""
        main = self.model.main
        names = sorted({n for v in main.inputs for d in v.shape or () for n in symbols(d)}.difference(self.given))
        return {name: self.span(name) for name in names}

    def span(self, name: str) -> Span:
        """The sizes that a dim of the model's inputs is expected to take, as far as the sizes of the graph then go together."""
        main, sizes = self._fitting(self.model.main), self.sizes(self.model.main)
        expected, at, most = span(main.called(name)), sizes[name], main.misfits(sizes)
        probes = probe_sizes(min(expected.low, at), max(expected.high, at), FEW)
        fits = [at, *(s for s in probes if main.misfits(self.sizes(self.model.main, (name, s))) <= most)]
        return Span(min(fits), at, max(fits))

    def probes(self) -> list[At]:
        """Sizes to look at, one dim after the other."""
        return [(dim, size) for dim, sizes in self.free.items() for size in probe_sizes(sizes.low, sizes.high, FEW)]

    def crossings(self, graph: Graph, recipe: Recipe) -> dict[str, Crossover]:
        """Where the recipe begins or ceases to pay, by dim; dims that it does not hang on are left out."""
        key = (graph, recipe)
        if key not in self._crossings:
            named = recipe.symbols
            every = bool(named.difference(self.free, self.given))  # others that may follow from the free ones
            dims = {dim: sizes for dim, sizes in self.free.items() if every or dim in named}
            self._crossings[key] = {dim: self._crossing(graph, recipe, dim, sizes) for dim, sizes in dims.items()}
        return self._crossings[key]

    def _crossing(self, graph: Graph, recipe: Recipe, dim: str, sizes: Span) -> Crossover:
        return crossover(lambda size: self.pricer(graph, (dim, size)).gain_us(recipe), sizes.low, sizes.high)

    def _fitting(self, graph: Graph) -> Fitting:
        if graph not in self._fittings:
            self._fittings[graph] = Fitting(graph)
        return self._fittings[graph]
