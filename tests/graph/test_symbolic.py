"""Symbolic sizes: what is equal to what, and that no simplification changes a number."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator

import pytest

from onnxfuse.errors import ShapeError
from onnxfuse.symbolic import (
    SIZE_LIMIT,
    Dim,
    Expr,
    at_most,
    broadcast,
    clamped,
    divide,
    fresh,
    is_fresh,
    is_named,
    is_nonnegative,
    maximum,
    minimum,
    product,
    substitute,
    symbol,
    symbols,
    tail,
    unknown,
)

BATCH, SEQ, PAST, H = symbol("batch"), symbol("seq"), symbol("past"), symbol("h")
NAMES = ("batch", "seq", "past", "h")
Evaluate = Callable[[dict[str, int]], int]

EQUAL = {
    "sums commute": (PAST + SEQ, SEQ + PAST),
    "products distribute": ((PAST + SEQ) * 2 * BATCH, BATCH * SEQ * 2 + 2 * BATCH * PAST),
    "a difference cancels": (PAST + SEQ - SEQ, PAST),
    "nothing is left": (SEQ - SEQ, 0),
    "a factor cancels": ((6 * H) // H, 6),
    "several factors cancel": ((BATCH * SEQ * 12) // (BATCH * SEQ), 12),
    "a sum cancels": (((PAST + SEQ) * BATCH * 64) // (PAST + SEQ), 64 * BATCH),
    "multiples leave a floor": ((2 * SEQ + 1) // 2, SEQ),
    "a fraction is reduced": ((4 * SEQ) // 6, (2 * SEQ) // 3),
    "nested floors merge": (((H - 1) // 2 + 1 - 1) // 2 + 1, (H - 1) // 4 + 1),
    "a remainder of a multiple": ((SEQ * 8) % 4, 0),
    "two negative signs": ((-SEQ) // -3, SEQ // 3),
    "a maximum that is known": (maximum(PAST + SEQ, SEQ), PAST + SEQ),
    "a minimum that is known": (minimum(SEQ, SEQ // 2), SEQ // 2),
    "a difference of minima": (maximum(minimum(PAST + SEQ, 9) - minimum(PAST, 9), 0), minimum(PAST + SEQ, 9) - minimum(PAST, 9)),
    "operands of a maximum": (maximum(SEQ, BATCH), maximum(BATCH, SEQ)),
    "operands of a broadcast": (broadcast(SEQ, BATCH), broadcast(BATCH, SEQ)),
    "a broadcast again": (broadcast(broadcast(SEQ, BATCH), SEQ), broadcast(BATCH, SEQ)),
    "a broadcast against 1": (broadcast(SEQ, 1), SEQ),
    "a broadcast against a number": (broadcast(8, SEQ), 8),
    "a broadcast against a cut": (broadcast(SEQ, minimum(SEQ, 512)), SEQ),
    "a broadcast against a tail": (broadcast(tail(PAST + SEQ, SEQ), SEQ), SEQ),
    "a tail of everything": (tail(SEQ, SEQ), SEQ),
    "a tail of some": (tail(SEQ + 4, 3), 3),
    "knowledge of a bound": (at_most(minimum(PAST + SEQ, 9) - minimum(PAST, 9), PAST + SEQ, 9), SEQ),
    "an empty product": (product(()), 1),
    "a product": (product((BATCH, 2, SEQ)), 2 * SEQ * BATCH),
    "numbers substituted": (substitute(BATCH * SEQ + 1, {"batch": 2, "seq": 5}), 11),
    "one number substituted": (substitute(BATCH * SEQ + 1, {"batch": 2}), 2 * SEQ + 1),
}  # fmt: skip

TEXTS = {
    "batch*seq": BATCH * SEQ,
    "past+seq": SEQ + PAST,
    "seq-1": SEQ - 1,
    "8-seq": 8 - SEQ,
    "(seq+1)//2": (SEQ + 1) // 2,
    "2*((seq+1)//2)": (SEQ + 1) // 2 * 2,
    "batch*h*h+4*seq": 4 * SEQ + H * BATCH * H,
    "min(512, seq)": minimum(SEQ, 512),
    "broadcast(batch, seq)": broadcast(SEQ, BATCH),
}


@pytest.mark.parametrize("pair", EQUAL.values(), ids=EQUAL.keys())
def test_two_spellings_are_one_size(pair: tuple[Dim, Dim]) -> None:
    left, right = pair
    assert left == right
    assert hash(left) == hash(right)
    assert str(left) == str(right)


@pytest.mark.parametrize("text", TEXTS)
def test_a_size_reads_as_people_write_it(text: str) -> None:
    assert str(TEXTS[text]) == text


def test_different_sizes_differ() -> None:
    sizes = [
        BATCH,
        SEQ,
        SEQ + 1,
        2 * SEQ,
        SEQ * SEQ,
        SEQ // 2,
        SEQ // 3,
        minimum(SEQ, 4),
        maximum(SEQ, 4),
        broadcast(SEQ, BATCH),
        tail(SEQ, BATCH),
    ]
    assert len(set(sizes)) == len(sizes)
    assert all(size != 1 for size in sizes)


def test_a_constant_is_an_int() -> None:
    assert type(SEQ - SEQ + 3) is int
    assert type((SEQ * 4) // SEQ) is int


def test_a_fresh_symbol_equals_itself_alone() -> None:
    one, other = fresh("n"), fresh("n")
    assert one == one and one - one == 0
    assert one != other and one != symbol("n")
    assert one + other == other + one
    assert len({fresh("n") for _ in range(1000)}) == 1000
    assert symbols(one + SEQ) == {"seq"}
    assert substitute(one, {"n": 3}) == one
    assert is_fresh(one) and not is_fresh(one + 1) and not is_fresh(symbol("n"))
    assert is_named(SEQ // 2 + 1) and not is_named(minimum(one, SEQ))


def test_a_quotient_is_given_only_where_it_is_whole() -> None:
    assert divide(BATCH * SEQ * 12, BATCH * 4) == 3 * SEQ
    assert divide(SEQ, SEQ) == 1
    assert divide(12, 4) == 3
    assert divide((PAST + SEQ) * (PAST - SEQ), PAST + SEQ) == PAST - SEQ
    for numerator, denominator in ((SEQ, 2), (SEQ, BATCH), (7, 2), (SEQ, 0), (PAST + SEQ, SEQ), (SEQ + 1, 2 * SEQ)):
        assert divide(numerator, denominator) is None


def test_names_are_found_inside_divisions() -> None:
    assert symbols(((PAST + 1) // 2) * minimum(SEQ, 7) + broadcast(BATCH, H)) == {"past", "seq", "batch", "h"}
    assert symbols(4) == set()


def test_a_cut_is_recognised() -> None:
    assert clamped(minimum(SEQ, 512)) == (SEQ, 512)
    assert clamped(SEQ) is None and clamped(minimum(SEQ, BATCH)) is None and clamped(maximum(SEQ, 4)) is None


def test_numbers_that_leave_no_size_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"broadcast\(batch, seq\).*Choose other sizes"):
        substitute(broadcast(SEQ, BATCH), {"seq": 2, "batch": 3})
    with pytest.raises(ShapeError, match=r"seq//batch"):
        substitute(SEQ // BATCH, {"seq": 2, "batch": 0})
    with pytest.raises(ZeroDivisionError):
        SEQ // 0


def test_a_broadcast_has_the_value_the_sizes_give() -> None:
    size = broadcast(SEQ, BATCH)
    for seq, batch, expected in ((1, 1, 1), (1, 7, 7), (7, 1, 7), (7, 7, 7), (0, 1, 0)):
        assert substitute(size, {"seq": seq, "batch": batch}) == expected


def test_a_size_that_grows_too_large_is_no_size_that_is_known() -> None:
    total: Dim = 0
    for index in range(4 * SIZE_LIMIT):
        total = total + symbol(f"s{index}")
    assert isinstance(total, Expr) and total.size <= SIZE_LIMIT
    assert not is_named(total) and not is_nonnegative(total)
    assert not is_nonnegative(unknown("n"))


def _expressions(rng: random.Random, depth: int) -> tuple[Dim, Evaluate]:
    """A random size beside the same arithmetic on ints."""
    if depth == 0 or rng.random() < 0.15:
        if rng.random() < 0.6:
            name = rng.choice(NAMES)
            return symbol(name), lambda sizes: sizes[name]
        number = rng.randint(-4, 9)
        return number, lambda _: number
    symbolic_op, plain_op = rng.choice(OPERATIONS)
    left, left_value = _expressions(rng, depth - 1)
    right, right_value = _expressions(rng, depth - 1)
    return symbolic_op(left, right), lambda sizes: plain_op(left_value(sizes), right_value(sizes))


OPERATIONS: list[tuple[Callable[[Dim, Dim], Dim], Callable[[int, int], int]]] = [
    (operator.add, operator.add),
    (operator.sub, operator.sub),
    (operator.mul, operator.mul),
    (operator.floordiv, operator.floordiv),
    (operator.mod, operator.mod),
    (maximum, max),
    (minimum, min),
    (lambda a, b: maximum(minimum(a, b), 0), lambda a, b: max(min(a, b), 0)),
]


def _samples(seed: int) -> Iterator[tuple[Dim, dict[str, int], int]]:
    rng = random.Random(seed)
    for _ in range(400):
        try:
            size, value = _expressions(rng, 4)
        except ZeroDivisionError:
            continue
        for _ in range(4):
            sizes = {name: rng.randint(0, 9) for name in NAMES}
            try:
                yield size, sizes, value(sizes)
            except ZeroDivisionError:
                continue


@pytest.mark.parametrize("seed", range(8))
def test_no_simplification_changes_a_number(seed: int) -> None:
    compared = 0
    for size, sizes, expected in _samples(seed):
        try:
            found = substitute(size, sizes)
        except ShapeError:  # a factor of 0 that had been cancelled elsewhere
            continue
        if isinstance(found, int):
            compared += 1
            assert found == expected, f"{size} at {sizes}"
            assert expected >= 0 or not is_nonnegative(size), f"{size} at {sizes}"
    assert compared > 800


@pytest.mark.parametrize("seed", range(4))
def test_a_tail_has_the_length_that_python_gives(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        dim, count = rng.choice([SEQ, PAST + SEQ, 4 * SEQ]), rng.choice([SEQ, PAST, SEQ + 1, 0, 3])
        sizes = {name: rng.randint(0, 6) for name in NAMES}
        length, taken = substitute(dim, sizes), substitute(count, sizes)
        assert isinstance(length, int) and isinstance(taken, int)
        assert substitute(tail(dim, count), sizes) == len(range(length)[-taken:])
