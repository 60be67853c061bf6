"""What rounding alone may do to the outputs of a subgraph, found by running it with its numbers a little off.

Two things round: the arithmetic, as if every input were off by its last bit; and, in half types, the constants. 0.7070
stands there for the root of 1/2, which moves a result by more than float32 hides, and a rewrite may take it for the
number that it was meant to be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from onnxfuse.inputs import Feed
from onnxfuse.inputs.sizes import Refusal
from onnxfuse.verify.compare import UNITS, Array, is_float, largest_error
from onnxfuse.verify.runs import Runner
from onnxfuse.verify.widen import NARROW, cast_constants, inlined, widen

DRAWS = 8  # of random last bits
NOISE = 4  # times what they do at most is put down to rounding: it happens at every step, not only in the inputs
SHORT_BITS = 7  # significant bits; a number of so few is meant as it is: 1, 0.5, 3, 0.0625
SMALLEST_STEPS: dict[int, float] = {TensorProto.FLOAT16: 2.0**-24, TensorProto.BFLOAT16: 2.0**-133}
ROUNDING: dict[int, float] = {TensorProto.FLOAT16: UNITS["float16"], TensorProto.BFLOAT16: UNITS["bfloat16"]}


def noise(runner: Runner, feed: Feed, want: Sequence[Any]) -> list[float]:
    """How far rounding may move each output: a few times what it moves when every float input is off by its last bit."""
    rng = np.random.default_rng(0)
    moved = [0.0] * len(want)
    for _ in range(DRAWS):
        result = runner({name: _last_bit_off(value, rng) for name, value in feed.items()})
        if not isinstance(result, Refusal):
            moved = [max(m, NOISE * largest_error(r, w)) for m, r, w in zip(moved, result, want, strict=True)]
    return moved


def constant_noise(pairs: Sequence[tuple[Runner, Runner]], feed: Feed, want: Sequence[Any]) -> list[Array]:
    """How far each element of each output moves when the constants are what they may have been before they were rounded.

    pairs: runners of what `off_by_rounding` gives.
    """
    total = [np.zeros(np.shape(w)) for w in want]
    for pair in pairs:
        moved = [_moves(runner(feed), want) for runner in pair]
        total = [t + np.maximum(low, high) for t, low, high in zip(total, *moved, strict=True)]
    return total


def off_by_rounding(model: onnx.ModelProto) -> Iterator[tuple[onnx.ModelProto, onnx.ModelProto]]:
    """For each scalar constant of a half type that may have been rounded: the model in float32 with it as low and as high as it may be."""
    source = inlined(model)
    for name, dtype in _scalars(source).items():
        value = _tensor(source, name)
        assert value is not None
        number = float(numpy_helper.to_array(value).reshape(()))
        if _is_short(number):
            continue
        step = max(abs(number) * ROUNDING[dtype], SMALLEST_STEPS[dtype] / 2)
        yield _with(source, name, number - step), _with(source, name, number + step)


def _last_bit_off(value: Any, rng: np.random.Generator) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or not is_float(value.dtype):
        return value
    towards = np.where(rng.random(value.shape) < 0.5, -np.inf, np.inf).astype(value.dtype)
    kept = ~np.isfinite(value) | (np.abs(value) >= np.finfo(value.dtype).max / 2)
    with np.errstate(over="ignore"):  # the number after the largest is infinity
        return np.where(kept, value, np.nextafter(value, towards))


def _moves(result: list[Any] | Refusal, want: Sequence[Any]) -> list[Array]:
    """By how much each element is another one; 0 where either is not finite."""
    if isinstance(result, Refusal):
        return [np.zeros(np.shape(w)) for w in want]
    with np.errstate(invalid="ignore"):
        return [np.nan_to_num(np.abs(np.subtract(r, w, dtype=np.float64)), nan=0.0, posinf=0.0) for r, w in zip(result, want, strict=True)]


def _scalars(model: onnx.ModelProto) -> dict[str, int]:
    """Constants of one element that are of a half type, or are cast to one, and that type."""
    found = {name: dtype for name, dtype in _all_tensors(model) if dtype in NARROW}
    by_output = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type in ("Cast", "CastLike")}
    found.update({by_output[name]: dtype for name, dtype in cast_constants(model).items() if name in by_output})
    return {name: dtype for name, dtype in found.items() if (t := _tensor(model, name)) is not None and math.prod(t.dims) == 1}


def _all_tensors(model: onnx.ModelProto) -> Iterator[tuple[str, int]]:
    inputs = {i.name for i in model.graph.input}
    yield from ((t.name, t.data_type) for t in model.graph.initializer if t.name not in inputs)
    yield from ((n.output[0], a.t.data_type) for n in model.graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value")


def _tensor(model: onnx.ModelProto, name: str) -> TensorProto | None:
    """The tensor of a constant of the main graph, to read or to change."""
    for tensor in model.graph.initializer:
        if tensor.name == name and tensor.data_location != TensorProto.EXTERNAL:
            return tensor
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] == name:
            return next((a.t for a in node.attribute if a.name == "value"), None)
    return None


def _with(model: onnx.ModelProto, name: str, number: float) -> onnx.ModelProto:
    """The model in float32 with another number in one constant."""
    wide = widen(model)
    tensor = _tensor(wide, name)
    assert tensor is not None
    tensor.CopyFrom(numpy_helper.from_array(np.full(tuple(tensor.dims), number, np.float32), tensor.name))
    return wide


def _is_short(number: float) -> bool:
    mantissa, _ = math.frexp(number)
    return not math.isfinite(number) or (mantissa * 2**SHORT_BITS).is_integer()
