"""Weights of norms in the shape that ops want them: one number for each channel, or for each element of the last axes."""

from __future__ import annotations

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from onnxfuse.folding import constant_array, sources
from onnxfuse.graph import Value
from onnxfuse.layout import identity, reshape
from onnxfuse.pattern import Var
from onnxfuse.rule import Decline, Match, NewConstant
from onnxfuse.symbolic import Dim


def per_channel(match: Match, hole: Var, channels: Dim, axis: int) -> Value | NewConstant | None:
    """What `hole` matched as [channels], where it is broadcast along `axis` (negative) alone; None where it is absent.

    Raises Decline when it runs along another axis, or is computed in another shape.
    """
    if not match.has(hole):
        return None
    term, behind = match.term(hole), (1,) * (-axis - 1)
    constants, array = sources(match.view, term), constant_array(match.view, term)
    if constants and array is not None and _runs_along(array.shape, channels, behind):
        return NewConstant(array.reshape(-1).astype(tensor_dtype_to_np_dtype(match.root.dtype)), constants[0])
    if term.op == "View" and _runs_along(term.attributes["layout"].shape, channels, behind):
        layout = term.attributes["layout"]
        if layout.base == (channels,) and layout == reshape(identity(layout.base), layout.shape):
            return match.holder(term.args[0], hole.name, shape=(channels,))
    value = match.value(hole)
    if not behind and value.shape == (channels,):
        return value
    shape = "unknown rank" if value.shape is None else f"the shape [{','.join(map(str, value.shape))}]"
    raise Decline(f"{hole.name} must be a vector with a number for each of the {channels} channels; '{value.name}' has {shape}")


def _runs_along(shape: tuple[Dim, ...], channels: Dim, behind: tuple[int, ...]) -> bool:
    """Whether a shape is [channels, *behind], with or without axes of size 1 in front."""
    wanted = (channels, *behind)
    return shape[-len(wanted) :] == wanted and all(d == 1 for d in shape[: -len(wanted)])


def filled(match: Match, number: float, shape: tuple[Dim, ...], like: Value) -> NewConstant:
    """A weight of equal numbers. Raises Decline where it is not known how many."""
    sizes = [d for d in shape if isinstance(d, int)]
    if len(sizes) != len(shape):
        raise Decline(f"the axes of a norm that a number multiplies must have known sizes; they are [{','.join(map(str, shape))}]")
    return NewConstant(np.full(sizes, number, tensor_dtype_to_np_dtype(match.root.dtype)), like)
