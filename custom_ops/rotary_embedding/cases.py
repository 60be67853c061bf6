"""Uses of RotaryEmbedding that its tests run."""

from __future__ import annotations

from onnxfuse.case import Case, Refusal

WIDTHS = (0, 2, 6, 16, 30, 32, 34, 62, 64, 66, 128)
# x without its last axis, and what cos and sin may be for it.
LEADING: list[tuple[tuple[int, ...], list[tuple[int, ...]]]] = [
    ((), [()]),
    ((5,), [(), (1,), (5,)]),
    ((2, 3, 7), [(7,), (1, 7), (3, 1), (2, 1, 7), (2, 3, 7), (1, 1, 1), ()]),
    ((2, 5, 3), [(1, 5, 1), (2, 5, 1)]),
    ((2, 0, 3), [(0, 1), (2, 0, 1)]),
    ((0,), [(), (0,)]),
    ((1, 4, 1, 2), [(4, 1, 1), (1, 4, 1, 2), (1, 1)]),
]


def _case(leading: tuple[int, ...], table: tuple[int, ...], width: int, columns: int, attributes: dict[str, int]) -> Case:
    return Case({"x": (*leading, width), "cos": (*table, columns), "sin": (*table, columns)}, attributes)


CASES = [
    _case((2, 3), (3,), 8, 8, {}),
    *(_case((3, 5), (5,), width, columns, {"interleaved": how}) for width in WIDTHS for columns in {width, width // 2} for how in (0, 1)),
    *(_case(leading, table, 12, 6, {"interleaved": how}) for leading, tables in LEADING for table in tables for how in (0, 1)),
    *(
        _case((3, 5), (5,), width, columns, {"rotary_dim": 10, "interleaved": how})
        for width in (10, 11, 33)
        for columns in (5, 10)
        for how in (0, 1)
    ),
    *(Case({"x": (2, 3, 7, 8), "cos": (7, 8), "sin": (2, 1, 1, 4)}, {"interleaved": how}) for how in (0, 1)),
    _case((4, 8, 64), (64,), 64, 32, {}),
]

TIMED = [_case((4, 128), (128,), 64, 64, {})]

REFUSED = [
    Refusal("rotary_dim must be even and at most the last axis of x [2,5]; got 5", {"x": (2, 5), "cos": (2, 5), "sin": (2, 5)}),
    Refusal(
        "rotary_dim must be even and at most the last axis of x [2,4]; got 6",
        {"x": (2, 4), "cos": (2, 4), "sin": (2, 4)},
        {"rotary_dim": 6},
    ),
    Refusal(
        "cos must broadcast to x [2,4] but for its last axis, which must be 4 or half of it; got [2,3]",
        {"x": (2, 4), "cos": (2, 3), "sin": (2, 4)},
    ),
    Refusal("cos must broadcast to x [2,4] but", {"x": (2, 4), "cos": (3, 4), "sin": (2, 4)}),
    Refusal("sin must broadcast to x [2,4] but", {"x": (2, 4), "cos": (2, 4), "sin": (1, 2, 4)}),
    Refusal("sin must broadcast to x [2,4] but", {"x": (2, 4), "cos": (2, 4), "sin": ()}),
    Refusal("attribute 'rotary_dim' must be at least 0; got -2", {"x": (2, 4), "cos": (2, 4), "sin": (2, 4)}, {"rotary_dim": -2}),
    Refusal("attribute 'interleaved' must be from 0 to 1; got 2", {"x": (2, 4), "cos": (2, 4), "sin": (2, 4)}, {"interleaved": 2}),
]
