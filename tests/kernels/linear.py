"""Linear for the tests: what it means, in float64 numpy, and the call of the kernel through ctypes."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.kernels.harness import TYPES, Array, Guarded, Kernels, at_page_end, pointer

ERF = np.vectorize(math.erf, otypes=[np.float64])
ACTIVATIONS = ["none", "relu", "leaky_relu", "clip", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "hard_swish", "squared_relu",
               "hard_sigmoid"]  # fmt: skip  # in the order of kernel.h


class Args(ctypes.Structure):
    """LinearArgs of kernel.h, field by field."""

    _fields_ = [
        *((n, ctypes.c_int64) for n in ["rows", "depth", "cols"]),
        *((n, ctypes.c_void_p) for n in ["x", "weight", "bias", "residual", "y"]),
        *((n, ctypes.c_bool) for n in ["is_transposed", "is_residual_last"]),
        ("alpha", ctypes.c_float),
        ("activation", ctypes.c_int),
        *((n, ctypes.c_float) for n in ["a", "b"]),
        ("unrounded", ctypes.c_void_p),
    ]


@dataclass
class Case:
    """One call; weight is [depth, cols] whatever is_transposed says."""

    x: Array
    weight: Array
    bias: Array | None = None
    residual: Array | None = None
    is_transposed: bool = False
    is_residual_last: bool = False
    alpha: float = 1.0
    activation: str = "none"
    a: float = 0.0
    b: float = 0.0


def reference(case: Case) -> Array:
    """The case in float64, as kernel.h writes it."""
    with np.errstate(all="ignore"):
        y = float(np.float32(case.alpha)) * (case.x.astype(np.float64) @ case.weight.astype(np.float64))
        y = y if case.bias is None else y + case.bias.astype(np.float64)
        residual = 0.0 if case.residual is None else case.residual.astype(np.float64)
        if case.is_residual_last:
            return _activated(y, case) + residual
        return _activated(y + residual, case)


def _activated(v: Array, case: Case) -> Array:
    a, b = float(np.float32(case.a)), float(np.float32(case.b))
    table = {
        "none": lambda: v,
        "relu": lambda: np.maximum(v, 0),
        "leaky_relu": lambda: np.where(v < 0, a * v, v),
        "clip": lambda: np.minimum(np.maximum(v, a), b),
        "gelu": lambda: v / 2 * (1 + ERF(v / math.sqrt(2))),
        "gelu_tanh": lambda: v / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
        "silu": lambda: v / (1 + np.exp(-a * v)),
        "sigmoid": lambda: 1 / (1 + np.exp(-v)),
        "tanh": lambda: np.tanh(v),
        "hard_swish": lambda: v * np.clip(v / 6 + 0.5, 0, 1),
        "squared_relu": lambda: np.maximum(v, 0) ** 2,
        "hard_sigmoid": lambda: np.clip(a * v + b, 0, 1),
    }
    return np.asarray(table[case.activation]())


def run(kernels: Kernels, case: Case, *, threads: int = 1, over_residual: bool = False) -> Array:
    """y of the kernel; over_residual: written over the residual, as the runtime may have it."""
    assert kernels.c.linear_args_size() == ctypes.sizeof(Args)
    laid = case.weight.T if case.is_transposed else case.weight
    kept = {"x": case.x, "weight": np.ascontiguousarray(laid), "bias": case.bias, "residual": case.residual}
    memory = {name: None if array is None else at_page_end(array) for name, array in kept.items()}
    args = Args(rows=case.x.shape[0], depth=case.x.shape[1], cols=case.weight.shape[1])
    for name, array in memory.items():
        setattr(args, name, pointer(array))
    for name in ("is_transposed", "is_residual_last", "alpha", "a", "b"):
        setattr(args, name, getattr(case, name))
    args.activation = ACTIVATIONS.index(case.activation)
    kind = next(number for number, dtype in TYPES.values() if dtype == case.x.dtype)
    with Guarded((args.rows, args.cols), case.x.dtype) as y:
        if over_residual and case.residual is not None:
            y[...] = case.residual
            args.residual = pointer(y)
        args.y = pointer(y)
        kernels.c.linear(kind, ctypes.byref(args), threads)
    return y


def random_case(seed: int, size: tuple[int, int, int], dtype: Any, *given: str, **options: Any) -> Case:
    """Normal x [rows, depth], weights such that results are about 1, and what of bias and residual is given."""
    rng = np.random.default_rng(seed)
    rows, depth, cols = size
    x, weight = rng.standard_normal((rows, depth)), rng.standard_normal((depth, cols)) / max(1, depth) ** 0.5
    shapes = {"bias": (cols,), "residual": (rows, cols)}
    added = {name: rng.standard_normal(shapes[name]).astype(dtype) for name in given}
    return Case(x.astype(dtype), weight.astype(dtype), **added, **options)
