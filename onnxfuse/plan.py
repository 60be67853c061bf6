"""What a whole model costs with a set of candidates made: launches, bytes, time and peak memory, as predicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod

from onnxfuse.candidate import Candidate
from onnxfuse.cost.model import Model as CostModel
from onnxfuse.cost.model import Work
from onnxfuse.cost.types import byte_size, type_name
from onnxfuse.graph import Graph, Model, Node, Value
from onnxfuse.pricing import Pricer
from onnxfuse.recipe import Recipes, Tensor
from onnxfuse.rule import Made
from onnxfuse.vanishing import helpers, needed, vanished


@dataclass(frozen=True)
class Plan:
    """One way to run a model on a device.

    launches: kernels started, views not counted. bytes: what kernels read and write. peak_bytes: weights, inputs, and
    the intermediate tensors of the main graph that are alive at the same time, views not counted twice. All are
    predictions, of one run with every body run once; a function counts once for each call of it.
    """

    name: str
    fusions: int
    launches: int
    bytes: int
    time_us: float
    peak_bytes: int


@dataclass(frozen=True)
class Step:
    """What runs at one place of a graph: kernels, and the values they read and make. source: what a view is a view of."""

    works: tuple[Work, ...]
    reads: tuple[Value, ...]
    makes: tuple[Value, ...]
    source: Value | None = None


@dataclass(frozen=True)
class Planner:
    """Prices whole models. graphs: those that run, with what prices each."""

    model: Model
    cost: CostModel
    recipes: Recipes
    pricers: Mapping[Graph, Pricer]

    def plan(self, name: str, chosen: Sequence[Candidate]) -> Plan:
        """What the model costs when these candidates of it, which do not exclude each other, are made."""
        steps = {g: list(self._steps(g, [c for c in chosen if c.view.graph is g])) for g in self.pricers}
        launches, moved, time_us = 0, 0, 0.0
        for graph, run in steps.items():
            written = [work for step in run for work in step.works]
            works = self.cost.as_run(written)
            times = self.runs(graph)
            launches += times * sum(w.launches for w in works)
            moved += times * sum(w.bytes for w in works)
            time_us += times * self.cost.times(works)["total_us"]
        peak = self._weights() + _peak(steps.get(self.model.main, []), self.model.main, self.pricers)
        return Plan(name, len(chosen), launches, moved, time_us, peak)

    def runs(self, graph: Graph) -> int:
        """How often a graph runs: once, but for what stands in a function."""
        function = _function(graph)
        return 1 if function is None else self._calls[function]

    def _steps(self, graph: Graph, chosen: Sequence[Candidate]) -> Iterator[Step]:
        gone = vanished(chosen)
        roots = {c.root.producer: c for c in chosen}
        added: set[Made] = set()
        for node in self.recipes.order(graph):
            if node in roots:
                yield self._fused(roots[node], added)
            elif node not in gone:
                yield self._kept(node)

    def _fused(self, candidate: Candidate, added: set[Made]) -> Step:
        """The kernels of a fused operator; those in front of it that another has added already are left out."""
        pricer, recipe = self.pricers[candidate.view.graph], self.recipes.of(candidate)
        works = pricer.after(recipe)
        front = helpers(candidate.call.operands)
        fresh = [made for made in dict.fromkeys(front) if made not in added]
        added.update(fresh)
        rest = works[len(pricer.works(recipe.helpers)) :]
        makes = tuple(v for v in candidate.outputs if v is not None)
        reads = tuple(needed(candidate).difference(makes))
        return Step((*pricer.works(map(self.recipes.made, fresh)), *rest), reads, makes)

    def _kept(self, node: Node) -> Step:
        kernel = None if (node.domain, node.op) in self._functions else self.recipes.node(node)
        work = self.pricers[node.graph].work(kernel) if kernel is not None else None
        is_view = work is not None and work.launches == 0
        inputs, outputs = (tuple(v for v in side if v is not None) for side in (node.inputs, node.outputs))
        return Step(() if work is None else (work,), inputs, outputs, inputs[0] if is_view and inputs else None)

    @cached_property
    def _functions(self) -> set[tuple[str, str]]:
        """Functions whose bodies are priced; a call of one costs what its body costs."""
        return {name for g in self.pricers if (name := _function(g)) is not None}

    @cached_property
    def _calls(self) -> Counter[tuple[str, str]]:
        """How often each function of the model is run: by the main graph, and by functions that are run."""
        bodies = {_function(g): g for g in self.model.functions}
        calls: Counter[tuple[str, str]] = Counter()

        def follow(graph: Graph) -> None:
            for node in (n for scope in graph.walk() for n in scope.nodes):
                called = bodies.get((node.domain, node.op))
                if called is not None:
                    calls[node.domain, node.op] += 1
                    follow(called)

        follow(self.model.main)
        return calls

    def _weights(self) -> int:
        tensors = (t for g in self.model.graphs() for t in g.initializers.values())
        return sum(byte_size(prod(t.dims), type_name(t.data_type)) for t in tensors)


def _function(graph: Graph) -> tuple[str, str] | None:
    """Domain and name of the function that a graph stands in."""
    while graph.outer is not None:
        graph = graph.outer
    return (graph.function.domain, graph.function.name) if graph.function is not None else None


def _peak(steps: Sequence[Step], graph: Graph, pricers: Mapping[Graph, Pricer]) -> int:
    """The most bytes of tensors that are alive at one time. Inputs stay throughout, outputs to the end."""
    storage: dict[Value, Value] = {}
    born: dict[Value, int] = {v: 0 for v in graph.inputs if v.name not in graph.initializers}
    dies: dict[Value, int] = {v: len(steps) for v in born}
    for at, step in enumerate(steps):
        for value in step.makes:
            storage[value] = value if step.source is None else storage.get(step.source, step.source)
            born.setdefault(storage[value], at)
        for value in (*step.reads, *step.makes):
            dies[storage.get(value, value)] = at
    dies.update({storage.get(v, v): len(steps) for v in (*graph.outputs, *graph.inputs)})
    change = [0] * (len(steps) + 2)
    for value, start in born.items():
        size = 0 if value.is_constant else pricers[graph].bytes(Tensor(value.shape, value.dtype))
        change[start] += size
        change[dies.get(value, start) + 1] -= size
    return max(accumulate(change), default=0)
