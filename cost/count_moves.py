"""Counts of ops that only move data: free views, copies, gathers, transposes."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from onnxfuse.cost.call import Call, Counter, make, table
from onnxfuse.cost.types import byte_size
from onnxfuse.cost.work import Work


def view(call: Call) -> Work:
    """No byte moves: the output is the input under another shape, or a few numbers."""
    return replace(make(call, "layout", "", 0, bytes_read=0, bytes_written=0), parts=(), launches=0)


def copy(call: Call) -> Work:
    """Every output byte is read once and written once; indices and sizes are read beside it."""
    beside = sum(call.bytes_of(i) for i in range(1, len(call.inputs)))
    return make(call, "layout", "", prod(call.out), bytes_read=call.bytes_out + beside)


def expand(call: Call) -> Work:
    """The input is read once, however often it is repeated."""
    return make(call, "layout", "", prod(call.out), bytes_read=min(call.bytes_of(0), call.bytes_out))


def filled(call: Call) -> Work:
    """Nothing is read."""
    return make(call, "layout", "", prod(call.out), bytes_read=0)


def transpose(call: Call) -> Work:
    """A view when only axes of size 1 change places; else a copy in runs of what stays in place at the end."""
    shape = call.shape(0)
    order = list(call.attributes.get("perm") or reversed(range(len(shape))))
    moving = [axis for axis in order if shape[axis] != 1]
    if moving == sorted(moving):
        return view(call)
    run = 1
    for place in reversed(range(len(order))):
        if order[place] != place:
            break
        run *= shape[place]
    made = make(call, "layout", "", prod(shape))
    part = ("Transpose", prod(shape) // max(1, run)) if run > 1 else ("Transpose:last", prod(shape))  # runs are copied whole
    return replace(made, parts=(part,), run_bytes=max(1, byte_size(run, call.types[0])))


def joined(call: Call) -> Work:
    """All inputs are read and written once."""
    return make(call, "layout", "", prod(call.out))


def split(call: Call) -> Work:
    """The input is read once and written once, over all outputs."""
    size = prod(call.shape(0))
    return make(call, "layout", "", size, bytes_read=call.bytes_of(0), elements=size)


def scatter(call: Call) -> Work:
    """The data is copied, then updates are read and written over it."""
    beside = sum(call.bytes_of(i) for i in range(1, len(call.inputs)))
    updates = call.bytes_of(2) if call.has(2) else 0
    return make(call, "layout", "", prod(call.out), bytes_read=call.bytes_of(0) + beside, bytes_written=call.bytes_out + updates)


COUNTERS: dict[str, Counter] = {
    **table(view, "Reshape Flatten Squeeze Unsqueeze Identity Shape Size Constant Dropout BitCast"),
    **table(view, "Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty SequenceErase"),
    **table(view, "SequenceInsert SequenceLength"),
    **table(copy, "Slice Gather GatherElements GatherND Pad DepthToSpace SpaceToDepth Trilu Compress ReverseSequence CenterCropPad"),
    **table(copy, "Col2Im MaxUnpool Unique NonZero"),
    **table(expand, "Expand Tile OneHot"),
    **table(filled, "ConstantOfShape EyeLike Range BlackmanWindow HammingWindow HannWindow MelWeightMatrix AffineGrid"),
    **table(filled, "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial"),
    **table(transpose, "Transpose"),
    **table(joined, "Concat ConcatFromSequence"),
    **table(split, "Split SplitToSequence"),
    **table(scatter, "Scatter ScatterElements ScatterND TensorScatter"),
}
