"""What was decided about each place where a rule's pattern held, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, Protocol


class Verdict(str, Enum):
    """How a candidate ended."""

    FUSED = "fused"
    DECLINED = "declined"  # a guard did not hold: the rewrite would not be the same function, or no kernel takes it
    NOT_WORTH_IT = "not worth it"  # the cost model predicts no saving
    LOST = "lost to another"  # an overlapping candidate saves more
    ROLLED_BACK = "rolled back"  # validation found another number
    NEAR_MISS = "near miss"  # the pattern held in part


class Price(Protocol):
    """What the engine needs of a price; `onnxfuse.cost.model.Price` is one."""

    @property
    def saved_us(self) -> float: ...
    @property
    def saved_bytes(self) -> int: ...
    @property
    def saved_launches(self) -> int: ...
    @property
    def worth(self) -> bool: ...
    @property
    def failures(self) -> tuple[str, ...]: ...
    def reason(self) -> str: ...


class Later(Mapping[str, Any]):
    """A mapping that is made when somebody reads it: facts that take long to work out, and that few ask for."""

    def __init__(self, make: Callable[[], Mapping[str, Any]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> Mapping[str, Any]:
        return self._make()

    def __getitem__(self, key: str) -> Any:
        return self._made[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


@dataclass(frozen=True)
class Decision:
    """One candidate's end, for people and for `--report`.

    scope: the graph it is in. node, value: the root's label and output name. ops: operator types it covers, in order;
    nodes: their labels. target: the op it becomes; new_node: that node's name once written. numbers: further facts.
    """

    rule: str
    verdict: Verdict
    scope: str
    node: str
    value: str
    ops: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    target: str = ""
    new_node: str = ""
    reason: str = ""
    price: Price | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def ended(self, verdict: Verdict, reason: str) -> Decision:
        return replace(self, verdict=verdict, reason=reason)
