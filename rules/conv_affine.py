"""conv(x) * scale + shift, as batch normalisation is -> Conv(x) with other weights: a pass over memory less, or two or three."""

from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from onnxfuse.folding import constant_array
from onnxfuse.graph import constant_value
from onnxfuse.pattern import Call, Scalar, Var, either, op, optional, target
from onnxfuse.rule import Decline, Match, NewConstant, Rule

x, w, b, settings = Var("x"), Var("w", constant=True), Var("b", constant=True), Scalar("settings")
factor = Scalar("factor")
offset, scale, shift = Var("offset", constant=True), Var("scale", constant=True), Var("shift", constant=True)

conv = op.Conv(x, w, optional(b), settings=settings) + optional(offset)


def build(match: Match) -> Call:
    """(w * x + b + offset) scale + shift = (w scale) * x + (b + offset) scale + shift."""
    if not any(map(match.has, (scale, offset, shift))) and match.scalar(factor) == 1:
        raise Decline("the convolution must be scaled or shifted")
    kernel = match.value(w)
    weights = constant_value(kernel)
    if weights is None or (match.has(b) and constant_value(match.value(b)) is None):
        raise Decline(f"the weights must be in the file, to be multiplied now; those of '{kernel.name}' are not")
    by = _per_channel(match, scale, weights, match.scalar(factor) if match.has(factor) else 1.0)
    bias = constant_value(match.value(b)) if match.has(b) else 0.0
    moved = (bias + _per_channel(match, offset, weights, 0.0)) * by + _per_channel(match, shift, weights, 0.0)
    scaled = weights * by.reshape(-1, *[1] * (weights.ndim - 1))
    dtype = tensor_dtype_to_np_dtype(match.root.dtype)
    attributes = {name: list(value) if isinstance(value, tuple) else value for name, value in match.scalar(settings)}
    like = match.value(b) if match.has(b) else kernel
    conv_of: Call = target("").Conv(
        match.value(x), NewConstant(scaled.astype(dtype), kernel), NewConstant(moved.astype(dtype), like), **attributes
    )
    return conv_of


def _per_channel(match: Match, hole: Var, weights: Any, default: float) -> Any:
    """What `hole` matched for each channel of the result, in float64."""
    channels = weights.shape[0]
    array = constant_array(match.view, match.term(hole)) if match.has(hole) else np.array(default)
    wanted = (channels, *[1] * (weights.ndim - 2))
    if array is None or (array.size != 1 and (array.shape[-len(wanted) :] != wanted or array.size != channels)):
        shape = "unknown" if array is None else list(array.shape)
        raise Decline(f"{hole.name} must have a number for each of the {channels} channels; its shape is {shape}")
    return np.broadcast_to(array.reshape(-1), (channels,)).astype(np.float64)


RULE = Rule(
    before=either(conv * scale, factor * conv) + optional(shift),
    after=build,
    kind="matmul",
    fires_on=[
        """g (float[n,2,5,5] x) => (float[n,3,h,w] y)
        <float[3,2,1,1] k = {1, 2, 3, 4, 5, 6}, float[3] s = {1, 2, 3}, float[3] b = {3, 2, 1}, float[3] m = {0, 1, 2}> {
            v = Constant <value = float[3] {1.0, 4.0, 2.0}> ()
            c = Conv <strides = [2, 2]> (x, k)  y = BatchNormalization <epsilon = 0.001> (c, s, b, m, v)
        }""",
        """g (float[2,2,5] x) => (float[2,4,3] y)
        <float[4,1,3] k = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}, float[4] b = {3, 2, 1, 0}, float[4,1] s = {1, 2, 3, 4}> {
            t = Constant <value = float[1,4,1] {4.0, 3.0, 2.0, 1.0}> ()
            c = Conv <group = 2> (x, k, b)  m = Mul(c, s)  y = Add(m, t)
        }""",
        """g (float[2,2,5] x) => (float[2,1,5] y) <float[1,2,1] k = {1, 2}, float half = {0.5}> { c = Conv(x, k)  y = Mul(c, half) }""",
        """g (float[2,2,5] x) => (float[2,2,5] y) <float[2,2,1] k = {1, 2, 3, 4}, float[2,1] b = {1, 2}> {
            c = Conv(x, k)  y = Add(b, c)
        }""",
    ],
    declines={
        "'c' (Conv) must be read by nobody else": """g (float[2,2,5] x) => (float[2,1,5] y, float[2,1,5] c)
        <float[1,2,1] k = {1, 2}, float half = {0.5}> {
            c = Conv(x, k)  y = Mul(c, half)
        }""",
        "scale must have a number for each of the 2 channels; its shape is [2]": """g (float[2,2,2] x) => (float[2,2,2] y)
        <float[2,2,1] k = {1, 2, 3, 4}, float[2] s = {1, 2}> {
            c = Conv(x, k)  y = Mul(c, s)
        }""",
    },
)
