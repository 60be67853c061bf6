"""Linear on a GPU: a product whose bias, residual and activation are applied before it leaves the chip.

Arguments are named as in op.py. x is [rows, depth], y and residual are [rows, columns], all contiguous; weight has strides along
depth and columns. `linear` gives blocks of y; `split` the sums over a part of the depth, for few blocks and much depth, which
`combine` adds up, always in the same order. Sums are float; float inputs are multiplied as three products of tf32 parts each, which is
as exact as float but for the last bits. The activation is a number at run time, as the attribute's in op.cc: the product is what takes
the time.
"""

from __future__ import annotations

import triton
import triton.language as tl

from onnxfuse.triton_functions import first_of_block, gelu, gelu_tanh, relu, sigmoid, tanh


@triton.jit
def _activated(x, activation, a, b):
    """The activation of this number; those with parameters take a and b."""
    if activation == 1:
        x = relu(x)
    elif activation == 2:
        x = tl.where(x < 0.0, a * x, x)
    elif activation == 3:
        x = tl.where(x < a, a, x)
        x = tl.where(x > b, b, x)
    elif activation == 4:
        x = gelu(x)
    elif activation == 5:
        x = gelu_tanh(x)
    elif activation == 6:
        x = x * sigmoid(a * x)
    elif activation == 7:
        x = sigmoid(x)
    elif activation == 8:
        x = tanh(x)
    elif activation == 9:
        x = x * _hard_sigmoid(x, 1.0 / 6.0, 0.5)
    elif activation == 10:
        x = relu(x)
        x = x * x
    elif activation == 11:
        x = _hard_sigmoid(x, a, b)
    return x


@triton.jit
def _hard_sigmoid(x, slope, offset):
    """Comparisons that a NaN passes."""
    x = relu(x * slope + offset)
    return tl.where(x > 1.0, 1.0, x)


@triton.jit
def _product(
    x, weight, first_row, first_column, begin, end, rows, columns, depth, weight_depth, weight_column,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """A block of x weight, summed from `begin` to `end` along the depth.

    EVEN: they are whole steps of DEPTH apart. FAR: strides of 2^24 or more.
    """
    row, column, near = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, DEPTH)
    if FAR:
        row, column, near = row.to(tl.int64), column.to(tl.int64), near.to(tl.int64)
    near_row = tl.minimum(row, rows - 1 - first_row)  # those past the last do its work again
    x_at = x + first_row.to(tl.int64) * depth + begin + near_row[:, None] * depth + near[None, :]
    weight_at = weight + first_column.to(tl.int64) * weight_column + tl.cast(begin, tl.int64) * weight_depth
    weight_at += column[None, :] * weight_column + near[:, None] * weight_depth
    wanted = (column < columns - first_column)[None, :]

    acc = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(begin, end, DEPTH):
        if EVEN:
            a = tl.load(x_at)
            b = tl.load(weight_at, mask=wanted, other=0.0)
        else:
            a = tl.load(x_at, mask=(near < end - start)[None, :], other=0.0)
            b = tl.load(weight_at, mask=(near < end - start)[:, None] & wanted, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="tf32x3")
        x_at += DEPTH
        weight_at += tl.cast(DEPTH, tl.int64) * weight_depth
    return acc


@triton.jit
def _finish(acc, bias, residual, y, inside, alpha, activation, activation_alpha, activation_beta, has_residual, residual_last):
    """Everything behind the product, for sums whose residual and result lie at these addresses."""
    acc = acc * alpha + bias.to(tl.float32)
    if (has_residual != 0) & (residual_last == 0):
        acc += tl.load(residual, mask=inside, other=0.0).to(tl.float32)
    acc = _activated(acc, activation, activation_alpha, activation_beta)
    if (has_residual != 0) & (residual_last != 0):
        acc += tl.load(residual, mask=inside, other=0.0).to(tl.float32)
    tl.store(y, acc.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _finish_block(
    acc, bias, residual, y, first_row, first_column, alpha, activation_alpha, activation_beta, rows, columns, activation,
    has_bias, has_residual, residual_last,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """The same for a block of sums."""
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    if FAR:
        row, column = row.to(tl.int64), column.to(tl.int64)
    biased = tl.where(has_bias != 0, columns - first_column, 0)
    added = tl.load(bias + first_column + column, mask=column < biased, other=0.0)[None, :]
    inside = (row < rows - first_row)[:, None] & (column < columns - first_column)[None, :]
    place = first_row.to(tl.int64) * columns + first_column + row[:, None] * columns + column[None, :]
    _finish(
        acc, added, residual + place, y + place, inside, alpha, activation, activation_alpha, activation_beta,
        has_residual, residual_last,
    )  # fmt: skip


@triton.jit
def linear(
    x, weight, bias, residual, y, alpha, activation_alpha, activation_beta,
    rows, columns, depth, weight_depth, weight_column, activation, has_bias, has_residual, residual_last,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """ROWS rows and COLUMNS columns of y. EVEN: depth is a multiple of DEPTH. FAR: strides of 2^24 or more."""
    first_row, first_column = first_of_block(tl.program_id(0), rows, columns, ROWS, COLUMNS)
    acc = _product(
        x, weight, first_row, first_column, 0, depth, rows, columns, depth, weight_depth, weight_column,
        ROWS, COLUMNS, DEPTH, EVEN, FAR,
    )  # fmt: skip
    _finish_block(
        acc, bias, residual, y, first_row, first_column, alpha, activation_alpha, activation_beta, rows, columns, activation,
        has_bias, has_residual, residual_last, ROWS, COLUMNS, FAR,
    )  # fmt: skip


@triton.jit
def linear_blocks(
    x, weight, bias, residual, y, alpha, activation_alpha, activation_beta,
    rows, columns, depth, weight_depth, weight_column, activation, has_bias, has_residual, residual_last,
    TRANSPOSED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Like `linear`, both operands brought by the copy engine of sm_90 and later, which gives 0 past their ends."""
    first_row, first_column = first_of_block(tl.program_id(0), rows, columns, ROWS, COLUMNS)
    x_blocks = tl.make_tensor_descriptor(x, [rows, depth], [depth, 1], [ROWS, DEPTH])
    if TRANSPOSED:
        weight_blocks = tl.make_tensor_descriptor(weight, [columns, depth], [weight_column, 1], [COLUMNS, DEPTH])
    else:
        weight_blocks = tl.make_tensor_descriptor(weight, [depth, columns], [weight_depth, 1], [DEPTH, COLUMNS])
    acc = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, depth, DEPTH):
        a = x_blocks.load([first_row, start])
        b = weight_blocks.load([first_column, start]).T if TRANSPOSED else weight_blocks.load([start, first_column])
        acc = tl.dot(a, b, acc)
    _finish_block(
        acc, bias, residual, y, first_row, first_column, alpha, activation_alpha, activation_beta, rows, columns, activation,
        has_bias, has_residual, residual_last, ROWS, COLUMNS, False,
    )  # fmt: skip


@triton.jit
def split(
    x, weight, partial, rows, columns, depth, weight_depth, weight_column, splits, split_depth,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Sums over split_depth of the depth; both are multiples of DEPTH. partial: float [splits, rows, columns]."""
    part, block = tl.program_id(0) % splits, tl.program_id(0) // splits
    first_row, first_column = first_of_block(block, rows, columns, ROWS, COLUMNS)
    begin = tl.multiple_of(part * split_depth, DEPTH)
    acc = _product(
        x, weight, first_row, first_column, begin, tl.minimum(begin + split_depth, depth), rows, columns, depth,
        weight_depth, weight_column, ROWS, COLUMNS, DEPTH, True, False,
    )  # fmt: skip
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    inside = (row < rows - first_row)[:, None] & (column < columns - first_column)[None, :]
    place = (tl.cast(part, tl.int64) * rows + first_row) * columns + first_column + row[:, None] * columns + column[None, :]
    tl.store(partial + place, acc, mask=inside)


@triton.jit
def combine(
    partial, bias, residual, y, alpha, activation_alpha, activation_beta,
    rows, columns, activation, has_bias, has_residual, residual_last, splits,
    SIZE: tl.constexpr,
):  # fmt: skip
    """SIZE elements of y, one after another, from what `split` left of them."""
    all_elements = tl.cast(rows, tl.int64) * columns
    place = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = place < all_elements
    acc = tl.zeros([SIZE], tl.float32)
    for part in range(0, splits):
        acc += tl.load(partial + part * all_elements + place, mask=inside, other=0.0)
    added = tl.load(bias + place % columns, mask=place < tl.where(has_bias != 0, all_elements, 0), other=0.0)
    _finish(
        acc, added, residual + place, y + place, inside, alpha, activation, activation_alpha, activation_beta,
        has_residual, residual_last,
    )  # fmt: skip
