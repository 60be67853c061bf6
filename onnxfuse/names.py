"""Fresh names: unique over the whole model, so that no new value or node can be taken for another one."""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx


class Names:
    """Hands out names that nothing in a model has."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._last: dict[str, int] = {}  # the number given last, by stem

    def fresh(self, wanted: str) -> str:
        """`wanted`, or with the next free number behind it."""
        stem = re.sub(r"_\d+$", "", wanted)
        name, number = wanted, self._last.get(stem, 0)
        while name in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._last[stem] = number
        self._taken.add(name)
        return name


def names_in(model: onnx.ModelProto) -> set[str]:
    """Every name of a value or node in the model, its bodies and functions included."""
    taken: set[str] = set()
    for graph in (model.graph, *(b for n in nodes_in(model) for b in bodies_of(n))):
        taken.update(v.name for v in (*graph.input, *graph.output, *graph.value_info))
        taken.update(t.name for t in graph.initializer)
        taken.update(s.values.name for s in graph.sparse_initializer)
    for function in model.functions:
        taken.update((*function.input, *function.output))
    for node in nodes_in(model):
        taken.update((node.name, *node.input, *node.output))
    return taken


def nodes_in(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of a model, its bodies and functions included."""
    yield from _nodes(model.graph.node)
    for function in model.functions:
        yield from _nodes(function.node)


def _nodes(nodes: object) -> Iterator[onnx.NodeProto]:
    for node in nodes:  # type: ignore[attr-defined]  # protobuf containers have no common type
        yield node
        for body in bodies_of(node):
            yield from _nodes(body.node)


def bodies_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs a control-flow node carries."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs
