"""Decisions that hang on a size: where they flip."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onnxfuse.errors import UsageError

PROBES = 24  # sizes looked at between the ends, evenly spaced in ratio


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


def crossover(price_at: Callable[[int], float], low: int, high: int) -> Crossover:
    """Where a saving changes its sign between two sizes. price_at: the saving at a size, above 0 if it pays.

    Two flips closer together than a 24th of the range's ratio may be missed. Raises UsageError for an empty range.
    """
    sizes = probe_sizes(low, high)
    pays = [price_at(size) > 0 for size in sizes]
    flips = tuple(_first_unlike(price_at, sizes[i], sizes[i + 1], pays[i]) for i in range(len(sizes) - 1) if pays[i] != pays[i + 1])
    return Crossover(low, high, pays[0], flips)


def probe_sizes(low: int, high: int, count: int = PROBES) -> list[int]:
    """About so many sizes from low to high, both included, evenly spaced in ratio. Raises UsageError for an empty range."""
    if low < 0 or high < low:
        raise UsageError(f"size range: low must be at least 0 and at most high; got {low}..{high}")
    ratio = (high + 1) / (low + 1)
    return sorted({round((low + 1) * ratio ** (i / count)) - 1 for i in range(count + 1)} | {low, high})


def _first_unlike(price_at: Callable[[int], float], below: int, above: int, pays: bool) -> int:
    while above - below > 1:
        middle = (below + above) // 2
        if (price_at(middle) > 0) == pays:
            below = middle
        else:
            above = middle
    return above
