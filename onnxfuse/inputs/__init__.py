"""Feeds for a model: made up by what the graph does with each input, or read from a file of the user."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxfuse import graph
from onnxfuse.errors import UsageError, VerificationError
from onnxfuse.inputs import sizes as size
from onnxfuse.inputs.roles import roles
from onnxfuse.inputs.sizes import Refusal, Sizes
from onnxfuse.inputs.sketch import Shape, has_data, shape_of, sketch
from onnxfuse.inputs.values import Array, Regime, like_shape, make, other_value

Feed = dict[str, Any]
Attempt = Callable[[Feed], "Refusal | float"]

REGIMES = (
    Regime("holes in the masks"),
    Regime("nothing masked", masks="ones"),
    Regime("any mask, defaults overridden", masks="any", override=True),
)


@dataclass(frozen=True)
class Trial:
    """A feed, and how it came about."""

    feed: Feed
    sizes: Sizes
    regime: Regime
    tried: Sizes  # what `sizes` were before the model refused


class Maker:
    """Makes feeds for one model.

    shapes: numbers for symbols, by name. Raises VerificationError if an input is of a kind that cannot be made up,
    UsageError if a name in `shapes` is no size of the inputs.
    """

    def __init__(self, model: onnx.ModelProto, shapes: Mapping[str, int]) -> None:
        _check_kinds(model)
        self.sketch = sketch(model)
        self.roles = roles(self.sketch)
        self.shapes = size.input_shapes(self.sketch)
        self.types = {i.name: i.type.tensor_type.elem_type for i in self.sketch.inputs}
        self.given = dict(shapes)
        size.check(self.given, size.symbols(self.shapes))
        _check_ranks(self.shapes, self.sketch.defaults)

    def assignments(self) -> list[Sizes]:
        """Three, unless the model has no unknown size that they could differ in: then still three, all alike."""
        return size.assignments(self.sketch, self.given)

    def feed(self, sizes: Sizes, regime: Regime, seed: int) -> Feed:
        """One feed; the numbers in an input depend on seed, sizes and regime alone. Defaults are left out unless overridden."""
        made = {name: self._value(name, sizes, regime, np.random.default_rng((seed, k))) for k, name in enumerate(self.shapes)}
        return {name: value for name, value in made.items() if value is not None}

    def _value(self, name: str, sizes: Sizes, regime: Regime, rng: np.random.Generator) -> Array | None:
        if name in self.sketch.defaults:
            default = self.sketch.tensors[name]
            return other_value(numpy_helper.to_array(default)) if regime.override and has_data(default) else None
        role = self.roles[name]
        numbers = [size.evaluate(dim, sizes) for dim in self.shapes[name] or ()]
        shape = tuple(1 if n is None else max(n, 0) for n in numbers)
        try:
            return make(role, self.types[name], shape, sizes, regime, rng, like_shape(role, self.sketch.shapes, sizes))
        except MemoryError:
            raise VerificationError(f"input '{name}' of shape [{','.join(map(str, shape))}] does not fit in memory") from None


def feeds(
    model: onnx.ModelProto | graph.Model, *, seed: int, shapes: Mapping[str, int] | None = None, attempt: Attempt | None = None
) -> list[Feed]:
    """Return feeds for three assignments of the unknown sizes: plain, one new token after a past, no past.

    attempt: runs the model and returns the share of its float outputs that are finite, or its refusal. With it, sizes
    that the model refuses are changed until it takes them, and up to a few feeds with broadcast sizes are added.
    Raises VerificationError if an input cannot be made up, or nothing that we make up runs.
    """
    maker = Maker(model.proto if isinstance(model, graph.Model) else model, shapes or {})
    if attempt is not None:
        return [trial.feed for trial in trials(maker, attempt, seed=seed)]
    return [maker.feed(sizes, regime, seed + turn) for turn, (sizes, regime) in enumerate(zip(maker.assignments(), REGIMES, strict=True))]


def trials(maker: Maker, attempt: Attempt, *, seed: int, regimes: tuple[Regime, ...] = REGIMES) -> Iterator[Trial]:
    """Feeds that run: for each assignment one, then some in which one of several equal sizes is 1.

    Raises VerificationError if none runs.
    """
    found: list[Trial] = []
    refusal = Refusal(0, "")
    for turn, (sizes, regime) in enumerate(zip(maker.assignments(), regimes, strict=True)):
        settled = _settled(maker, attempt, sizes, regime, seed + turn, found)
        if isinstance(settled, Refusal):
            refusal = settled
            continue
        found.append(settled)
        yield settled
    if not found:
        raise VerificationError(
            f"model '{maker.sketch.proto.graph.name}': no input that we made up runs through it; the last answer was: {refusal.text}. "
            "Give real inputs with --inputs FILE.npz, or sizes with --shape NAME=SIZE"
        )
    for sizes in size.splits(maker.shapes, found[0].sizes, maker.given):
        feed = maker.feed(sizes, found[0].regime, seed)
        if not isinstance(attempt(feed), Refusal):
            yield Trial(feed, sizes, found[0].regime, sizes)


def load_feeds(path: str | Path, model: onnx.ModelProto | graph.Model) -> list[Feed]:
    """Return the feed in an .npz file: an array per input, by name; `name[0]`, `name[1]`, ... are the items of a sequence.

    Raises UsageError if the file cannot be read, an input is missing or unknown, or has another type or rank.
    """
    proto = model.proto if isinstance(model, graph.Model) else model
    arrays = _read_npz(Path(path))
    defaults = {t.name for t in proto.graph.initializer}
    feed: Feed = {}
    for info in proto.graph.input:
        value = _take(arrays, info)
        if value is not None:
            feed[info.name] = value
        elif info.name not in defaults and not info.type.HasField("optional_type"):
            there = ", ".join(arrays) or "nothing"
            raise UsageError(f"{path}: input '{info.name}' {_spelled(info)} is missing; the file has: {there}. Add an array of that name")
    unknown = [name for name in arrays if name.split("[")[0] not in {i.name for i in proto.graph.input}]
    if unknown:
        known = ", ".join(i.name for i in proto.graph.input)
        raise UsageError(f"{path}: the model has no input '{unknown[0]}'; it has: {known}. Leave it out, or rename it")
    for info in proto.graph.input:
        _check_array(path, info, feed.get(info.name))
    return [feed]


def _settled(maker: Maker, attempt: Attempt, sizes: Sizes, regime: Regime, seed: int, found: list[Trial]) -> Trial | Refusal:
    """A feed of about these sizes that runs; where most of its results are NaN, with masks and signs inverted."""
    finite = 0.0

    def answer(tried: Sizes) -> Refusal | None:
        nonlocal finite
        said = attempt(maker.feed(tried, regime, seed))
        if isinstance(said, Refusal):
            return said
        finite = said
        return None

    starts = [*(size.carry(t.sizes, t.tried, sizes) for t in found[:1]), sizes, *(t.sizes for t in found[:1])]
    settled: Sizes | Refusal = Refusal(0, "")
    for start in starts:
        settled = size.settle(start, maker.given, answer)
        if not isinstance(settled, Refusal):
            break
    if isinstance(settled, Refusal):
        return _settled(maker, attempt, sizes, replace(regime, override=False), seed, found) if regime.override else settled
    trial = Trial(maker.feed(settled, regime, seed), settled, regime, sizes)
    return trial if finite >= 0.5 else _flipped(maker, attempt, trial, finite, seed)


def _flipped(maker: Maker, attempt: Attempt, trial: Trial, finite: float, seed: int) -> Trial:
    regime = replace(trial.regime, flip=True)
    feed = maker.feed(trial.sizes, regime, seed)
    said = attempt(feed)
    return trial if isinstance(said, Refusal) or said <= finite else Trial(feed, trial.sizes, regime, trial.tried)


def _check_kinds(model: onnx.ModelProto) -> None:
    exotic = (onnx.TensorProto.INT4, onnx.TensorProto.UINT4, onnx.TensorProto.FLOAT4E2M1, onnx.TensorProto.UNDEFINED)
    for info in model.graph.input:
        tensor = info.type.HasField("tensor_type")
        if not tensor or info.type.tensor_type.elem_type in exotic:
            raise VerificationError(
                f"input '{info.name}' {_spelled(info)}: such values cannot be made up. Give real ones with --inputs FILE.npz"
            )


def _check_ranks(shapes: Mapping[str, Shape | None], defaults: set[str]) -> None:
    for name, shape in shapes.items():
        if shape is None and name not in defaults:
            raise VerificationError(f"input '{name}': its rank is unknown, so no value can be made up. Give one with --inputs FILE.npz")


def _read_npz(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: _as_text(file[name]) for name in file.files}
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file. --inputs takes an .npz file, as numpy.savez writes it") from None
    except (OSError, ValueError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path}: must be an .npz file of plain arrays, as numpy.savez writes it; {error}") from None


def _as_text(array: Array) -> Array:
    return array.astype(object) if array.dtype.kind == "U" else array


def _take(arrays: Mapping[str, Array], info: onnx.ValueInfoProto) -> Any:
    items = sorted((int(m[1]), name) for name in arrays if (m := re.fullmatch(re.escape(info.name) + r"\[(\d+)\]", name)))
    if items:
        return [arrays[name] for _, name in items]
    return arrays.get(info.name)


def _check_array(path: str | Path, info: onnx.ValueInfoProto, value: Any) -> None:
    if not info.type.HasField("tensor_type") or value is None:
        return
    want = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
    shape = shape_of(info)
    if value.dtype != want:
        raise UsageError(f"{path}: input '{info.name}' must be {want}; got {value.dtype}. Convert it with .astype")
    if shape is not None and len(shape) != value.ndim:
        raise UsageError(f"{path}: input '{info.name}' must have {len(shape)} axes {_spelled(info)}; got shape {list(value.shape)}")
    for axis, (dim, got) in enumerate(zip(shape or (), value.shape, strict=True)):
        if isinstance(dim, int) and dim != got:
            raise UsageError(
                f"{path}: input '{info.name}' {_spelled(info)} must have size {dim} on axis {axis}; got shape {list(value.shape)}"
            )


def _spelled(info: onnx.ValueInfoProto) -> str:
    """The declared type as people write it: float[2,seq]."""
    if not info.type.HasField("tensor_type"):
        return f"({str(info.type.WhichOneof('value')).removesuffix('_type')})"
    shape = shape_of(info)
    dims = "" if shape is None else "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"
    return str(onnx.TensorProto.DataType.Name(info.type.tensor_type.elem_type)).lower() + dims
