"""Attention by its compiled kernels: what its inputs and attributes become as values, and which kernels start one after another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxfuse.cost.occupancy import ceil_div
from onnxfuse.custom_ops.attention.op import ATTENTION, LAYOUTS
from onnxfuse.op import Attribute
from onnxfuse.triton_kernel import UNLIMITED, Kernel
from tests.compiled.client import Array, At, Interpreter, chosen

MULTIPROCESSORS = 8


@dataclass(frozen=True)
class Operand:
    """[batch, heads, rows, size] in a buffer, and its strides in elements."""

    at: At
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def named(self, name: str) -> dict[str, Any]:
        return {name: self.at, **dict(zip((f"{name}_batch", f"{name}_head", f"{name}_row"), self.strides, strict=False))}


def _laid(name: str, shape: Sequence[int], layout: str, heads: int, width: int) -> Operand:
    if layout == "BSE":
        shape, layout = (shape[0], shape[1], heads, shape[2] // max(heads, 1)), "BSHD"
    strides = [math.prod(shape[axis + 1 :]) for axis in range(4)]
    order = LAYOUTS[layout]
    return Operand(At(name, 0, width), tuple(shape[axis] for axis in order), tuple(strides[axis] for axis in order))


def _operands(shapes: Mapping[str, Sequence[int]], attributes: Mapping[str, Attribute], width: int) -> tuple[Operand, Operand, Operand]:
    q_heads = int(attributes["q_num_heads"])
    kv_heads = int(attributes["kv_num_heads"]) or q_heads
    if not attributes["packed"]:
        q, k, v = (
            _laid(name, shapes[name], str(attributes[f"{name}_layout"]), heads, width)
            for name, heads in (("q", q_heads), ("k", kv_heads), ("v", kv_heads))
        )
        return q, k, v
    batch, rows, row = shapes["q"]
    size = row // (q_heads + 2 * kv_heads)
    strides = (rows * row, size, row, 1)
    starts = (0, q_heads * size, (q_heads + kv_heads) * size)
    q, k, v = (
        Operand(At("q", start, width), (batch, heads, rows, size), strides)
        for start, heads in zip(starts, (q_heads, kv_heads, kv_heads), strict=True)
    )
    return q, k, v


def _mask_strides(shape: Sequence[int] | None) -> dict[str, int]:
    names = ("mask_batch", "mask_head", "mask_row", "mask_column")
    if shape is None:
        return dict.fromkeys(names, 0)
    full = (1,) * (4 - len(shape)) + tuple(shape)
    return {name: 0 if full[axis] == 1 else math.prod(full[axis + 1 :]) for axis, name in enumerate(names)}


class Host:
    """Runs uses of Attention in the interpreter. `started` holds the names of the kernels of the last run.

    specialised: whether kernels with specialised warps are asked for.
    """

    def __init__(self, interpreter: Interpreter, kernels: Sequence[Kernel]) -> None:
        self._interpreter = interpreter
        self._kernels = kernels
        self.started: list[str] = []
        self.specialised = False

    def run(self, given: Mapping[str, Array], own: Mapping[str, Attribute], types: Mapping[str, str], *, is_split: bool = False) -> Any:
        """Outputs by name, for inputs in the arrays' types. is_split: split the keys as the host does for few queries."""
        self.started = []
        attributes = {**ATTENTION.attributes, **own}
        shapes = {name: array.shape for name, array in given.items()}
        dtype, width = types["T"], given["q"].itemsize
        q, k, v = _operands(shapes, attributes, width)
        buffers = dict(given)
        if "past_key" in given:
            k, v = (self._joined(buffers, x, name, dtype) for x, name in ((k, "key"), (v, "value")))
        elif k.strides[3] != 1 and k.shape[3] > 1:
            buffers["past_key"] = np.empty((*k.shape[:2], 0, k.shape[3]), given["k"].dtype)
            k = self._joined(buffers, k, "key", dtype)
        outputs = ATTENTION.infer(shapes, attributes)
        buffers["y"] = np.full([int(d) for d in outputs["y"]], np.nan, given["q"].dtype)
        y = _laid("y", buffers["y"].shape, str(attributes["y_layout"]), q.shape[1], width)
        if buffers["y"].size:
            values = self._values(q, k, v, y, attributes, given)
            variant = {"dtype": dtype, "mask": types["M"] if "mask" in given else "none"}
            (self._split if is_split else self._whole)(values, variant, buffers, q.shape[0])
        names = {"y": "y", "present_key": "present_key", "present_value": "present_value"}
        found = {name: buffers[name] for name in names if name in buffers}
        if "past_key" not in given:  # present is what came, laid out like past
            for name, x in (("present_key", k), ("present_value", v)):
                flat = buffers[x.at.buffer].reshape(-1)[x.at.offset :]
                found[name] = np.lib.stride_tricks.as_strided(flat, x.shape, [s * width for s in x.strides])
        return found

    def _start(self, role: str, variant: Mapping[str, str], values: Mapping[str, Any], buffers: dict[str, Array], grid: Any) -> Kernel:
        kernel = chosen(self._kernels, role, variant, values)
        assert kernel is not None, (role, variant)
        self.started.append(kernel.name)
        blocks = grid(kernel.tile)
        if blocks:
            buffers |= self._interpreter.run(kernel, blocks, values, buffers)
        return kernel

    def _joined(self, buffers: dict[str, Array], fresh: Operand, name: str, dtype: str) -> Operand:
        past = buffers[f"past_{name}"]
        batch, heads, rows, size = fresh.shape
        all_rows = past.shape[2] + rows
        present = np.full((batch, heads, all_rows, size), np.nan, past.dtype)
        buffers[f"present_{name}"] = present
        strides = dict(zip(("fresh_batch", "fresh_head", "fresh_row", "fresh_column"), fresh.strides, strict=True))
        values = {"past": At(f"past_{name}"), "fresh": fresh.at, "present": At(f"present_{name}"), "heads": heads, "size": size}
        values |= {"past_rows": past.shape[2], "fresh_rows": rows, **strides}
        self._start("join", {"dtype": dtype}, values, buffers, lambda tile: ceil_div(all_rows, tile["rows"]) * heads * batch)
        contiguous = (heads * all_rows * size, all_rows * size, size, 1)
        return Operand(At(f"present_{name}", 0, past.itemsize), present.shape, contiguous)

    def _values(
        self, q: Operand, k: Operand, v: Operand, y: Operand, attributes: Mapping[str, Attribute], given: Mapping[str, Array]
    ) -> dict[str, Any]:
        queries, keys, size = q.shape[2], k.shape[2], q.shape[3]
        scale, left, right = (float(attributes[name]) for name in ("scale", "window_left", "window_right"))
        causal = int(attributes["causal"])
        mask = given.get("mask")
        return {
            **q.named("q"),
            **k.named("k"),
            **v.named("v"),
            **y.named("y"),
            "k_column": k.strides[3],
            "mask": None if mask is None else At("mask", 0, mask.itemsize),
            **_mask_strides(None if mask is None else mask.shape),
            "sink": At("sink", 0, given["sink"].itemsize) if "sink" in given else None,
            "has_sink": int("sink" in given),
            "scale": (1 / math.sqrt(size) if size else math.inf) if math.isinf(scale) else scale,
            "softcap": float(attributes["softcap"]),
            "mask_value": float(attributes["mask_value"]),
            "heads": q.shape[1],
            "group": q.shape[1] // k.shape[1],
            "queries": queries,
            "keys": keys,
            "head_size": size,
            "value_size": v.shape[3],
            "diagonal": keys - queries if causal == 2 else 0,
            "left": UNLIMITED if left < 0 else int(left),
            "right": 0 if causal else UNLIMITED if right < 0 else int(right),
            "zero_masked_rows": int(attributes["zero_masked_rows"]),
            "specialised": int(self.specialised),
        }

    def _whole(self, values: dict[str, Any], variant: Mapping[str, str], buffers: dict[str, Array], batch: int) -> None:
        def grid(tile: Mapping[str, int]) -> int:
            tiles = ceil_div(values["queries"], tile["q"]) * ceil_div(values["value_size"], tile["v"])
            return int(tiles * values["heads"] * batch)

        self._start("tile", variant, values, buffers, grid)

    def _split(self, values: dict[str, Any], variant: Mapping[str, str], buffers: dict[str, Array], batch: int) -> None:
        kernel = chosen(self._kernels, "split", variant, values)
        assert kernel is not None
        members, kv_heads = values["group"] * values["queries"], values["heads"] // values["group"]
        blocks = ceil_div(members, kernel.tile["q"]) * kv_heads * batch
        step, keys = kernel.tile["k"], values["keys"]
        splits = max(1, min(2 * MULTIPROCESSORS // blocks, 128, ceil_div(keys, 2 * step)))
        values["split_keys"] = ceil_div(ceil_div(keys, splits), step) * step
        values["splits"] = ceil_div(keys, values["split_keys"])
        rows = batch * values["heads"] * values["queries"]
        buffers["partial"] = np.full((rows, values["splits"], values["value_size"]), np.nan, np.float32)
        buffers["stats"] = np.full((rows, values["splits"], 2), np.nan, np.float32)
        values |= {"partial": At("partial"), "stats": At("stats")}
        self._start("split", variant, values, buffers, lambda _: blocks * values["splits"])
        self._start("combine", {"dtype": variant["dtype"]}, values, buffers, lambda _: rows)
