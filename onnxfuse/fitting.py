"""Sizes for the symbolic dims of a few nodes, such that the nodes can run: exporters give one size several names."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from onnxfuse.errors import ShapeError
from onnxfuse.graph import Graph, Node, Value
from onnxfuse.symbolic import Dim, broadcasts, substitute, symbols

ORDINARY = (2, 5, 3, 7, 11, 13)  # in turn: distinct, so that a swapped axis shows
MATCHING = 8  # all alike: what only works when sizes coincide shows in the others
UNNAMED = re.compile(r"s\d+|unk__\d+|[dD]im_?\d+")
BROADCAST = {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Where", "And", "Or", "Xor", "Equal", "Less", "LessOrEqual", "Greater",
             "GreaterOrEqual", "Sum", "Mod", "PRelu"}  # fmt: skip


class Fitting:
    """Numbers for the symbols of one graph, made to fit its operators."""

    def __init__(self, graph: Graph) -> None:
        values = list(graph.values.values())
        self.names = sorted({name for v in values for d in v.shape or () for name in symbols(d)})
        first = (str(v.shape[0]) for v in graph.inputs if v.shape is not None and len(v.shape) > 1)
        self.batches = {name for name in first if UNNAMED.fullmatch(name)}
        self.equal = _all_equalities(graph.nodes, values)
        self.inputs = sorted({name for v in graph.inputs for d in v.shape or () for name in symbols(d)})

    def usual(self, given: Mapping[str, int], typical: Callable[[str], int]) -> dict[str, int]:
        """A usual number for every symbol: the caller's, or what is typical for the name, made to fit.

        Exporters that give no names write s0, s1, ...: the first axis of an input is then a batch. A size that is too large
        for a table of the model, for positions say, is halved until it fits.
        """
        sizes = {n: given.get(n, typical(self.called(n))) for n in self.names}
        fitted = _fitted(sizes, self.equal, fixed=given.keys())
        for name in self.inputs if self.misfits(fitted) else ():
            fitted = self._halved(name, fitted, given)
        return fitted

    def _halved(self, name: str, sizes: dict[str, int], given: Mapping[str, int]) -> dict[str, int]:
        """With the largest size for that name, of those got by halving, with which more sizes fit; as they are where there is none."""
        size, most = sizes[name], self.misfits(sizes)
        while name not in given and most and (size := size // 2):
            tried = _fitted({**sizes, name: size}, self.equal, fixed={*given, name})
            if self.misfits(tried) < most:
                return tried
        return sizes

    def called(self, name: str) -> str:
        """The name that says what a symbol is: its own, or "batch" for one that the exporter gave no name."""
        return "batch" if name in self.batches else name

    def misfits(self, sizes: Mapping[str, int]) -> int:
        """How many pairs of sizes that have to be the same are not."""
        return sum(_at(a - b, sizes) != 0 for a, b in self.equal)


def assignments(nodes: Sequence[Node], inputs: Iterable[Value]) -> list[dict[str, int]]:
    """Numbers for every symbol in the shapes of `nodes`: ordinary ones, all alike, and single ones with an empty past."""
    values = dict.fromkeys([*inputs, *(v for n in nodes for v in (*n.inputs, *n.outputs) if v is not None)])
    names = sorted({name for v in values for d in (*(v.shape or ()), *(v.elements or ())) for name in symbols(d)})
    if not names:
        return [{}]
    equal = _all_equalities(nodes, values)
    turns = (
        {name: ORDINARY[i % len(ORDINARY)] for i, name in enumerate(names)},
        dict.fromkeys(names, MATCHING),
        {name: 0 if "past" in name.lower() else 1 for name in names},
    )
    return [_fitted(turn, equal) for turn in turns]


def _all_equalities(nodes: Sequence[Node], values: Iterable[Value]) -> list[tuple[Dim, Dim]]:
    met = (pair for v in values for d in v.shape or () if not isinstance(d, int) for pair in broadcasts(d))
    return list(dict.fromkeys([*_equalities(nodes), *met]))


def _fitted(sizes: Mapping[str, int], equal: Sequence[tuple[Dim, Dim]], fixed: Collection[str] = ()) -> dict[str, int]:
    """`sizes`, with symbols that are not fixed changed where two sizes must be the same."""
    fitted = dict(sizes)
    for _ in range(3):  # what one equality sets, an earlier one may depend on
        for a, b in equal:
            name, number = _solution(a - b, fitted, fixed)
            if name is not None:
                fitted[name] = number
    return fitted


def _solution(difference: Dim, sizes: Mapping[str, int], fixed: Collection[str]) -> tuple[str | None, int]:
    """A symbol, and the number for it that makes `difference` 0; None where it is 0 or where no single one does."""
    if isinstance(difference, int) or _at(difference, sizes) == 0:
        return None, 0
    for name in sorted(symbols(difference).difference(fixed), reverse=True):
        base, step = _at(difference, {**sizes, name: 0}), _at(difference, {**sizes, name: 1})
        if base is None or step is None or step == base or base % (base - step):
            continue
        number = base // (base - step)
        if number >= 0 and _at(difference, {**sizes, name: number}) == 0:
            return name, number
    return None, 0


def _at(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    try:
        number = substitute(dim, sizes)
    except ShapeError:  # a broadcast of sizes that do not go together yet
        return None
    return number if isinstance(number, int) else None


def _equalities(nodes: Sequence[Node]) -> Iterator[tuple[Dim, Dim]]:
    """Pairs of sizes that have to be the same for the nodes to run."""
    for node in nodes:
        shapes = [v.shape for v in node.inputs if v is not None and v.shape is not None]
        if node.op in BROADCAST:
            yield from _aligned(shapes)
        elif node.op == "MatMul" and len(shapes) == 2 and min(map(len, shapes)) >= 2:
            yield shapes[0][-1], shapes[1][-2]
            yield from _aligned([s[:-2] for s in shapes])
        elif node.op == "Concat" and len({len(s) for s in shapes}) == 1:
            axis = node.attributes["axis"] % len(shapes[0])
            yield from _aligned([(*s[:axis], *s[axis + 1 :]) for s in shapes])


def _aligned(shapes: Sequence[tuple[Dim, ...]]) -> Iterator[tuple[Dim, Dim]]:
    for shape in shapes[1:]:
        for a, b in zip(reversed(shapes[0]), reversed(shape), strict=False):
            if 1 not in (a, b) and a != b:
                yield a, b
