"""Who reads what in a graph once some candidates are made, and whether nodes that become one would wait for themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from onnxfuse.candidate import Candidate
from onnxfuse.graph import Graph, Node, Value
from onnxfuse.vanishing import needed, vanished


@dataclass(frozen=True, eq=False)
class Block:
    """What runs as one: a node that is left, or a candidate that is made. first, last: places in the graph of what makes its values."""

    values: tuple[Value, ...]
    first: int
    last: int


@dataclass(frozen=True)
class Flow:
    """The blocks of one graph: those of its nodes that are left, and for each value those that read it."""

    graph: Graph
    blocks: dict[Node, Block]
    readers: dict[Value, list[Block]]

    @cached_property
    def nodes(self) -> dict[Block, Node]:
        """The nodes of the blocks that are nodes."""
        return {block: node for node, block in self.blocks.items()}


def flow(graph: Graph, chosen: Sequence[Candidate]) -> Flow:
    """The flow of a graph when these candidates of it are made."""
    readers: dict[Value, list[Block]] = defaultdict(list)
    blocks: dict[Node, Block] = {}
    gone = vanished(chosen)
    for node in graph.nodes:
        if node not in gone:
            blocks[node] = block = Block(tuple(v for v in node.outputs if v is not None), node.index, node.index)
            for value in dict.fromkeys(_read(node)):
                readers[value].append(block)
    for candidate in chosen:
        values = tuple(v for v in candidate.outputs if v is not None)
        places = [v.producer.index for v in values if v.producer is not None]
        block = Block(values, min(places), max(places))
        for value in needed(candidate).difference(values):
            readers[value].append(block)
    return Flow(graph, blocks, readers)


def _read(node: Node) -> Iterable[Value]:
    """What a node reads, its bodies included."""
    yield from (v for v in node.inputs if v is not None)
    if node.subgraphs:
        yield from (v for v in node.graph.values.values() if node in v.captured)


@dataclass(eq=False)
class Merged:
    """Blocks that become one."""

    values: list[Value]
    first: int
    last: int


@dataclass
class Merger:
    """Blocks of a flow that are merged step by step, such that nothing ever waits for itself."""

    flow: Flow
    _merged: dict[Block, Merged] = field(default_factory=dict)
    _above: dict[Merged, Merged] = field(default_factory=dict)

    def of(self, block: Block) -> Merged:
        """What the block is merged into: itself alone at first."""
        found = self._merged.get(block)
        if found is None:
            found = self._merged[block] = Merged(list(block.values), block.first, block.last)
        if found in self._above:
            found = self._merged[block] = self.now(found)
        return found

    def now(self, merged: Merged) -> Merged:
        """What it is a part of by now."""
        while merged in self._above:
            merged = self._above[merged]
        return merged

    def readers(self, value: Value) -> list[Merged]:
        """What reads a value."""
        return list(dict.fromkeys(map(self.of, self.flow.readers.get(value, ()))))

    def merge(self, part: Merged, whole: Merged) -> None:
        """Make `part` a part of `whole`."""
        self._above[part] = whole
        whole.values += part.values
        whole.first, whole.last = min(whole.first, part.first), max(whole.last, part.last)

    def waits(self, blocks: Sequence[Merged]) -> bool:
        """Whether a way leads from one of the blocks through something else to one of them: as one, they would wait for themselves."""
        ends = set(blocks)
        last = max(block.last for block in blocks)
        todo = [reader for block in blocks for reader in self._next(block) if reader not in ends]
        seen = set(todo)
        while todo:
            for reader in self._next(todo.pop()):
                if reader in ends:
                    return True
                if reader not in seen and reader.first < last:
                    seen.add(reader)
                    todo.append(reader)
        return False

    def _next(self, block: Merged) -> Iterator[Merged]:
        for value in block.values:
            yield from (reader for reader in self.readers(value) if reader is not block)
