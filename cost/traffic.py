"""Textbook calculators: traffic of a chain of ops, reuse on chip, and the record of one decision.

All sizes are exact bytes. Each function checks its input and raises UsageError that says what must hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnxfuse.errors import UsageError


@dataclass(frozen=True)
class ChainTraffic:
    """A chain of ops run as some groups, one kernel each."""

    launches: int
    intermediate_bytes: int  # written by one group and read by the next
    external_bytes: int  # the chain's own input and output


@dataclass(frozen=True)
class Reuse:
    """A tile that is read several times: from on-chip memory after the first time, if it fits."""

    fits: bool
    avoided_bytes: int
    utilisation: float  # the part of the capacity that the tile takes; above 1 it does not fit


@dataclass(frozen=True)
class Decision:
    """The four questions on one candidate, the bytes that layout changes add, and what failed."""

    name: str
    accepted: bool
    failures: tuple[str, ...]
    extra_reorder_bytes: int


def chain_traffic(ops: int, groups: int, tensor_bytes: int) -> ChainTraffic:
    """Traffic of a chain of `ops` unary ops on tensors of `tensor_bytes`, cut into `groups` kernels.

    Every cut writes a tensor and reads it back: 2 * (groups - 1) * tensor_bytes.
    """
    _at_least("ops", ops, 1)
    _at_least("groups", groups, 1)
    _at_least("tensor_bytes", tensor_bytes, 0)
    if groups > ops:
        raise UsageError(f"chain_traffic: groups must be at most ops, {ops}; got {groups}. A group holds at least one op")
    return ChainTraffic(groups, 2 * (groups - 1) * tensor_bytes, 2 * tensor_bytes)


def onchip_reuse(tile_bytes: int, uses: int, capacity_bytes: int) -> Reuse:
    """What keeping a tile on chip avoids when it is used `uses` times: all reads but the first."""
    _at_least("tile_bytes", tile_bytes, 0)
    _at_least("uses", uses, 1)
    _at_least("capacity_bytes", capacity_bytes, 1)
    fits = tile_bytes <= capacity_bytes
    return Reuse(fits, (uses - 1) * tile_bytes if fits else 0, tile_bytes / capacity_bytes)


def decision(
    name: str,
    *,
    semantics_match: bool,
    shape_supported: bool,
    onchip_fit: bool,
    backend_lowered: bool,
    extra_reorder_bytes: int = 0,
) -> Decision:
    """The record of one candidate. Bytes of layout changes are kept in it and do not reject by themselves."""
    _at_least("extra_reorder_bytes", extra_reorder_bytes, 0)
    answers = {
        "semantics_match": semantics_match,
        "shape_supported": shape_supported,
        "onchip_fit": onchip_fit,
        "backend_lowered": backend_lowered,
    }
    failures = tuple(question for question, holds in answers.items() if not holds)
    return Decision(name, not failures, failures, extra_reorder_bytes)


def _at_least(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{name} must be an integer of at least {least}; got {value!r}")
