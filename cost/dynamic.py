"""Decisions that hang on a size: where they flip, and whether one that is right at one size is wrong at another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onnxfuse.cost.model import Price
from onnxfuse.errors import UsageError

PROBES = 24  # sizes looked at between the ends, evenly spaced in ratio
MOST_LOSS = 0.05  # of the unfused time, at any size of the range


@dataclass(frozen=True)
class Crossover:
    """The sizes in [low, high] from which on the decision differs from the size below. `pays_at_low`: what it is there."""

    low: int
    high: int
    pays_at_low: bool
    flips: tuple[int, ...]

    def text(self, dim: str) -> str:
        """The sizes at which it pays, in words: "pays from seq >= 96"."""
        if not self.flips:
            return f"{'pays' if self.pays_at_low else 'does not pay'} at any {dim} from {self.low} to {self.high}"
        if len(self.flips) == 1:
            return f"pays up to {dim} <= {self.flips[0] - 1}" if self.pays_at_low else f"pays from {dim} >= {self.flips[0]}"
        ends = [self.low, *self.flips, self.high + 1]
        paying = range(0 if self.pays_at_low else 1, len(ends) - 1, 2)
        return f"pays for {dim} in " + ", ".join(f"{ends[i]}..{ends[i + 1] - 1}" for i in paying)


@dataclass(frozen=True)
class RangeDecision:
    """The decision at the typical size, held against the range. `reason` says which size refused it, or where it flips."""

    worth: bool
    reason: str
    crossover: Crossover
    worst_size: int
    worst_loss: float  # part of the unfused time lost there; negative: it gains everywhere


def crossover(price_at: Callable[[int], float], low: int, high: int) -> Crossover:
    """Where a saving changes its sign between two sizes. price_at: the saving at a size, above 0 if it pays.

    Two flips closer together than a 24th of the range's ratio may be missed. Raises UsageError for an empty range.
    """
    sizes = probe_sizes(low, high)
    pays = [price_at(size) > 0 for size in sizes]
    flips = tuple(_first_unlike(price_at, sizes[i], sizes[i + 1], pays[i]) for i in range(len(sizes) - 1) if pays[i] != pays[i + 1])
    return Crossover(low, high, pays[0], flips)


def decide_range(price_at: Callable[[int], Price], low: int, typical: int, high: int, *, accept_loss: bool = False) -> RangeDecision:
    """The decision for a dim whose size is not known: that of `typical`, unless some size of the range loses over 5%.

    accept_loss: take it all the same. Raises UsageError when `typical` lies outside of the range.
    """
    if not low <= typical <= high:
        raise UsageError(f"decide_range: typical must lie in {low}..{high}; got {typical}")
    usual = price_at(typical)
    losses = {size: _loss(price_at(size)) for size in (*probe_sizes(low, high), typical)}
    worst = max(losses, key=lambda size: losses[size])
    where = crossover(lambda size: 1.0 if price_at(size).worth else -1.0, low, high)
    loses = losses[worst] > MOST_LOSS
    reason = usual.reason()
    if usual.worth and loses and not accept_loss:
        reason = f"worth it at {typical}, but loses {losses[worst]:.0%} at {worst}, more than {MOST_LOSS:.0%}"
    return RangeDecision(usual.worth and (accept_loss or not loses), reason, where, worst, losses[worst])


def probe_sizes(low: int, high: int) -> list[int]:
    """Sizes from low to high, both included, evenly spaced in ratio. Raises UsageError for an empty range."""
    if low < 0 or high < low:
        raise UsageError(f"size range: low must be at least 0 and at most high; got {low}..{high}")
    ratio = (high + 1) / (low + 1)
    return sorted({round((low + 1) * ratio ** (i / PROBES)) - 1 for i in range(PROBES + 1)} | {low, high})


def _first_unlike(price_at: Callable[[int], float], below: int, above: int, pays: bool) -> int:
    while above - below > 1:
        middle = (below + above) // 2
        if (price_at(middle) > 0) == pays:
            below = middle
        else:
            above = middle
    return above


def _loss(price: Price) -> float:
    return (price.fused_us - price.unfused_us) / price.unfused_us if price.unfused_us else 0.0
