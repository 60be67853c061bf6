"""The record of one optimisation: every decision with its reason, and the totals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from onnxfuse.decision import Decision, Verdict

if TYPE_CHECKING:
    from onnxfuse.plan import Plan  # brings onnx, and tables are printed where it is missing: by `doctor`


@dataclass(frozen=True)
class Report:
    """All that was found and decided. Times in seconds; node counts are of the main graph and its bodies.

    device: what was priced for. target: what fused ops are written in. sizes: the number each symbolic dim was priced
    at. verified: one line per check that ran; not_verified: what was not checked, and why. seconds: our time by phase.
    changes: a line for each thing that was done to the model beside fusing.
    planned: makes `plans`. gained: makes `before_and_after`. exhibit: makes what a page shows beside the report: graphs and
    kernels, as plain dicts and lists.
    """

    model: str
    device: str
    level: str
    decisions: tuple[Decision, ...]
    nodes_before: int
    nodes_after: int
    sizes: Mapping[str, int] = field(default_factory=dict)
    verified: tuple[str, ...] = ()
    not_verified: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    target: str = "onnxfuse"
    changes: tuple[str, ...] = ()
    planned: Callable[[], tuple[Plan, ...]] = field(default=tuple, repr=False, compare=False)
    gained: Callable[[], tuple[Plan, ...]] = field(default=tuple, repr=False, compare=False)
    exhibit: Callable[[], dict[str, Any]] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def plans(self) -> tuple[Plan, ...]:
        """What the model is predicted to cost as it was optimised ("chosen"), and as it might have been: worked out when asked for."""
        return self.planned()

    @cached_property
    def before_and_after(self) -> tuple[Plan, ...]:
        """What the model is predicted to cost with nothing fused, and as it was optimised; empty where nothing was priced."""
        return self.gained()

    def ended(self, *verdicts: Verdict) -> tuple[Decision, ...]:
        """Decisions that ended in one of these ways, in graph order."""
        return tuple(d for d in self.decisions if d.verdict in verdicts)

    @property
    def fused(self) -> tuple[Decision, ...]:
        return self.ended(Verdict.FUSED)
