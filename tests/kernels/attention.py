"""Attention for the tests: what it means, in float64 numpy, and the call of the kernel through ctypes."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from tests.kernels.harness import TYPES, Array, Guarded, Kernels, at_page_end, pointer

UNLIMITED = (2**63 - 1) // 4


class Strides(ctypes.Structure):
    """AttentionStrides of kernel.h."""

    _fields_ = [(name, ctypes.c_int64) for name in ("batch", "head", "seq", "dim")]


class Args(ctypes.Structure):
    """AttentionArgs of kernel.h, field by field."""

    _fields_ = [
        *((n, ctypes.c_int64) for n in ["batch", "q_heads", "kv_heads", "queries", "new_keys", "past_keys", "head_size", "value_size"]),
        *((n, ctypes.c_void_p) for n in ["q", "k", "v", "y"]),
        *((n, Strides) for n in ["q_strides", "k_strides", "v_strides", "y_strides"]),
        *((n, ctypes.c_void_p) for n in ["past_key", "past_value", "present_key", "present_value"]),
        ("mask_kind", ctypes.c_int),
        ("mask", ctypes.c_void_p),
        *((n, ctypes.c_int64) for n in ["mask_batch", "mask_head", "mask_row", "mask_column"]),
        *((n, ctypes.c_float) for n in ["scale", "softcap", "mask_value"]),
        *((n, ctypes.c_int64) for n in ["diagonal", "left", "right"]),
        ("zero_masked_rows", ctypes.c_bool),
        ("sink", ctypes.c_void_p),
    ]


@dataclass
class Case:
    """One call. Arrays are [batch, heads, seq, size] whatever the layout says; a mask has any broadcastable shape."""

    q: Array
    k: Array
    v: Array
    mask: Array | None = None
    past_key: Array | None = None
    past_value: Array | None = None
    layouts: dict[str, str] = field(default_factory=dict)  # of q, k, v, y: BHSD (the default), BSHD, BHDS
    scale: float = 0.125
    softcap: float = 0.0
    mask_value: float = -np.inf
    diagonal: int = 0
    left: int = UNLIMITED
    right: int = UNLIMITED
    zero_masked_rows: bool = False
    sink: Array | None = None  # [heads]


def reference(case: Case) -> Array:
    """The case in float64, as kernel.h writes it."""
    q, k, v = (x.astype(np.float64) for x in (case.q, case.k, case.v))
    if case.past_key is not None and case.past_value is not None:
        k = np.concatenate([case.past_key.astype(np.float64), k], 2)
        v = np.concatenate([case.past_value.astype(np.float64), v], 2)
    group = q.shape[1] // max(k.shape[1], 1)
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    with np.errstate(all="ignore"):
        return _softmax(_scores(case, q, k), case.zero_masked_rows, case.sink) @ v


def _scores(case: Case, q: Array, k: Array) -> Array:
    s = float(np.float32(case.scale)) * (q @ np.swapaxes(k, 2, 3))
    if case.softcap > 0:
        s = case.softcap * np.tanh(s / case.softcap)
    if case.mask is not None:
        s = np.where(case.mask, s, np.float32(case.mask_value)) if case.mask.dtype == bool else s + case.mask.astype(np.float64)
    i, j = np.arange(s.shape[2])[:, None] + case.diagonal, np.arange(s.shape[3])[None]
    return np.where((j < i - case.left) | (j > i + case.right), -np.inf, s)


def _softmax(s: Array, zero: bool, sink: Array | None) -> Array:
    keys = s.shape[3]
    if keys == 0:
        return s
    if sink is not None:
        s = np.concatenate([s, np.broadcast_to(sink.astype(np.float64)[:, None, None], (*s.shape[:3], 1))], 3)
    p = np.exp(s - s.max(3, keepdims=True))
    p = (p / p.sum(3, keepdims=True))[..., :keys]
    return np.where(np.isnan(p), 0.0, p) if zero else p


def _laid_out(x: Array, layout: str) -> tuple[Array, Strides]:
    """The array in memory as `layout` says, at the end of a page, and the strides of [batch, head, seq, dim] in it."""
    order = ["BHSD".index(axis) for axis in layout]
    memory = at_page_end(np.ascontiguousarray(x.transpose(order)))
    steps = [s // x.itemsize for s in memory.strides]
    return memory, Strides(*(steps[order.index(axis)] for axis in range(4)))


def _set_mask(args: Args, case: Case, full: tuple[int, ...]) -> Array | None:
    if case.mask is None:
        return None
    mask = at_page_end(case.mask.astype(np.uint8) if case.mask.dtype == bool else case.mask)
    shape = (1,) * (4 - mask.ndim) + mask.shape
    steps, size = [], 1
    for extent, wanted in zip(shape[::-1], full[::-1], strict=True):
        steps.append(0 if extent == 1 and wanted != 1 else size)
        size *= extent
    args.mask_column, args.mask_row, args.mask_head, args.mask_batch = steps
    args.mask_kind = [np.dtype(x) for x in (np.void, bool, np.float32, np.float16, ml_dtypes.bfloat16)].index(case.mask.dtype)
    args.mask = pointer(mask)
    return mask


def run(kernels: Kernels, case: Case, *, threads: int = 1, wants_present: bool = False) -> tuple[Array, Array | None, Array | None]:
    """(y, present_key, present_value) of the kernel; y as [batch, heads, seq, size]."""
    assert kernels.c.attention_args_size() == ctypes.sizeof(Args)
    args = Args()
    kept: list[Array | None] = []
    batch, q_heads, queries, head_size = case.q.shape
    past = 0 if case.past_key is None else case.past_key.shape[2]
    args.batch, args.q_heads, args.queries, args.head_size = case.q.shape
    args.kv_heads, args.new_keys, args.past_keys, args.value_size = case.k.shape[1], case.k.shape[2], past, case.v.shape[3]
    for name in ("q", "k", "v"):
        memory, strides = _laid_out(getattr(case, name), case.layouts.get(name, "BHSD"))
        kept.append(memory)
        setattr(args, name, pointer(memory))
        setattr(args, f"{name}_strides", strides)
    for name in ("past_key", "past_value"):
        if getattr(case, name) is not None:
            kept.append(at_page_end(getattr(case, name)))
            setattr(args, name, pointer(kept[-1]))
    if case.sink is not None:
        kept.append(at_page_end(case.sink))
        args.sink = pointer(kept[-1])
    kept.append(_set_mask(args, case, (batch, q_heads, queries, past + case.k.shape[2])))
    for name in ("scale", "softcap", "mask_value", "diagonal", "left", "right", "zero_masked_rows"):
        setattr(args, name, getattr(case, name))
    return _call(kernels, case, args, threads, wants_present)


def _call(kernels: Kernels, case: Case, args: Args, threads: int, wants_present: bool) -> tuple[Array, Array | None, Array | None]:
    dtype = case.q.dtype
    kind = next(number for number, other in TYPES.values() if other == dtype)
    batch, heads, keys = case.q.shape[0], case.k.shape[1], args.past_keys + args.new_keys
    order = ["BHSD".index(axis) for axis in case.layouts.get("y", "BHSD")]
    shape = (batch, case.q.shape[1], case.q.shape[2], case.v.shape[3])
    with (
        Guarded(tuple(shape[axis] for axis in order), dtype) as y,
        Guarded((batch, heads, keys, args.head_size), dtype) as present_key,
        Guarded((batch, heads, keys, args.value_size), dtype) as present_value,
    ):
        steps = [s // y.itemsize for s in y.strides]
        args.y_strides = Strides(*(steps[order.index(axis)] for axis in range(4)))
        args.y = pointer(y)
        if wants_present:
            args.present_key, args.present_value = pointer(present_key), pointer(present_value)
        kernels.c.attention(kind, ctypes.byref(args), threads)
    back = y.transpose([order.index(axis) for axis in range(4)])
    return (back, present_key, present_value) if wants_present else (back, None, None)


def half_unit(dtype: Any) -> float:
    """The error of one rounding to `dtype`, relative to the value."""
    return float({np.float32: 2.0**-24, np.float16: 2.0**-11, ml_dtypes.bfloat16: 2.0**-8}[np.dtype(dtype).type])


def random_case(seed: int, shape: dict[str, int], dtype: Any = np.float32, **options: Any) -> Case:
    """Normal q, k, v for shape {B, H, K (key heads), S, T, D, E (value size), P}; what is absent is 1, or H, D, 0."""
    rng = np.random.default_rng(seed)
    size = {"B": 1, "H": 1, "P": 0, **shape}
    size = {"K": size["H"], "E": size["D"], **size}

    def normal(heads: str, seq: str, last: str) -> Array:
        return rng.standard_normal((size["B"], size[heads], size[seq], size[last])).astype(dtype)

    case = Case(normal("H", "S", "D"), normal("K", "T", "D"), normal("K", "T", "E"), **options)
    if size["P"]:
        case.past_key, case.past_value = normal("K", "P", "D"), normal("K", "P", "E")
    return case
