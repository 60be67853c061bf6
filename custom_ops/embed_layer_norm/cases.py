"""Uses of EmbedLayerNorm that its tests run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxfuse.case import Case, Refusal, given, subsets

OPTIONAL = ["scale", "bias"]
THIRD = ["ids_3", "table_3"]
INDEX = {"I": "int64"}
WIDTHS = (1, 7, 16, 33, 127)


def _shapes(ids: tuple[int, ...], width: int, second: tuple[int, ...], third: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    tables = {"table": (11, width), "table_2": (5, width), "table_3": (2, width), "scale": (width,), "bias": (width,)}
    return {"ids": ids, "ids_2": second, "ids_3": third, **tables}


def _indices(rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
    """From either end of each table."""
    tables = {name: "table" + name.removeprefix("ids") for name in shapes if name.startswith("ids")}
    return {name: rng.integers(-shapes[table][0], shapes[table][0], shapes[name]) for name, table in tables.items()}


def _case(shapes: dict[str, tuple[int, ...]], kind: str = "int64", **rest: Any) -> Case:
    return Case(shapes, types={"I": kind}, values=_indices, **rest)


FULL = _shapes((2, 5), 9, (1, 5), (2, 5))

CASES = [
    _case(FULL),
    *(_case(given(FULL, [*OPTIONAL, *THIRD], (*names, *third))) for names in subsets(OPTIONAL) for third in ((), THIRD)),
    *(_case(_shapes((3, 4), width, (4,), (1, 1))) for width in WIDTHS),
    *(_case(_shapes((2, 3, 4), 8, second, (3, 4))) for second in ((2, 3, 4), (1, 3, 4), (2, 1, 4), (3, 1), (4,), (1,), ())),
    _case(_shapes((0, 4), 8, (4,), (0, 4))),
    _case(_shapes((7,), 8, (7,), (7,)), kind="int32"),
    _case(FULL, outputs=("y",)),
    _case(_shapes((8, 64), 257, (64,), (8, 64)), attributes={"epsilon": 0.5}),
]

TIMED = [_case(_shapes((1, 128), 256, (1, 128), (1, 128)))]

REFUSED = [
    Refusal("ids_2 must broadcast to ids [2,5]; got [3,1]", {**FULL, "ids_2": (3, 1)}, types=INDEX),
    Refusal("ids_3 must broadcast to ids [2,5]; got [1,2,5]", {**FULL, "ids_3": (1, 2, 5)}, types=INDEX),
    Refusal("table_2 must have n = [9]; got [8]", {**FULL, "table_2": (5, 8)}, types=INDEX),
    Refusal("ids_3 and table_3 must both be given, or neither", given(FULL, THIRD, ["ids_3"]), types=INDEX),
    Refusal("an index of ids must be inside its table of 0 rows; got 0", {**FULL, "table": (0, 9)}, types=INDEX),
    Refusal("attribute 'epsilon' must be finite and at least 0", FULL, {"epsilon": -1.0}, types=INDEX),
]
