"""Uses of Attention that its tests run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from onnxfuse.case import Case, Refusal
from onnxfuse.op import Attribute

Shapes = dict[str, tuple[int, ...]]
LOWEST = float(np.finfo(np.float32).min)
MULTI_HEAD: Shapes = {"q": (2, 3, 5, 8), "k": (2, 3, 7, 8), "v": (2, 3, 7, 6)}
GROUPED: Shapes = {"q": (2, 6, 5, 8), "k": (2, 2, 7, 8), "v": (2, 2, 7, 8)}
PAST: Shapes = {"past_key": (2, 2, 4, 8), "past_value": (2, 2, 4, 8)}
ROWS: Shapes = {"q": (2, 5, 48), "k": (2, 7, 16), "v": (2, 7, 24)}
IN_ROWS: dict[str, Attribute] = {"q_layout": "BSE", "k_layout": "BSE", "v_layout": "BSE", "y_layout": "BSE"}


def single(queries: int, keys: int, size: int) -> Shapes:
    return {"q": (1, 1, queries, size), "k": (1, 1, keys, size), "v": (1, 1, keys, size)}


def masked(case: Case, shape: tuple[int, ...], kind: str) -> Case:
    return replace(case, shapes={**case.shapes, "mask": shape}, types={"M": kind})


def causal_mask(_: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
    """What exporters add: 0 up to the diagonal, the lowest number beyond it."""
    return {"mask": np.triu(np.full(shapes["mask"], LOWEST, np.float32), 1)}


def nothing_seen(_: np.random.Generator, shapes: Mapping[str, tuple[int, ...]]) -> Mapping[str, Any]:
    """A boolean mask whose first row is false throughout."""
    mask = np.ones(shapes["mask"], bool)
    mask[..., 0, :] = False
    return {"mask": mask}


LAYOUTS = [
    Case(MULTI_HEAD),
    Case(MULTI_HEAD, {"q_num_heads": 3, "kv_num_heads": 3, "scale": 0.25, "y_layout": "BSE"}),
    Case(GROUPED),
    Case(GROUPED, {"q_num_heads": 6, "kv_num_heads": 2, "y_layout": "BSHD"}),
    Case({**GROUPED, "k": (2, 2, 8, 7)}, {"k_layout": "BHDS", "y_layout": "BSE"}),
    Case({"q": (2, 5, 6, 8), "k": (2, 7, 2, 8), "v": (2, 7, 2, 9)}, {f"{name}_layout": "BSHD" for name in "qkv"}),
    Case(ROWS, {**IN_ROWS, "q_num_heads": 6, "kv_num_heads": 2}),
    Case({**ROWS, "k": (2, 7, 48), "v": (2, 7, 48)}, {**IN_ROWS, "q_num_heads": 6}),
    Case({**ROWS, "k": (2, 2, 8, 7), "v": (2, 2, 7, 5)}, {"q_num_heads": 6, "kv_num_heads": 2, "q_layout": "BSE", "k_layout": "BHDS"}),
    Case({"q": (2, 5, 72)}, {"packed": "qkv", "q_num_heads": 3, "kv_num_heads": 3, "y_layout": "BSE"}, outputs=("y",)),
    Case({"q": (2, 5, 100)}, {"packed": "qkv", "q_num_heads": 6, "kv_num_heads": 2}),
]
BOUNDS: list[dict[str, Attribute]] = [
    {"causal": 1},
    {"causal": 2},
    {"window_left": 2, "window_right": 1},
    {"causal": 2, "window_left": 3},
    {"softcap": 2.0, "scale": 3.0},
    {"scale": 0.0},
    {"scale": -0.5},
]
LIMITED = [Case({**GROUPED, **PAST}, bounds) for bounds in BOUNDS] + [Case(MULTI_HEAD, bounds) for bounds in BOUNDS]
MASKS: list[tuple[int, ...]] = [(), (7,), (5, 1), (5, 7), (2, 1, 1, 7), (1, 3, 5, 7), (2, 3, 5, 7)]
MASKED = [
    *(masked(Case(MULTI_HEAD, {"mask_value": value}), shape, "bool") for shape in MASKS for value in (LOWEST, -10000.0)),
    *(masked(Case(MULTI_HEAD), shape, "float") for shape in MASKS),
    masked(Case(MULTI_HEAD), (1, 1, 5, 7), "float16"),
    masked(Case({**GROUPED, **PAST}, {"causal": 2, "mask_value": LOWEST}), (2, 1, 1, 11), "bool"),
    masked(Case(single(5, 5, 8), values=causal_mask), (5, 5), "float"),
    masked(Case(MULTI_HEAD, {"zero_masked_rows": 1}, values=nothing_seen), (5, 7), "bool"),
    masked(Case(MULTI_HEAD, values=nothing_seen), (5, 7), "bool"),
    masked(Case(MULTI_HEAD, {"mask_value": LOWEST}, values=nothing_seen), (5, 7), "bool"),
]
# Sizes around the vector widths, a chunk of queries, and a block of keys; one query is a path of its own.
SIZED = [Case(single(*sizes)) for sizes in [(1, 1, 1), (1, 300, 17), (3, 64, 31), (15, 65, 16), (49, 63, 33), (97, 130, 64)]]
SUNK = [
    Case({**MULTI_HEAD, "sink": (3,)}),
    Case({**GROUPED, **PAST, "sink": (6,)}, {"causal": 2, "window_left": 3}),
    Case({"q": (2, 6, 1, 8), "k": (2, 2, 70, 8), "v": (2, 2, 70, 8), "sink": (6,)}, {"softcap": 2.0}),
    masked(Case({**MULTI_HEAD, "sink": (3,)}, values=nothing_seen), (5, 7), "bool"),
    masked(Case({**MULTI_HEAD, "sink": (3,)}), (2, 1, 1, 7), "float"),
]
EMPTY = [
    Case(
        {name: tuple(0 if size == gone else size for size in shape) for name, shape in MULTI_HEAD.items()},
        {"q_num_heads": 0 if gone == 3 else 3},
    )
    for gone in (2, 3, 5, 7, 6)
]  # fmt: skip
CASES = [
    *LAYOUTS,
    *LIMITED,
    *MASKED,
    *SIZED,
    *SUNK,
    *EMPTY,
    Case({**GROUPED, "past_key": (2, 2, 0, 8), "past_value": (2, 2, 0, 8)}, {"causal": 2}),
    Case({**GROUPED, **PAST}, outputs=("y",)),
    Case({**GROUPED, **PAST}, outputs=("y", "present_key")),
]

TIMED = [  # as between the projections of a model
    masked(
        Case(dict.fromkeys(("q", "k", "v"), (1, length, 256)), {**IN_ROWS, "q_num_heads": 4, "kv_num_heads": 4}, outputs=("y",)),
        (1, 1, 1, length),
        "float",
    )
    for length in (16, 128, 512)
]

REFUSED = [
    Refusal("k must be given where packed is", {"q": (1, 2, 3, 4), "v": (1, 2, 3, 4)}),
    Refusal("q must have 4 axes; got [1,2,3]", {**MULTI_HEAD, "q": (1, 2, 3)}),
    Refusal("q_num_heads must be given where q, k or v has 3 axes", ROWS, IN_ROWS),
    Refusal("the last axis of k [2,7,16] must be a multiple of its 3 heads", ROWS, {**IN_ROWS, "q_num_heads": 6, "kv_num_heads": 3}),
    Refusal("the heads of q [2,3,5,8] must be 4", MULTI_HEAD, {"q_num_heads": 4}),
    Refusal("k and v must have the same heads and seq", {**MULTI_HEAD, "v": (2, 3, 6, 6)}),
    Refusal("q, k and v must have the same batch", {**MULTI_HEAD, "q": (1, 3, 5, 8)}),
    Refusal("q and k must have the same size", {**MULTI_HEAD, "q": (2, 3, 5, 7)}),
    Refusal("the heads of q must be a multiple of those of k; got 3 and 2", {**GROUPED, "q": (2, 3, 5, 8)}),
    Refusal("past_key and past_value must both be given", {**GROUPED, "past_key": PAST["past_key"]}),
    Refusal("past_value must have the shape [2,2,4,8]; got [2,2,3,8]", {**GROUPED, **PAST, "past_value": (2, 2, 3, 8)}),
    Refusal("mask must broadcast to [2,3,5,7]; got [2,5,7]", {**MULTI_HEAD, "mask": (2, 5, 7)}, types={"M": "float"}),
    Refusal("mask must broadcast to [2,3,5,7]; got [1,1,1,5,7]", {**MULTI_HEAD, "mask": (1, 1, 1, 5, 7)}, types={"M": "bool"}),
    Refusal("sink must have a number for each of the 3 heads of q; got [4]", {**MULTI_HEAD, "sink": (4,)}),
    Refusal('k and v must be absent where packed is "qkv"', MULTI_HEAD, {"packed": "qkv", "q_num_heads": 3}),
    Refusal("q must be [batch, seq, 9 heads * size]", {"q": (1, 2, 10)}, {"packed": "qkv", "q_num_heads": 3}),
    Refusal("attribute 'causal' must be from 0 to 2; got 3", MULTI_HEAD, {"causal": 3}),
    Refusal("attribute 'window_left' must be at least -1; got -2", MULTI_HEAD, {"window_left": -2}),
    Refusal("attribute 'softcap' must be finite and at least 0", MULTI_HEAD, {"softcap": -1.0}),
    Refusal("attribute 'scale' must not be NaN", MULTI_HEAD, {"scale": math.nan}),
    Refusal("attribute 'k_layout' must be 'BHSD' or 'BSHD' or 'BSE' or 'BHDS'; got 'SBHD'", MULTI_HEAD, {"k_layout": "SBHD"}),
]
