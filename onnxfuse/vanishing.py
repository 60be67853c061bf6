"""Which nodes vanish when candidates are made: those they take, and those that then feed nothing any more."""

from __future__ import annotations

from collections.abc import Iterable

from onnxfuse.candidate import Candidate
from onnxfuse.graph import Node, Value
from onnxfuse.rule import Made, NewConstant, Operand


def vanished(chosen: Iterable[Candidate]) -> set[Node]:
    """Nodes that the rewriter leaves out when it makes these candidates of one graph, which do not exclude each other."""
    made = list(chosen)
    kept = {value for candidate in made for value in needed(candidate)}
    gone = {node for candidate in made for node in candidate.removed}
    todo = list(gone)
    while todo:
        node = todo.pop()
        for value in node.inputs:
            producer = value.producer if value is not None else None
            if producer is not None and producer not in gone and producer.graph is node.graph and _feeds_nothing(producer, gone, kept):
                gone.add(producer)
                todo.append(producer)
    return gone


def needed(candidate: Candidate) -> set[Value]:
    """Values that the fused operator, and those that its rewrite adds, read or make. What a new constant is made from is not read."""
    made = {value for value in candidate.outputs if value is not None}
    return made.union(_read((*candidate.call.operands, *candidate.call.then)))


def helpers(operands: Iterable[Operand]) -> list[Made]:
    """The operators that a rewrite adds in front of the fused one, each after those that it reads.

    Not those of constants alone: a runtime works them out once, when it loads the model.
    """
    found: list[Made] = []
    for operand in operands:
        if isinstance(operand, Made) and not _is_fixed(operand):
            found += [*helpers(operand.operands), operand]
    return found


def _is_fixed(operand: Operand) -> bool:
    if isinstance(operand, Made):
        return all(map(_is_fixed, operand.operands))
    return operand is None or isinstance(operand, NewConstant) or operand.is_constant


def _read(operands: Iterable[Operand]) -> Iterable[Value]:
    for operand in operands:
        if isinstance(operand, Made):
            yield from _read(operand.operands)
        elif isinstance(operand, Value):
            yield operand


def _feeds_nothing(node: Node, gone: set[Node], kept: set[Value]) -> bool:
    outputs = [value for value in node.outputs if value is not None]
    return not any(v in kept or v.is_output or v.captured for v in outputs) and all(u in gone for v in outputs for u in v.users)
