"""Attention on a GPU: blocks of queries against blocks of keys, softmax on the way (FlashAttention-2); scores stay on chip.

`attention` gives y for one block of queries of one head; `split` the unfinished sums of some of the keys, for few queries and
many keys, which `combine` joins; `join` copies past and new keys into present. Arguments are named as in op.py; strides count
elements, 0 where an axis of the mask broadcasts. Query i sees keys j of i + diagonal - left <= j <= i + diagonal + right.

Scores and sums are float. Probabilities are rounded to the type of v before they meet it. float inputs are multiplied as three
products of tf32 parts each, which is as exact as float but for the last bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import triton
import triton.language as tl

from onnxfuse.triton_kernel import BYTES, POINTER_TYPES, UNLIMITED, Condition, Kernel

LOG2E = tl.constexpr(1.4426950408889634)
NO_MASK, BOOL_MASK, ADDED_MASK = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
MOST_SPLITS = 128


@triton.jit
def _products(q, k, keys_left, k_column, head_size, ROWS: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr):
    """q k' of a head of any size, SIZE columns at a time. q: pointers to rows; k: pointers to keys."""
    products = tl.zeros([ROWS, KEYS], tl.float32)
    near = tl.arange(0, KEYS) < keys_left
    for start in range(0, head_size, SIZE):
        column = start + tl.arange(0, SIZE)
        fits = column < head_size
        a = tl.load(q[:, None] + column[None, :], mask=fits[None, :], other=0.0)
        b = tl.load(k[None, :] + column.to(tl.int64)[:, None] * k_column, mask=fits[:, None] & near[None, :], other=0.0)
        products = tl.dot(a, b, products, input_precision="tf32x3")
    return products


@triton.jit
def _attend(
    acc, top, total, q, k, v, mask, first, last, query, keys, diagonal, left, right, head_size, value_left,
    scale, softcap, mask_value, k_row, k_column, v_row, mask_column,
    EDGE: tl.constexpr, MASK: tl.constexpr, MASK_ROWS: tl.constexpr, GENERAL: tl.constexpr, CHUNKED: tl.constexpr,
    PADDED: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Take the keys from first to last, a multiple of KEYS but where EDGE, into the sums.

    acc: [ROWS, VALUES]; top: largest score of each row so far; total: sum of exp(score - top). With neither MASK nor GENERAL,
    scores are products yet to be scaled, by `scale` > 0 in powers of 2; else they are what softmax sees.
    q: the block, or its row pointers where CHUNKED. k, v, mask: pointers for keys from 0 on.
    """
    size, value, near = tl.arange(0, SIZE), tl.arange(0, VALUES), tl.arange(0, KEYS)
    for start in range(first, last, KEYS):
        key = start + near
        far = tl.full([], 0, tl.int64) + start  # its products with strides may be larger than 32 bits
        if CHUNKED:
            s = _products(q, k + far * k_row, keys - start, k_column, head_size, ROWS, KEYS, SIZE)
        else:
            at = k + far * k_row
            if EDGE:
                kt = tl.load(at, mask=(size < head_size)[:, None] & (key < keys)[None, :], other=0.0)
            elif PADDED:
                kt = tl.load(at, mask=(size < head_size)[:, None], other=0.0)
            else:
                kt = tl.load(at)
            s = tl.dot(q, kt, input_precision="tf32x3")
        if GENERAL or MASK != NO_MASK:
            s = s * scale
        if GENERAL:  # noqa: SIM102  (when compiled, the other when run)
            if softcap > 0.0:
                s = softcap * (1.0 - 2.0 / (tl.exp2(s * (2.0 * LOG2E / softcap)) + 1.0))
        if MASK != NO_MASK:
            at = mask + far * mask_column
            if MASK_ROWS:
                m = tl.load(at, mask=(key < keys)[None, :], other=0) if EDGE else tl.load(at)
            else:
                m = (tl.load(at, mask=key < keys, other=0) if EDGE else tl.load(at))[None, :]
            s = tl.where(m != 0, s, mask_value) if MASK == BOOL_MASK else s + m.to(tl.float32)
        if EDGE:
            beyond = key[None, :] - query[:, None] - diagonal
            seen = (key < keys)[None, :] & (beyond <= right)
            if GENERAL:
                seen = seen & (beyond >= -left)
            s = tl.where(seen, s, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        level = new_top
        if EDGE or MASK != NO_MASK:
            level = tl.where(new_top == float("-inf"), 0.0, new_top)  # rows that see nothing yet
        if GENERAL or MASK != NO_MASK:  # the difference first: scores may be as large as float goes
            p = tl.exp2((s - level[:, None]) * LOG2E)
            decay = tl.exp2((top - level) * LOG2E)
        else:
            p = tl.exp2(s * scale - (level * scale)[:, None])
            decay = tl.exp2((top - level) * scale)
        total = total * decay + tl.sum(p, 1)
        acc = acc * decay[:, None]
        at = v + far * v_row
        if EDGE or CHUNKED:
            vt = tl.load(at, mask=(key < keys)[:, None] & (value < value_left)[None, :], other=0.0)
        elif PADDED:
            vt = tl.load(at, mask=(value < value_left)[None, :], other=0.0)
        else:
            vt = tl.load(at)
        acc = tl.dot(p.to(vt.dtype), vt, acc, input_precision="tf32x3")
        top = new_top
    return acc, top, total


@triton.jit
def _block(rows, columns, COLUMNS: tl.constexpr, PADDED: tl.constexpr):
    """What lies behind pointers to rows; 0 past the last column."""
    column = tl.arange(0, COLUMNS)
    if PADDED:
        return tl.load(rows[:, None] + column[None, :], mask=(column < columns)[None, :], other=0.0)
    return tl.load(rows[:, None] + column[None, :])


@triton.jit
def _start(sink, head, has_sink, SINK: tl.constexpr, ROWS: tl.constexpr):
    """Largest score and sum of exp(score - largest) of rows that have met no key: of the sink alone, where there is one."""
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    if SINK:
        top = total + tl.load(sink + head, mask=has_sink != 0, other=float("-inf")).to(tl.float32)
        total = tl.where(top == float("-inf"), 0.0, 1.0)
    return top, total


@triton.jit
def _finished(acc, total, is_cleared):
    """The rows of y. One whose scores are all -inf, or hold a NaN, is NaN; 0 where is_cleared."""
    return tl.where(is_cleared & ~(total > 0.0), 0.0, acc / total)


@triton.jit
def _spans(first_query, last_query, begin, end, diagonal, left, right, KEYS: tl.constexpr):
    """Where the keys of these queries begin, where those begin and end that all of them see, and where the last ends.

    All but the last are multiples of KEYS; begin is one. Keys outside of begin and end are another's.
    """
    stop = tl.minimum(end, last_query + diagonal + right + 1)
    start = tl.maximum(begin, (tl.maximum(first_query + diagonal - left, 0)) // KEYS * KEYS)
    seen = (tl.maximum(last_query + diagonal - left, 0) + KEYS - 1) // KEYS * KEYS
    unseen = tl.maximum(tl.minimum(end, first_query + diagonal + right + 1), 0) // KEYS * KEYS
    seen = tl.maximum(start, seen)
    return start, seen, tl.maximum(seen, unseen), stop


@triton.jit
def attention(
    q, k, v, mask, sink, y, scale, softcap, mask_value,
    q_batch, q_head, q_row, k_batch, k_head, k_row, k_column, v_batch, v_head, v_row,
    mask_batch, mask_head, mask_row, mask_column, y_batch, y_head, y_row,
    heads, group, queries, keys, head_size, value_size, diagonal, left, right, zero_masked_rows, has_sink,
    MASK: tl.constexpr, MASK_ROWS: tl.constexpr, GENERAL: tl.constexpr, SINK: tl.constexpr, CHUNKED: tl.constexpr,
    PADDED: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """y for ROWS queries of one head, and VALUES of its columns.

    GENERAL: softcap, and a window on the left. SINK: maybe one. MASK_ROWS: the mask differs by query. CHUNKED: heads of any size,
    SIZE columns at a time. PADDED: heads smaller than SIZE or VALUES.
    """
    tiles, parts = tl.cdiv(queries, ROWS), tl.cdiv(value_size, VALUES)
    block = tl.program_id(0)
    tile = tiles - 1 - block % tiles  # of causal attention the longest rows start first
    part = block // tiles % parts
    head = block // (tiles * parts) % heads
    batch = (block // (tiles * parts) // heads).to(tl.int64)
    first_query = tile * ROWS
    query = first_query + tl.arange(0, ROWS)
    row = tl.minimum(tl.arange(0, ROWS), queries - 1 - first_query)  # those past the last do its work again
    size, value, near = tl.arange(0, SIZE), tl.arange(0, VALUES), tl.arange(0, KEYS)
    if CHUNKED:  # strides may be as large as they like
        row, near = row.to(tl.int64), near.to(tl.int64)
    kv_head = (head // group).to(tl.int64)
    value_left = value_size - part * VALUES

    q_rows = q + batch * q_batch + head.to(tl.int64) * q_head + first_query.to(tl.int64) * q_row + row * q_row
    k_keys = k + batch * k_batch + kv_head * k_head + near * k_row
    v_at = v + batch * v_batch + kv_head * v_head + part * VALUES + near[:, None] * v_row + value[None, :]
    mask_at = mask
    if MASK != NO_MASK:
        mask_at = mask + batch * mask_batch + head.to(tl.int64) * mask_head + near * mask_column
    if MASK_ROWS:
        mask_at = mask_at[None, :] + first_query.to(tl.int64) * mask_row + row[:, None] * mask_row
    q_at, k_at, unit = q_rows, k_keys, scale
    if not CHUNKED:
        q_at = _block(q_rows, head_size, SIZE, PADDED)
        k_at = k_keys[None, :] + size[:, None] * k_column
    if not GENERAL and MASK == NO_MASK:  # scores are compared before they are scaled, so the scale must be positive
        q_at = q_at * tl.where(scale > 0.0, 1.0, tl.where(scale < 0.0, -1.0, 0.0)).to(q_at.dtype)
        unit = tl.where(scale == 0.0, 1.0, tl.abs(scale)) * LOG2E

    acc = tl.zeros([ROWS, VALUES], tl.float32)
    top, total = _start(sink, head, has_sink, SINK, ROWS)
    last_query = tl.minimum(first_query + ROWS, queries) - 1
    start, seen, unseen, stop = _spans(first_query, last_query, 0, keys, diagonal, left, right, KEYS)
    for edge in tl.static_range(0 if GENERAL else 1, 3):  # keys that some queries see, that all see, that some see
        first = start if edge == 0 else seen if edge == 1 else unseen
        last = tl.minimum(seen, stop) if edge == 0 else unseen if edge == 1 else stop
        acc, top, total = _attend(
            acc, top, total, q_at, k_at, v_at, mask_at, first, last, query, keys, diagonal, left, right,
            head_size, value_left, unit, softcap, mask_value, k_row, k_column, v_row, mask_column,
            edge != 1, MASK, MASK_ROWS, GENERAL, CHUNKED, PADDED, ROWS, KEYS, SIZE, VALUES,
        )  # fmt: skip

    result = _finished(acc, total[:, None], (zero_masked_rows != 0) | (keys == 0))
    y_at = y + batch * y_batch + head.to(tl.int64) * y_head + first_query.to(tl.int64) * y_row + part * VALUES
    inside = (query < queries)[:, None] & (value < value_left)[None, :]
    tl.store(y_at + row[:, None] * y_row + value[None, :], result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def split(
    q, k, v, mask, partial, stats, scale, softcap, mask_value,
    q_batch, q_head, q_row, k_batch, k_head, k_row, k_column, v_batch, v_head, v_row,
    mask_batch, mask_head, mask_row, mask_column,
    heads, group, queries, keys, head_size, value_size, diagonal, left, right, splits, split_keys,
    MASK: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Unfinished sums over split_keys keys, for the queries of all heads that share them, ROWS at a time.

    partial: float [batch, heads, queries, splits, value_size], the sums of exp(score - top) v; stats: float [batch, heads,
    queries, splits, 2], top and the sum of exp(score - top).
    """
    members = group * queries
    tiles, kv_heads = tl.cdiv(members, ROWS), heads // group
    block = tl.program_id(0)
    part = block % splits
    tile = block // splits % tiles
    kv_head = block // (splits * tiles) % kv_heads
    batch = (block // (splits * tiles) // kv_heads).to(tl.int64)
    member = tile * ROWS + tl.arange(0, ROWS)
    row = tl.minimum(member, members - 1)
    query = row % queries
    head = (kv_head * group + row // queries).to(tl.int64)
    size, value, near = tl.arange(0, SIZE), tl.arange(0, VALUES), tl.arange(0, KEYS)

    q_at = _block(q + batch * q_batch + head * q_head + query * q_row, head_size, SIZE, True)
    k_at = k + batch * k_batch + kv_head.to(tl.int64) * k_head + near[None, :] * k_row + size[:, None] * k_column
    v_at = v + batch * v_batch + kv_head.to(tl.int64) * v_head + near[:, None] * v_row + value[None, :]
    mask_at = mask
    if MASK != NO_MASK:
        mask_rows = mask + batch * mask_batch + head * mask_head + query.to(tl.int64) * mask_row
        mask_at = mask_rows[:, None] + near[None, :] * mask_column

    acc = tl.zeros([ROWS, VALUES], tl.float32)
    top, total = _start(None, 0, 0, False, ROWS)
    begin = part * split_keys
    end = tl.minimum(begin + split_keys, keys)
    start, seen, unseen, stop = _spans(0, queries - 1, begin, end, diagonal, left, right, KEYS)
    for edge in tl.static_range(3):
        first = start if edge == 0 else seen if edge == 1 else unseen
        last = tl.minimum(seen, stop) if edge == 0 else unseen if edge == 1 else stop
        acc, top, total = _attend(
            acc, top, total, q_at, k_at, v_at, mask_at, first, last, query, keys, diagonal, left, right,
            head_size, value_size, scale, softcap, mask_value, k_row, k_column, v_row, mask_column,
            edge != 1, MASK, True, True, False, True, ROWS, KEYS, SIZE, VALUES,
        )  # fmt: skip

    place = ((batch * heads + head) * queries + query) * splits + part
    valid = member < members
    inside = valid[:, None] & (value < value_size)[None, :]
    tl.store(partial + place[:, None] * value_size + value[None, :], acc, mask=inside)
    tl.store(stats + place * 2, top, mask=valid)
    tl.store(stats + place * 2 + 1, total, mask=valid)


@triton.jit
def combine(
    partial, stats, sink, y, heads, queries, value_size, splits, zero_masked_rows, has_sink, y_batch, y_head, y_row,
    SPLITS: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """One row of y from what `split` left of it; at most SPLITS parts, VALUES columns."""
    place = tl.program_id(0).to(tl.int64)
    query = place % queries
    head = place // queries % heads
    batch = place // queries // heads
    part, value = tl.arange(0, SPLITS), tl.arange(0, VALUES)
    at = stats + (place * splits + part) * 2
    tops = tl.load(at, mask=part < splits, other=float("-inf"))
    totals = tl.load(at + 1, mask=part < splits, other=0.0)
    sunk = tl.load(sink + head, mask=has_sink != 0, other=float("-inf")).to(tl.float32)
    top = tl.maximum(tl.max(tops, 0), sunk)
    level = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(totals * tl.exp2((tops - level) * LOG2E), 0) + tl.exp2((sunk - level) * LOG2E)
    acc = tl.zeros([VALUES], tl.float32)
    for i in range(0, splits):
        weight = tl.exp2((tl.load(stats + (place * splits + i) * 2) - level) * LOG2E)
        acc += weight * tl.load(partial + (place * splits + i) * value_size + value, mask=value < value_size, other=0.0)
    result = _finished(acc, total, zero_masked_rows != 0)
    y_at = y + batch * y_batch + head * y_head + query * y_row + value
    tl.store(y_at, result.to(y.dtype.element_ty), mask=value < value_size)


@triton.jit
def join(
    past, fresh, present, past_rows, fresh_rows, size, heads, fresh_batch, fresh_head, fresh_row, fresh_column,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """present = past and then fresh, for ROWS rows of one head; past and present are [batch, heads, rows, size]."""
    all_rows = past_rows + fresh_rows
    tiles = tl.cdiv(all_rows, ROWS)
    block = tl.program_id(0)
    place = (block // tiles).to(tl.int64)  # batch and head
    row = block % tiles * ROWS + tl.arange(0, ROWS)
    is_past = (row < past_rows)[:, None]
    new = (row - past_rows).to(tl.int64)[:, None]
    fresh_at = fresh + place // heads * fresh_batch + place % heads * fresh_head + new * fresh_row
    past_at = past + (place * past_rows + row)[:, None] * size
    present_at = present + (place * all_rows + row)[:, None] * size
    for start in range(0, size, COLUMNS):
        column = (start + tl.arange(0, COLUMNS))[None, :]
        inside = (row < all_rows)[:, None] & (column < size)
        old = tl.load(past_at + column, mask=inside & is_past, other=0.0)
        now = tl.load(fresh_at + column.to(tl.int64) * fresh_column, mask=inside & ~is_past, other=0.0)
        tl.store(present_at + column, tl.where(is_past, old, now), mask=inside)


TYPES = ("float16", "bfloat16", "float")
MASKS = ("none", "bool", "float", "float16", "bfloat16")
HEADS = {"float16": (32, 64, 128, 256), "bfloat16": (32, 64, 128, 256), "float": (32, 64, 128)}  # sizes that blocks are made for
LARGEST = 256
FARTHEST = (1 << 24) - 1  # elements from row to row, so that offsets within a block have 32 bits
POINTERS = ("q", "k", "v", "y")
MASK_STRIDES = ("mask_batch", "mask_head", "mask_row")
INTEGERS = (
    *(f"{name}_{axis}" for name in POINTERS for axis in ("batch", "head", "row")), *MASK_STRIDES, "mask_column", "k_column",
    "heads", "group", "queries", "keys", "head_size", "value_size", "diagonal", "left", "right", "zero_masked_rows", "has_sink",
    "splits", "split_keys", "past_rows", "fresh_rows", "size", "fresh_batch", "fresh_head", "fresh_row", "fresh_column",
)  # fmt: skip
SMALL = (86, 89, 120)  # architectures with 99 KiB of shared memory a block
WIDE = (90, 100, 103)  # those whose products are taken from shared memory, not from registers
FAST = (100, 103)  # those whose products take less time than exponentials
SIMPLE = {"softcap": 0.0, "left": UNLIMITED, "GENERAL": False}
UNSUNK = {"sink": None, "has_sink": 0, "SINK": False}
UNMASKED: dict[str, object] = {
    "mask": None,
    "mask_value": 0.0,
    "MASK": 0,
    "MASK_ROWS": False,
    **dict.fromkeys((*MASK_STRIDES, "mask_column"), 0),
}


@dataclass(frozen=True)
class Blocks:
    """rows: queries of a block; keys: taken at a time; warps of a block; stages: blocks of keys on their way."""

    rows: int
    keys: int
    warps: int
    stages: int


def kernels(arch: int) -> list[Kernel]:
    """All kernels for one architecture, 80 for sm_80."""
    found: list[Kernel] = []
    for dtype in TYPES:
        for mask in MASKS:
            found += [k for head in HEADS[dtype] for k in _of_head(arch, dtype, mask, head)]
            found.append(_of_any_head(dtype, mask))
        found += [_combine(dtype), *_joins(dtype)]
    return found


def _of_head(arch: int, dtype: str, mask: str, head: int) -> Iterator[Kernel]:
    """Those for heads of up to `head`, the best first. Masks of yet another type than q have none."""
    if mask == "none":
        yield _plain(arch, dtype, head, exact=True)
        yield _plain(arch, dtype, head, exact=False)
        yield _general(arch, dtype, head)
    elif mask in ("bool", "float", dtype):
        yield from (_masked(arch, dtype, mask, head, form) for form in ("keys", "rows", "ragged"))
    if mask in ("none", "bool", "float", dtype):
        yield _split(dtype, mask, head)


def _plain(arch: int, dtype: str, head: int, *, exact: bool) -> Kernel:
    """Whole or causal attention with no mask. exact: for this size alone."""
    blocks = _blocks(arch, dtype, head, kind="plain" if exact else "padded")
    size = Condition("head_size", equals=head), Condition("value_size", equals=head)
    constants = {**SIMPLE, **UNSUNK, **UNMASKED, **_sizes(blocks, head), "PADDED": not exact}
    if exact:
        constants |= {"head_size": head, "value_size": head}
    return Kernel(
        f"attention_{dtype}_{head}{'' if exact else '_padded'}",
        "Attention",
        "tile",
        "attention",
        {"dtype": dtype, "mask": "none"},
        _types(dtype, "none"),
        constants,
        {"q": blocks.rows, "k": blocks.keys, "v": head},
        (*(size if exact else _up_to(dtype, head)), *_simple(), Condition("has_sink", equals=0), *_lying(dtype)),
        rank=10 * head + (0 if exact else 1),
        warps=blocks.warps,
        stages=blocks.stages,
        busy=dtype != "float" and head >= 64 and arch not in FAST,
    )


def _general(arch: int, dtype: str, head: int) -> Kernel:
    """Softcap, window and sink with no mask."""
    blocks = _blocks(arch, dtype, head, kind="general")
    return Kernel(
        f"attention_{dtype}_{head}_general",
        "Attention",
        "tile",
        "attention",
        {"dtype": dtype, "mask": "none"},
        _types(dtype, "none"),
        {**UNMASKED, **_sizes(blocks, head), "GENERAL": True, "SINK": True, "PADDED": True},
        {"q": blocks.rows, "k": blocks.keys, "v": head},
        (*_up_to(dtype, head), *_lying(dtype)),
        rank=10 * head + 2,
        warps=blocks.warps,
        stages=blocks.stages,
    )


def _masked(arch: int, dtype: str, mask: str, head: int, form: str) -> Kernel:
    """A mask, and maybe a sink. form: "keys", a vector of keys; "rows", differs by query; "ragged", the same, but not aligned."""
    blocks = _blocks(arch, dtype, head, kind=form)
    same = {"mask_column": 1, "mask_row": 0} if form == "keys" else {"mask_column": 1}
    lying = {"keys": (), "rows": _aligned(mask, "mask", *MASK_STRIDES), "ragged": (Condition("mask_row", max=FARTHEST),)}[form]
    return Kernel(
        f"attention_{dtype}_{head}_{mask}{'' if form == 'keys' else f'_{form}'}",
        "Attention",
        "tile",
        "attention",
        {"dtype": dtype, "mask": mask},
        _types(dtype, mask),
        {**SIMPLE, **same, **_sizes(blocks, head), **_mask(mask, rows=form != "keys"), "SINK": True, "PADDED": True},
        {"q": blocks.rows, "k": blocks.keys, "v": head},
        (*_up_to(dtype, head), *_simple(), *(Condition(n, equals=v) for n, v in same.items()), *_lying(dtype), *lying),
        rank=10 * head + ("keys", "rows", "ragged").index(form),
        warps=blocks.warps,
        stages=blocks.stages,
    )


def _of_any_head(dtype: str, mask: str) -> Kernel:
    """Takes everything, however it lies."""
    blocks = {"ROWS": 32, "KEYS": 32, "SIZE": 32, "VALUES": 64 if dtype != "float" else 32}
    return Kernel(
        f"attention_{dtype}_any{'' if mask == 'none' else f'_{mask}'}",
        "Attention",
        "tile",
        "attention",
        {"dtype": dtype, "mask": mask},
        _types(dtype, mask),
        {**blocks, **_mask(mask, rows=True), "GENERAL": True, "SINK": True, "CHUNKED": True, "PADDED": True},
        {"q": blocks["ROWS"], "k": blocks["KEYS"], "v": blocks["VALUES"]},
        rank=10 * LARGEST + 9,
    )


def _split(dtype: str, mask: str, head: int) -> Kernel:
    """Few queries against some of the keys."""
    most = 2048 if dtype == "float" else 8192  # elements of keys at a time
    blocks = Blocks(rows=16, keys=min(64, most // head), warps=4, stages=2)
    constants = {**_sizes(blocks, head), **_mask(mask, rows=True)}
    return Kernel(
        f"attention_{dtype}_{head}_split{'' if mask == 'none' else f'_{mask}'}",
        "Attention",
        "split",
        "split",
        {"dtype": dtype, "mask": mask},
        _types(dtype, mask),
        {name: value for name, value in constants.items() if name not in ("CHUNKED", "MASK_ROWS")},
        {"q": blocks.rows, "k": blocks.keys, "v": head},
        (*_up_to(dtype, head), *_lying(dtype, "qkv")),
        rank=10 * head,
        warps=blocks.warps,
        stages=blocks.stages,
    )


def _combine(dtype: str) -> Kernel:
    types = {**_types(dtype, "none"), "partial": "*fp32", "stats": "*fp32"}
    constants = {"SPLITS": MOST_SPLITS, "VALUES": LARGEST}
    conditions = Condition("value_size", max=LARGEST), Condition("splits", max=MOST_SPLITS)
    return Kernel(f"attention_{dtype}_combine", "Attention", "combine", "combine", {"dtype": dtype}, types, constants, {}, conditions)


def _joins(dtype: str) -> Iterator[Kernel]:
    """With vectors where rows allow it, and without."""
    types = {**_types(dtype, "none"), **dict.fromkeys(("past", "fresh", "present"), POINTER_TYPES[dtype])}
    constants = {"ROWS": 16, "COLUMNS": 128}
    aligned = (
        *(Condition(name, align=16) for name in ("past", "fresh", "present")),
        *(Condition(name, align=16 // BYTES[dtype]) for name in ("size", "fresh_batch", "fresh_head", "fresh_row")),
        Condition("fresh_column", equals=1),
    )
    for rank, (name, more, conditions) in enumerate((("join", {"fresh_column": 1}, aligned), ("join_any", {}, ()))):
        variant = {"dtype": dtype}
        yield Kernel(
            f"attention_{dtype}_{name}", "Attention", "join", "join", variant, types, constants | more, {"rows": 16}, conditions, rank
        )


def _types(dtype: str, mask: str) -> dict[str, str]:
    """Those of all arguments that a kernel may have."""
    types = dict.fromkeys((*POINTERS, "sink"), POINTER_TYPES[dtype]) | dict.fromkeys(INTEGERS, "i32")
    types |= dict.fromkeys(("scale", "softcap", "mask_value"), "fp32") | dict.fromkeys(("partial", "stats"), "*fp32")
    return types if mask == "none" else types | {"mask": POINTER_TYPES[mask]}


def _sizes(blocks: Blocks, head: int) -> dict[str, object]:
    return {"ROWS": blocks.rows, "KEYS": blocks.keys, "SIZE": head, "VALUES": head, "CHUNKED": False, "k_column": 1}


def _mask(mask: str, *, rows: bool) -> dict[str, object]:
    return dict(UNMASKED) if mask == "none" else {"MASK": 1 if mask == "bool" else 2, "MASK_ROWS": rows}


def _simple() -> tuple[Condition, ...]:
    return Condition("softcap", equals=0), Condition("left", min=UNLIMITED)


def _up_to(dtype: str, head: int) -> tuple[Condition, ...]:
    return tuple(Condition(name, max=head, align=16 // BYTES[dtype]) for name in ("head_size", "value_size"))


def _lying(dtype: str, names: Sequence[str] = POINTERS) -> tuple[Condition, ...]:
    strides = (f"{name}_{axis}" for name in names for axis in ("batch", "head", "row"))
    return (Condition("k_column", equals=1), *_aligned(dtype, *names, *strides))


def _aligned(dtype: str, *names: str) -> tuple[Condition, ...]:
    """To 16 bytes, which one thread loads at a time."""
    return tuple(
        Condition(name, align=16)
        if name in (*POINTERS, "mask")
        else Condition(name, align=16 // BYTES[dtype], max=FARTHEST if name.endswith("_row") else None)
        for name in names
    )


def _blocks(arch: int, dtype: str, head: int, *, kind: str = "plain") -> Blocks:
    """The largest that keep all in registers (`onnxfuse kernels check`). kind: "plain", "padded", "general", or a form of mask."""
    if dtype == "float":  # three products for one, and parts of all operands
        return Blocks(32, 32, 4, 2) if head < 128 else Blocks(16, 16, 4, 2)
    if head == 256:
        has_room = kind == "plain" and arch not in SMALL
        return Blocks(64, 64 if has_room else 32, 8, 2)
    if head == 128 and kind == "ragged":
        return Blocks(64, 32, 8, 2)
    if head == 128:
        return Blocks(128, 64 if kind in ("plain", "padded") or arch in WIDE else 32, 8, 2)
    if kind == "plain" or (kind == "padded" and arch == 90):
        return Blocks(128, 64, 8 if arch in FAST else 4, 3)
    return Blocks(64, 64, 4, 3 if kind == "padded" else 2)
