"""Would running a model fit in memory? An estimate from sizes alone; nothing is loaded."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from onnxfuse.inputs import sizes as size
from onnxfuse.inputs.sketch import sketch

COPIES = 2.5  # memory for a session over the size of its weights: the file, the loaded tensors, packed ones
ALIVE = 4  # of the largest intermediate value, how many are taken to live at once


def too_large(models: tuple[onnx.ModelProto, ...], shapes: Mapping[str, int]) -> str | None:
    """Return why the largest of several models, run one at a time, does not fit in memory; None if it does."""
    free = free_memory()
    if free is None:
        return None
    need = max(int(COPIES * weight_bytes(m)) for m in models)
    if need <= free:  # working out shapes takes longer than the rest
        need += ALIVE * _largest_value(models[0], shapes)
    return None if need <= free else f"running it needs about {need / 2**30:.1f} GB, {free / 2**30:.1f} GB are free"


def weight_bytes(model: onnx.ModelProto) -> int:
    """Bytes of all initializers of the main graph, those in external files too."""
    return sum(math.prod(t.dims) * _width(t.data_type) for t in model.graph.initializer)


def free_memory() -> int | None:
    """Bytes that can be had without swapping, None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _largest_value(model: onnx.ModelProto, shapes: Mapping[str, int]) -> int:
    """Bytes of the largest value whose shape is known for the sizes that we would feed."""
    known = sketch(model)
    sizes = size.assignments(known, shapes)[0]
    largest = 0
    for name, shape in known.shapes.items():
        numbers = [size.evaluate(dim, sizes) for dim in shape]
        if None not in numbers and name not in known.tensors:
            largest = max(largest, math.prod(n or 0 for n in numbers) * _width(known.types.get(name, TensorProto.FLOAT)))
    return largest


def _width(dtype: int) -> int:
    try:
        return int(helper.tensor_dtype_to_np_dtype(dtype).itemsize)
    except KeyError:
        return 4
