"""The weights of a matrix product as the graph holds them, for rules."""

from __future__ import annotations

from typing import Any

from onnxfuse.graph import Value
from onnxfuse.layout import Layout, identity, transpose
from onnxfuse.pattern import Var
from onnxfuse.rule import Decline, Match


def held_weights(match: Match, hole: Var) -> tuple[Value, bool]:
    """(the constant of rank 2 behind what `hole` matched, whether the product reads its transpose). Raises Decline for other ranks."""
    term = match.term(hole)
    is_transposed = term.op == "View" and _is_turned(term.attributes["layout"]) and _constant(match, term) is None
    held = _constant(match, term.args[0] if is_transposed else term)
    found, is_transposed = (held, is_transposed) if held is not None else (match.value(hole), False)
    if found.rank != 2:
        raise Decline(f"{hole.name} must have rank 2; '{found.name}' is {shown(found)}")
    return found, is_transposed


def shown(value: Value) -> str:
    """Its shape, for people."""
    return "of unknown rank" if value.shape is None else "[" + ",".join(map(str, value.shape)) + "]"


def _constant(match: Match, term: Any) -> Value | None:
    return next((v for v in match.view.values.get(term, ()) if v.is_constant and v.dtype == match.root.dtype), None)


def _is_turned(seen: Layout) -> bool:
    return len(seen.base) == 2 and seen == transpose(identity(seen.base), (1, 0))
