"""Standard operators that stand in front of or behind an op of another library: layouts, masks, sizes.

Each function takes an operand and gives the operand that holds the changed one; shapes go along.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from onnxfuse.rule import Decline, Made, NewConstant, Operand, leaves
from onnxfuse.symbolic import Dim
from onnxfuse.target import GivenOperand

END = 2**31 - 1  # past the end of any axis


def shape_of(operand: GivenOperand) -> tuple[Dim, ...]:
    """The shape, which must be known."""
    assert operand.shape is not None
    return operand.shape


def ints(like: GivenOperand, *values: int) -> NewConstant:
    """An int64 vector, named after what it is used with."""
    return NewConstant(np.array(values, np.int64), next(leaves([like])))


def number(like: GivenOperand, value: float, dtype: int) -> NewConstant:
    """A scalar of an ONNX type."""
    return NewConstant(np.array(value, tensor_dtype_to_np_dtype(dtype)), next(leaves([like])))


def norm_scale(x: GivenOperand, scale: Operand, axis: int) -> GivenOperand:
    """The scale of a norm over the axes from `axis` (negative) on; ones where there is none, for operators that need it.

    Raises Decline where it is not known how many.
    """
    if scale is not None:
        return scale
    shape = shape_of(x)[axis:]
    known = [d for d in shape if isinstance(d, int)]
    if len(known) < len(shape):
        raise Decline(f"the axes of a norm without a scale must have known sizes; they are [{','.join(map(str, shape))}]")
    return NewConstant(np.ones(known, tensor_dtype_to_np_dtype(x.dtype)), next(leaves([x])))


def of_two_or_three_axes(x: GivenOperand) -> GivenOperand:
    """The operand itself. Raises Decline when it has fewer axes, or more."""
    if len(shape_of(x)) not in (2, 3):
        raise Decline(f"x must have two or three axes; '{x.name}' has {len(shape_of(x))}")
    return x


def transposed(operand: GivenOperand, *order: int) -> Made:
    shape = shape_of(operand)
    return Made("Transpose", (operand,), operand.dtype, tuple(shape[i] for i in order), (("perm", order),))


def reshaped(operand: GivenOperand, shape: tuple[Dim, ...]) -> Made:
    """The same elements under another shape, of which at most one size is neither a number nor that of the same axis."""
    return Made("Reshape", (operand, ints(operand, *reshape_to(shape_of(operand), shape))), operand.dtype, shape)


def reshape_to(old: tuple[Dim, ...], new: tuple[Dim, ...]) -> list[int]:
    """What a Reshape is told: a number, 0 for the size that is there already, -1 for the one left.

    Raises Decline when more than one is left.
    """
    told = [d if isinstance(d, int) and d else 0 if i < len(old) and d == old[i] else -1 for i, d in enumerate(new)]
    if told.count(-1) > 1:
        raise Decline(f"more sizes must be known to lay [{','.join(map(str, old))}] out as [{','.join(map(str, new))}]")
    return told


def reshape_told(shape: tuple[Dim, ...], axes: Sequence[int | None], like: GivenOperand) -> NewConstant | Made:
    """What a Reshape is told that keeps the first size: without -1, which forbids tensors with no elements.

    axes: for each further size that is not a number, the axis of `like` that has it. Raises Decline where there is none,
    or a size is 0, which a Reshape takes for something else.
    """
    parts: list[NewConstant | Made] = []
    for place, (dim, axis) in enumerate(zip(shape, axes, strict=True)):
        if isinstance(dim, int) and dim:
            parts.append(ints(like, dim))
        elif place == 0 and not isinstance(dim, int):
            parts.append(ints(like, 0))
        elif axis is None or isinstance(dim, int):
            raise Decline(f"the sizes must be known, and not 0; they are [{','.join(map(str, shape))}]")
        else:
            parts.append(size(like, axis))
    return joined(parts)


def unsqueezed(operand: GivenOperand, axes: Sequence[int], opset: int) -> Made:
    """With axes of size 1 put in; the axes were an attribute until opset 13."""
    shape = list(shape_of(operand))
    for axis in axes:
        shape.insert(axis, 1)
    if opset < 13:
        return Made("Unsqueeze", (operand,), operand.dtype, tuple(shape), (("axes", tuple(axes)),))
    return Made("Unsqueeze", (operand, ints(operand, *axes)), operand.dtype, tuple(shape))


def first_of_last(operand: GivenOperand, size: int) -> Made:
    """The first `size` elements of the last axis."""
    parts = (ints(operand, 0), ints(operand, size), ints(operand, -1))
    return Made("Slice", (operand, *parts), operand.dtype, (*shape_of(operand)[:-1], size))


def sizes(operand: GivenOperand, first: int, end: int) -> Made:
    """Sizes of axes first to end (excluded), as an int64 vector."""
    every = Made("Shape", (operand,), TensorProto.INT64, (len(shape_of(operand)),))
    return Made("Slice", (every, ints(operand, first), ints(operand, end)), TensorProto.INT64, (end - first,))


def size(operand: GivenOperand, axis: int) -> NewConstant | Made:
    """The size of one axis, as an int64 vector of one element."""
    known = shape_of(operand)[axis]
    return ints(operand, known) if isinstance(known, int) else sizes(operand, axis, axis + 1)


def total(a: NewConstant | Made, b: NewConstant | Made) -> Made:
    """The sum of two sizes."""
    return Made("Add", (a, b), TensorProto.INT64, (1,))


def joined(parts: Sequence[NewConstant | Made]) -> NewConstant | Made:
    """Int64 vectors one after the other."""
    if all(isinstance(p, NewConstant) for p in parts):
        arrays = [p.array for p in parts if isinstance(p, NewConstant)]
        first = parts[0]
        assert isinstance(first, NewConstant)
        return NewConstant(np.concatenate(arrays), first.like)
    total = sum(n for p in parts for n in shape_of(p) if isinstance(n, int))
    return Made("Concat", tuple(parts), TensorProto.INT64, (total,), (("axis", 0),))


def expanded(operand: GivenOperand, to: NewConstant | Made, shape: tuple[Dim, ...]) -> Made:
    """Repeated along axes of size 1; `to` holds the sizes, 1 where nothing is repeated."""
    return Made("Expand", (operand, to), operand.dtype, shape)


def choice(keep: GivenOperand, dropped: float, dtype: int) -> Made:
    """0 where `keep` holds, else `dropped`: a mask to be added."""
    return Made("Where", (keep, number(keep, 0.0, dtype), number(keep, dropped, dtype)), dtype, keep.shape)


def apart(mask: GivenOperand, low: float) -> Made:
    """A mask to be added with no number but -inf under `low`: what is lower becomes `low`, -inf stays."""
    masked = number(mask, -np.inf, mask.dtype)
    is_masked = Made("Equal", (mask, masked), TensorProto.BOOL, mask.shape)
    floored = Made("Max", (mask, number(mask, low, mask.dtype)), mask.dtype, mask.shape)
    return Made("Where", (is_masked, masked, floored), mask.dtype, mask.shape)


def padded(operand: GivenOperand, axis: int, value: float) -> Made:
    """One more element of this value at the end of an axis."""
    shape = shape_of(operand)
    axis %= len(shape)
    pads = ints(operand, *(0 for _ in shape), *(int(i == axis) for i in range(len(shape))))
    longer = tuple(d + (i == axis) for i, d in enumerate(shape))
    return Made("Pad", (operand, pads, number(operand, value, operand.dtype)), operand.dtype, longer)


def cast(operand: GivenOperand, dtype: int) -> Made:
    return Made("Cast", (operand,), dtype, operand.shape, (("to", dtype),))
