"""Shapes of ops that move, cut, join or repeat data without computing on it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxfuse import symbolic
from onnxfuse.shape_facts import FLOATS, Call, Shape, broadcast_shapes, only, place, places, replaced, shape_rule
from onnxfuse.shape_ratio import Ratio, Unknown
from onnxfuse.symbolic import Dim

FAR = 2**31 - 1  # an end beyond every size: exporters write the largest int32 or int64 for "to the end"


@shape_rule("Transpose")
def _transpose(call: Call) -> Shape:
    x = call.shape(0)
    perm = call.ints("perm")
    if perm is None:
        return x[::-1]
    if sorted(perm) != list(range(len(x))):
        raise Unknown
    return tuple(x[p] for p in perm)


@shape_rule("Reshape")
def _reshape(call: Call) -> Shape:
    if call.opset < 5:
        target: Sequence[Dim] | None = call.ints("shape")
    else:
        target = call.fact(1).elements
    if target is None:
        return call.fresh_shape(_length(call, 1))
    return reshaped(call, call.fact(0).shape, target, is_zero_kept=call.integer("allowzero", 0) != 0)


def reshaped(call: Call, x: Shape | None, target: Sequence[Dim], *, is_zero_kept: bool) -> Shape:
    """The shape that a Reshape to `target` gives, its 0 and -1 solved where that is possible."""
    dims: list[Dim] = []
    open_axes: list[int] = []  # those whose size `target` does not say
    for axis, dim in enumerate(target):
        if dim == 0 and not is_zero_kept:
            dim = x[axis] if x is not None and axis < len(x) else call.fresh(axis)
        elif not (dim >= 0 if isinstance(dim, int) else symbolic.is_nonnegative(dim)):
            open_axes.append(axis)
            dim = call.fresh(axis)
        dims.append(dim)
    if len(open_axes) == 1 and x is not None:
        rest = symbolic.product(d for axis, d in enumerate(dims) if axis != open_axes[0])
        if rest != 0:
            dims[open_axes[0]] = symbolic.product(x) // rest  # a valid run leaves no remainder
    return tuple(dims)


def _length(call: Call, position: int) -> int:
    """How many elements a vector input has: the rank of what it describes."""
    (length,) = call.shape(position, rank=1)
    if not isinstance(length, int):
        raise Unknown
    return length


@shape_rule("Flatten")
def _flatten(call: Call) -> Shape:
    x = call.shape(0)
    axis = call.integer("axis", 1)
    if not -len(x) <= axis <= len(x):
        raise Unknown
    axis = axis + len(x) if axis < 0 else axis
    return symbolic.product(x[:axis]), symbolic.product(x[axis:])


@shape_rule("Unsqueeze")
def _unsqueeze(call: Call) -> Shape:
    x = call.shape(0)
    axes = call.axes(1)
    if axes is None:
        raise Unknown
    rank = len(x) + len(axes)
    new = set(places(axes, rank))
    rest = iter(x)
    return tuple(1 if axis in new else next(rest, 1) for axis in range(rank))


@shape_rule("Squeeze")
def _squeeze(call: Call) -> Shape:
    x = call.shape(0)
    axes = call.axes(1)
    if axes is None:
        if not all(isinstance(d, int) for d in x):
            raise Unknown  # a size that is 1 only in some runs goes away only then
        return tuple(d for d in x if d != 1)
    gone = places(axes, len(x))
    return tuple(d for axis, d in enumerate(x) if axis not in gone)


@shape_rule("Concat")
def _concat(call: Call) -> Shape:
    shapes = [call.fact(i).shape for i in range(len(call.inputs)) if call.has(i)]
    known = [s for s in shapes if s]
    if not known or len({len(s) for s in known}) > 1:
        raise Unknown
    axis = place(call.integer("axis", 1 if call.opset < 4 else None), len(known[0]))
    joined = [agreed(dims) for dims in zip(*known, strict=True)]
    joined[axis] = call.fresh(axis) if len(known) < len(shapes) else sum((s[axis] for s in known), start=0)
    return tuple(joined)


def agreed(dims: Sequence[Dim]) -> Dim:
    """The best description of a size that an op requires to be the same in several inputs."""
    number = next((d for d in dims if isinstance(d, int)), None)
    return number if number is not None else next((d for d in dims if symbolic.is_named(d)), dims[0])


@shape_rule("Split")
def _split(call: Call) -> list[Shape | None]:
    x = call.shape(0, at_least=1)
    count = len(call.node.outputs)
    axis = place(call.integer("axis", 0), len(x))
    written = call.ints("split")
    sizes: Sequence[Dim] | None = written
    if written is None and call.has(1):
        sizes = call.fact(1).elements or [call.fresh(axis, i) for i in range(count)]
    if sizes is None:
        chunk = (x[axis] + (count - 1 if call.opset >= 18 else 0)) // count  # before opset 18 it had to be even
        sizes = [chunk] * (count - 1) + [x[axis] - chunk * (count - 1)]
    if len(sizes) != count:
        raise Unknown
    return [replaced(x, axis, size) for size in sizes]


@shape_rule("Slice")
def _slice(call: Call) -> Shape:
    x = call.shape(0)
    if call.opset < 10:
        starts, ends = call.ints("starts") or [], call.ints("ends") or []
        return _sliced(call, x, starts, ends, call.ints("axes"), None)
    axes = call.integers(3) if call.has(3) else None
    count = len(axes) if axes is not None else _length(call, 1)
    starts_known, ends_known = call.fact(1).elements, call.fact(2).elements
    steps = call.integers(4) if call.has(4) else None
    if starts_known is None or ends_known is None:
        cut = places(axes if axes is not None else range(count), len(x))
        return tuple(call.fresh(axis) if axis in cut else d for axis, d in enumerate(x))
    return _sliced(call, x, starts_known, ends_known, axes, steps)


def _sliced(call: Call, x: Shape, starts: Sequence[Dim], ends: Sequence[Dim], axes: list[int] | None, steps: list[int] | None) -> Shape:
    axes = places(axes if axes is not None else range(len(starts)), len(x))
    steps = steps if steps is not None else [1] * len(axes)
    if not len(axes) == len(starts) == len(ends) == len(steps):
        raise Unknown
    dims = list(x)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        size = slice_size(x[axis], start, end, step)
        dims[axis] = call.fresh(axis) if size is None else size
    return tuple(dims)


def slice_size(dim: Dim, start: Dim, end: Dim, step: int) -> Dim | None:
    """How many of `dim` elements a slice takes; None where it cannot be told from which end a bound counts."""
    if isinstance(dim, int) and isinstance(start, int) and isinstance(end, int) and step:
        return len(range(*slice(start, end if end > -FAR or step > 0 else None, step).indices(dim)))
    if step < 1:
        whole = step == -1 and end in range(-(2**63), -FAR + 1) and (start == -1 or start in range(FAR, 2**63))
        return dim if whole else None
    size = _span(dim, start, end)
    return size if step == 1 or size is None else (size + (step - 1)) // step


def _span(dim: Dim, start: Dim, end: Dim) -> Dim | None:
    if isinstance(end, int) and end >= FAR:
        if isinstance(start, int) and start >= 0:
            return symbolic.maximum(dim - start, 0)
        if symbolic.is_nonnegative(-start):
            return symbolic.tail(dim, -start)
        end = dim
    first, last = _bound(dim, start), _bound(dim, end)
    return None if first is None or last is None else symbolic.maximum(last - first, 0)


def _bound(dim: Dim, position: Dim) -> Dim | None:
    """Where a slice bound falls, counted from the front and held inside the axis."""
    if symbolic.is_nonnegative(position):
        return symbolic.minimum(position, dim)
    if symbolic.is_nonnegative(-1 - position):
        return symbolic.maximum(dim + position, 0)
    if symbolic.is_nonnegative(-position):
        return dim - symbolic.tail(dim, -position)
    return None


@shape_rule("Gather")
def _gather(call: Call) -> Shape:
    x = call.shape(0, at_least=1)
    axis = place(call.integer("axis", 0), len(x))
    return x[:axis] + call.shape(1) + x[axis + 1 :]


@shape_rule("GatherND")
def _gather_nd(call: Call) -> Shape:
    x, indices = call.shape(0, at_least=1), call.shape(1, at_least=1)
    depth = indices[-1]
    taken = call.integer("batch_dims", 0) + (depth if isinstance(depth, int) else len(x) + 1)
    if taken > len(x):
        raise Unknown
    return indices[:-1] + x[taken:]


@shape_rule("GatherElements")
def _gather_elements(call: Call) -> Shape:
    return call.shape(1)


@shape_rule("Expand")
def _expand(call: Call) -> Shape:
    target = call.fact(1).elements
    return broadcast_shapes(call.shape(0), call.fresh_shape(_length(call, 1)) if target is None else target)


@shape_rule("Tile")
def _tile(call: Call) -> Shape:
    x = call.shape(0)
    repeats = call.fact(1).elements
    if repeats is None:
        return call.fresh_shape(len(x))
    if len(repeats) != len(x):
        raise Unknown
    return tuple(d * n for d, n in zip(x, repeats, strict=True))


@shape_rule("Shape")
def _shape(call: Call) -> Shape:
    return (len(shape_part(call)),)


def shape_part(call: Call) -> Shape:
    """The sizes that a Shape node reads: from `start` to `end`, both held inside the rank."""
    x = call.shape(0)
    end = call.integer("end", len(x))
    return x[slice(call.integer("start", 0), end)]


@shape_rule("Size")
def _size(call: Call) -> Shape:
    return ()


@shape_rule("Constant")
def _constant(call: Call) -> Shape:
    tensor = call.tensor("value")
    if tensor is not None:
        return tuple(tensor.dims)
    for attribute in call.node.proto.attribute:
        if attribute.name == "sparse_value":
            return tuple(attribute.sparse_tensor.dims)
        if attribute.name in ("value_float", "value_int", "value_string"):
            return ()
        if attribute.name in ("value_floats", "value_ints", "value_strings"):
            listed = call.attribute(attribute.name)
            if isinstance(listed, list):
                return (len(listed),)
    raise Unknown


@shape_rule("ConstantOfShape")
def _constant_of_shape(call: Call) -> Shape:
    target = call.fact(0).elements
    return call.fresh_shape(_length(call, 0)) if target is None else target


@shape_rule("Range")
def _range(call: Call) -> Shape:
    try:
        start, limit, step = (_bound_of_range(call, i) for i in range(3))
    except Unknown:
        return (_constant_range(call),)
    if not isinstance(step, int) or step == 0:
        return (call.fresh(0),)
    if step < 0:
        start, limit, step = limit, start, -step
    return (symbolic.maximum((limit - start + (step - 1)) // step, 0),)


def _bound_of_range(call: Call, position: int) -> Dim:
    """One of start, limit and step, if it is a whole number."""
    if call.dtype(position) not in FLOATS:
        return call.scalar(position)
    ratio: Ratio = only(call.ratios(position))
    if ratio.bottom != 1:
        raise Unknown
    return ratio.top


def _constant_range(call: Call) -> Dim:
    """The length of a range between constants that are no whole numbers."""
    try:
        start, limit, step = (float(only(call.constant(i))) for i in range(3))
    except Unknown:
        return call.fresh(0)
    return max(0, math.ceil((limit - start) / step)) if step and math.isfinite((limit - start) / step) else call.fresh(0)


@shape_rule("Pad")
def _pad(call: Call) -> Shape:
    x = call.shape(0)
    pads: Sequence[Dim] | None = call.ints("pads") or call.ints("paddings")
    if pads is None:
        pads = call.fact(1).elements
    axes = places(call.integers(3), len(x)) if call.has(3) else list(range(len(x)))
    if pads is None:
        return tuple(call.fresh(axis) if axis in axes else d for axis, d in enumerate(x))
    if len(pads) != 2 * len(axes):
        raise Unknown
    dims = list(x)
    for position, axis in enumerate(axes):
        dims[axis] = x[axis] + pads[position] + pads[position + len(axes)]
    return tuple(dims)


@shape_rule("OneHot")
def _one_hot(call: Call) -> Shape:
    indices = call.shape(0)
    axis = place(call.integer("axis", -1), len(indices) + 1)
    size = call.fresh(axis) if call.fact(1).elements is None else call.scalar(1)
    return (*indices[:axis], size, *indices[axis:])


@shape_rule("DepthToSpace")
def _depth_to_space(call: Call) -> Shape:
    n, c, h, w = call.shape(0, rank=4)
    block = call.integer("blocksize")
    if block < 1:
        raise Unknown
    return n, c // (block * block), h * block, w * block


@shape_rule("SpaceToDepth")
def _space_to_depth(call: Call) -> Shape:
    n, c, h, w = call.shape(0, rank=4)
    block = call.integer("blocksize")
    if block < 1:
        raise Unknown
    return n, c * (block * block), h // block, w // block


@shape_rule("Compress")
def _compress(call: Call) -> Shape:
    if call.attribute("axis") is None:
        return (call.fresh(0),)
    x = call.shape(0, at_least=1)
    axis = place(call.integer("axis"), len(x))
    return replaced(x, axis, call.fresh(axis))


@shape_rule("RandomNormal", "RandomUniform")
def _random(call: Call) -> Shape:
    shape = call.ints("shape")
    if shape is None:
        raise Unknown
    return tuple(shape)
