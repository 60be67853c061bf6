"""What candidates save together, beside what each saves by itself: taking more of them never saves less.

Candidates are named by their positions in what is selected from. A bonus says what is saved; its tally keeps count while a
set is built up and taken apart, so that a step costs as much however many candidates the bonus ties together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol


class Tally(Protocol):
    """Counts for one bonus which of its members are in a set."""

    def added(self, i: int) -> float:
        """What taking `i` would add."""

    def hope(self, i: int) -> float:
        """What `i` may count on if the other members come too."""

    def part(self) -> float:
        """What each member in the set may count as its own."""

    def take(self, i: int) -> None: ...
    def drop(self, i: int) -> None: ...
    def priced_anew(self) -> Iterable[int]:
        """Members that the last one taken made worth more."""


class Bonus(Protocol):
    """members: those that save something together, or less. worth: no less than what one of them can add, where that is above 0."""

    @property
    def members(self) -> frozenset[int]: ...
    @property
    def worth(self) -> float: ...
    def tally(self) -> Tally: ...


@dataclass(frozen=True)
class Together:
    """Saved once when each of `needs` has a member in the set: a node that vanishes with its last reader.

    unless: those that count it as their own, since they take the node themselves.
    """

    worth: float
    needs: tuple[frozenset[int], ...]
    unless: frozenset[int] = frozenset()

    @property
    def members(self) -> frozenset[int]:
        return self.unless.union(*self.needs)

    def tally(self) -> Tally:
        return _TogetherTally(self.worth, self.needs, self.unless)


@dataclass(frozen=True)
class Once:
    """Charged to each member, spent once: an operator that several rewrites add, and that is made for all of them."""

    worth: float
    members: frozenset[int]

    def tally(self) -> Tally:
        return _OnceTally(self.worth, self.members)


@dataclass(frozen=True)
class Apart:
    """What two members save together beyond what each counts for itself; below 0 where both count the same.

    So it is where they share out nodes that the runtime makes one kernel of: that kernel goes once.
    """

    worth: float
    members: frozenset[int]

    def tally(self) -> Tally:
        return _ApartTally(self.worth)


class _ApartTally:
    def __init__(self, worth: float) -> None:
        self.worth, self.taken = worth, 0

    def added(self, i: int) -> float:
        return self.worth if self.taken else 0.0

    def hope(self, i: int) -> float:
        return self.worth if self.taken else 0.0

    def part(self) -> float:
        return self.worth / 2 if self.taken == 2 else 0.0

    def take(self, i: int) -> None:
        self.taken += 1

    def drop(self, i: int) -> None:
        self.taken -= 1

    def priced_anew(self) -> Iterable[int]:
        return ()


class _TogetherTally:
    def __init__(self, worth: float, needs: Sequence[frozenset[int]], unless: frozenset[int]) -> None:
        self.worth, self.needs, self.unless = worth, needs, unless
        self.counted = 0  # members in the set that count it as their own
        self.met = [0] * len(needs)  # members of each need in the set
        self.missing = len(needs)
        self.taken = 0
        self.needs_of: dict[int, list[int]] = defaultdict(list)
        for k, need in enumerate(needs):
            for i in need:
                self.needs_of[i].append(k)

    def added(self, i: int) -> float:
        if i in self.unless:
            return 0.0 if self.missing or self.counted else -self.worth
        if self.counted:
            return 0.0
        return self.worth if self.missing and self.missing == sum(not self.met[k] for k in self.needs_of[i]) else 0.0

    def hope(self, i: int) -> float:
        if i in self.unless:
            return self.added(i)
        return 0.0 if self.counted else self.worth * sum(not self.met[k] for k in self.needs_of[i]) / len(self.needs)

    def part(self) -> float:
        return 0.0 if self.missing or self.counted else self.worth / self.taken

    def take(self, i: int) -> None:
        if i in self.unless:
            self.counted += 1
            return
        self.taken += 1
        for k in self.needs_of[i]:
            self.met[k] += 1
            self.missing -= self.met[k] == 1

    def drop(self, i: int) -> None:
        if i in self.unless:
            self.counted -= 1
            return
        self.taken -= 1
        for k in self.needs_of[i]:
            self.met[k] -= 1
            self.missing += self.met[k] == 0

    def priced_anew(self) -> Iterable[int]:
        return self.needs[self.met.index(0)] if self.missing == 1 and not self.counted else ()


class _OnceTally:
    def __init__(self, worth: float, members: frozenset[int]) -> None:
        self.worth, self.members, self.taken = worth, members, 0

    def added(self, i: int) -> float:
        return self.worth if self.taken else 0.0

    def hope(self, i: int) -> float:
        return self.worth * (len(self.members) - 1) / len(self.members)

    def part(self) -> float:
        return self.worth * (self.taken - 1) / self.taken if self.taken else 0.0

    def take(self, i: int) -> None:
        self.taken += 1

    def drop(self, i: int) -> None:
        self.taken -= 1

    def priced_anew(self) -> Iterable[int]:
        return self.members if self.taken == 1 else ()
