"""Sizes that pass through float arithmetic: exporters spell ceil(height / 2) as Cast, Div, Ceil, Cast."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from onnxfuse import symbolic
from onnxfuse.symbolic import Dim


class Unknown(Exception):
    """Raised by a rule where the answer depends on what is not known; what it was asked for stays unknown."""


@dataclass(frozen=True)
class Ratio:
    """What a float tensor made of sizes holds: top / bottom.

    Arithmetic raises Unknown where float32 would round. Rounding to an integer does not need exactness: a quotient of
    sizes is either whole, and then exact, or further from the next integer than float32 is wrong.
    """

    top: Dim
    bottom: Dim = 1

    def __add__(self, other: Ratio) -> Ratio:
        _require_exact(self, other)
        return _reduced(self.top * other.bottom + other.top * self.bottom, self.bottom * other.bottom)

    def __neg__(self) -> Ratio:
        return Ratio(-self.top, self.bottom)

    def __sub__(self, other: Ratio) -> Ratio:
        return self + -other

    def __mul__(self, other: Ratio) -> Ratio:
        _require_exact(self, other)
        return _reduced(self.top * other.top, self.bottom * other.bottom)

    def __truediv__(self, other: Ratio) -> Ratio:
        _require_exact(self, other)
        if other.top == 0:
            raise Unknown
        return _reduced(self.top * other.bottom, self.bottom * other.top)

    def floor(self) -> Dim:
        return self.top // self.bottom

    def ceil(self) -> Dim:
        return (self.top + (self.bottom - 1)) // self.bottom

    def truncated(self) -> Dim:
        """What a cast to an integer type gives."""
        if self.bottom == 1 or symbolic.is_nonnegative(self.top):
            return self.floor()
        raise Unknown

    def root(self) -> Ratio:
        """The square root of a square number."""
        if not isinstance(self.top, int) or self.bottom != 1 or self.top < 0 or math.isqrt(self.top) ** 2 != self.top:
            raise Unknown
        return Ratio(math.isqrt(self.top))


def exact_ratio(value: float) -> Ratio:
    """A number of a model's constant, if it is one that float32 arithmetic keeps exact; else Unknown."""
    if not math.isfinite(value):
        raise Unknown
    fraction = Fraction(value)
    if fraction.denominator > 2**12 or abs(fraction.numerator) > 2**24:
        raise Unknown
    return Ratio(fraction.numerator, fraction.denominator)


def _require_exact(*operands: Ratio) -> None:
    """Only quotients by powers of two come out of float arithmetic as they are."""
    for ratio in operands:
        if not isinstance(ratio.bottom, int) or ratio.bottom & (ratio.bottom - 1):
            raise Unknown


def _reduced(top: Dim, bottom: Dim) -> Ratio:
    quotient = symbolic.divide(top, bottom)
    if quotient is not None:
        return Ratio(quotient)
    if not symbolic.is_nonnegative(bottom):
        raise Unknown
    return Ratio(top, bottom)
