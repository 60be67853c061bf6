"""Sizes for the symbolic dims of a few nodes, such that the nodes can run: exporters give one size several names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from onnxfuse.graph import Node, Value
from onnxfuse.symbolic import Dim, substitute, symbols

ORDINARY = (2, 5, 3, 7, 11, 13)  # in turn: distinct, so that a swapped axis shows
MATCHING = 8  # all alike: what only works when sizes coincide shows in the others
BROADCAST = {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Where", "And", "Or", "Xor", "Equal", "Less", "LessOrEqual", "Greater",
             "GreaterOrEqual", "Sum", "Mod", "PRelu"}  # fmt: skip


def assignments(nodes: Sequence[Node], inputs: Iterable[Value]) -> list[dict[str, int]]:
    """Numbers for every symbol in the shapes of `nodes`: ordinary ones, all alike, and single ones with an empty past."""
    values = dict.fromkeys([*inputs, *(v for n in nodes for v in (*n.inputs, *n.outputs) if v is not None)])
    names = sorted({name for v in values for d in v.shape or () for name in symbols(d)})
    if not names:
        return [{}]
    equal = list(_equalities(nodes))
    turns = (
        {name: ORDINARY[i % len(ORDINARY)] for i, name in enumerate(names)},
        dict.fromkeys(names, MATCHING),
        {name: 0 if "past" in name.lower() else 1 for name in names},
    )
    return [_fitted(turn, equal) for turn in turns]


def _fitted(sizes: Mapping[str, int], equal: Sequence[tuple[Dim, Dim]]) -> dict[str, int]:
    """`sizes`, with each symbol that must equal something else set to what that is."""
    fitted = dict(sizes)
    for _ in range(3):  # what one equality sets, an earlier one may depend on
        for a, b in equal:
            one, other = substitute(a, fitted), substitute(b, fitted)
            if one == other or not isinstance(one, int) or not isinstance(other, int):
                continue
            if (name := _lone(a)) is not None:
                fitted[name] = other
            elif (name := _lone(b)) is not None:
                fitted[name] = one
    return fitted


def _lone(dim: Dim) -> str | None:
    """The symbol that the dim is, if it is just one."""
    names = symbols(dim) if not isinstance(dim, int) else set()
    name = next(iter(names)) if len(names) == 1 else None
    return name if name is not None and substitute(dim, {name: 7}) == 7 and substitute(dim, {name: 11}) == 11 else None


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
