"""Attention on a GPU: blocks of queries against blocks of keys, softmax on the way (FlashAttention-2); scores stay on chip.

`attention` gives y for one block of queries of one head; `split` the unfinished sums of some of the keys, for few queries and
many keys, which `combine` joins; `join` copies past and new keys into present. Arguments are named as in op.py; strides count
elements, 0 where an axis of the mask broadcasts. Query i sees keys j of i + diagonal - left <= j <= i + diagonal + right.

Scores and sums are float. Probabilities are rounded to the type of v before they meet it. float inputs are multiplied as three
products of tf32 parts each, which is as exact as float but for the last bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from onnxfuse.triton_functions import LOG2E

NO_MASK, BOOL_MASK, ADDED_MASK = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


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
def _sweep(
    top, total, q, k, v, mask, first_query, last_query, begin, end, query, keys, diagonal, left, right, head_size, value_left,
    scale, softcap, mask_value, k_row, k_column, v_row, mask_column,
    MASK: tl.constexpr, MASK_ROWS: tl.constexpr, GENERAL: tl.constexpr, CHUNKED: tl.constexpr,
    PADDED: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr, VALUES: tl.constexpr,
):  # fmt: skip
    """Take all keys from begin to end that queries from first_query to last_query see; the rest is as `_attend` has it."""
    acc = tl.zeros([ROWS, VALUES], tl.float32)
    start, seen, unseen, stop = _spans(first_query, last_query, begin, end, diagonal, left, right, KEYS)
    for edge in tl.static_range(0 if GENERAL else 1, 3):  # keys that some queries see, that all see, that some see
        first = start if edge == 0 else seen if edge == 1 else unseen
        last = tl.minimum(seen, stop) if edge == 0 else unseen if edge == 1 else stop
        acc, top, total = _attend(
            acc, top, total, q, k, v, mask, first, last, query, keys, diagonal, left, right, head_size, value_left,
            scale, softcap, mask_value, k_row, k_column, v_row, mask_column,
            edge != 1, MASK, MASK_ROWS, GENERAL, CHUNKED, PADDED, ROWS, KEYS, SIZE, VALUES,
        )  # fmt: skip
    return acc, top, total


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

    top, total = _start(sink, head, has_sink, SINK, ROWS)
    last_query = tl.minimum(first_query + ROWS, queries) - 1
    acc, top, total = _sweep(
        top, total, q_at, k_at, v_at, mask_at, first_query, last_query, 0, keys, query, keys, diagonal, left, right, head_size,
        value_left, unit, softcap, mask_value, k_row, k_column, v_row, mask_column,
        MASK, MASK_ROWS, GENERAL, CHUNKED, PADDED, ROWS, KEYS, SIZE, VALUES,
    )  # fmt: skip

    result = _finished(acc, total[:, None], (zero_masked_rows != 0) | (keys == 0))
    y_at = y + batch * y_batch + head.to(tl.int64) * y_head + first_query.to(tl.int64) * y_row + part * VALUES
    inside = (query < queries)[:, None] & (value < value_left)[None, :]
    tl.store(y_at + row[:, None] * y_row + value[None, :], result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _attend_blocks(
    acc, top, total, q, k, v, first, last, query, keys, diagonal, right, scale,
    EDGE: tl.constexpr, SPECIALISED: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Like `_attend` with neither mask nor window; k and v: descriptors, which give 0 past the last key and the last column."""
    for start in tl.range(first, last, KEYS, warp_specialize=SPECIALISED):
        s = tl.dot(q, k.load([start, 0]).T)
        if EDGE:
            key = start + tl.arange(0, KEYS)
            seen = (key < keys)[None, :] & (key[None, :] - query[:, None] - diagonal <= right)
            s = tl.where(seen, s, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        level = tl.where(new_top == float("-inf"), 0.0, new_top) if EDGE else new_top
        p = tl.exp2(s * scale - (level * scale)[:, None])
        decay = tl.exp2((top - level) * scale)
        total = total * decay + tl.sum(p, 1)
        vt = v.load([start, 0])
        acc = tl.dot(p.to(vt.dtype), vt, acc * decay[:, None])
        top = new_top
    return acc, top, total


@triton.jit
def attention_blocks(
    q, k, v, y, scale, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, y_batch, y_head, y_row,
    heads, group, queries, keys, head_size, value_size, diagonal, right, zero_masked_rows,
    SPECIALISED: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Like `attention` with neither mask, window nor sink, keys and values brought by the copy engine of sm_90 and later.

    SPECIALISED: some warps bring blocks, others use them; all keys then go through one loop, each compared.
    """
    tiles = tl.cdiv(queries, ROWS)
    block = tl.program_id(0)
    tile = tiles - 1 - block % tiles
    head = block // tiles % heads
    batch = (block // tiles // heads).to(tl.int64)
    kv_head = (head // group).to(tl.int64)
    first_query = tile * ROWS
    query = first_query + tl.arange(0, ROWS)
    q_rows = tl.make_tensor_descriptor(q + batch * q_batch + head.to(tl.int64) * q_head, [queries, head_size], [q_row, 1], [ROWS, SIZE])
    k_keys = tl.make_tensor_descriptor(k + batch * k_batch + kv_head * k_head, [keys, head_size], [k_row, 1], [KEYS, SIZE])
    v_keys = tl.make_tensor_descriptor(v + batch * v_batch + kv_head * v_head, [keys, value_size], [v_row, 1], [KEYS, SIZE])
    q_at = q_rows.load([first_query, 0])
    q_at = q_at * tl.where(scale > 0.0, 1.0, tl.where(scale < 0.0, -1.0, 0.0)).to(q_at.dtype)
    unit = tl.where(scale == 0.0, 1.0, tl.abs(scale)) * LOG2E

    acc = tl.zeros([ROWS, SIZE], tl.float32)
    top, total = _start(None, 0, 0, False, ROWS)
    last_query = tl.minimum(first_query + ROWS, queries) - 1
    _, seen, unseen, stop = _spans(first_query, last_query, 0, keys, diagonal, 1 << 29, right, KEYS)
    if not SPECIALISED:
        acc, top, total = _attend_blocks(
            acc, top, total, q_at, k_keys, v_keys, seen, unseen, query, keys, diagonal, right, unit, False, False, KEYS
        )
    acc, top, total = _attend_blocks(
        acc, top, total, q_at, k_keys, v_keys, seen if SPECIALISED else unseen, stop, query, keys, diagonal, right, unit, True,
        SPECIALISED, KEYS,
    )  # fmt: skip

    result = _finished(acc, total[:, None], zero_masked_rows != 0)
    row, value = tl.arange(0, ROWS), tl.arange(0, SIZE)
    y_at = y + batch * y_batch + head.to(tl.int64) * y_head + first_query.to(tl.int64) * y_row
    inside = (query < queries)[:, None] & (value < value_size)[None, :]
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

    begin = part * split_keys
    top, total = _start(None, 0, 0, False, ROWS)
    acc, top, total = _sweep(
        top, total, q_at, k_at, v_at, mask_at, 0, queries - 1, begin, tl.minimum(begin + split_keys, keys), query, keys, diagonal,
        left, right, head_size, value_size, scale, softcap, mask_value, k_row, k_column, v_row, mask_column,
        MASK, True, True, False, True, ROWS, KEYS, SIZE, VALUES,
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
