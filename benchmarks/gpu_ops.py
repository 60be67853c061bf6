"""Operators by their compiled kernels, on tensors of torch, and what they must give, in float64."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from gpu_launch import TYPES, Gpu, Values, ceil_div

UNLIMITED = 1 << 29
FEW_ROWS, MOST_SPLITS = 64, 128
MOST_DEPTH_SPLITS, LEAST_STEPS = 32, 4
# As the attribute's choices in custom_ops/linear/op.cc.
ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 4, "gelu_tanh": 5, "silu": 6}
GATES = {"silu": 0, "gelu": 1}  # likewise, of gated_linear
Launch = Callable[[], None]


@dataclass(frozen=True)
class Use:
    """A use of Attention: tensors are [batch, heads, seq, size] whatever their strides; the mask broadcasts."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    mask: torch.Tensor | None = None
    sink: torch.Tensor | None = None
    is_causal: bool = False  # aligned at the bottom right
    window_left: int = -1
    softcap: float = 0.0
    splits: bool = False
    y: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        shape = (self.q.shape[0], self.q.shape[2], self.q.shape[1], self.v.shape[3])  # laid out as models want it
        object.__setattr__(self, "y", torch.full(shape, math.nan, dtype=self.q.dtype, device="cuda").transpose(1, 2))

    def values(self) -> Values:
        queries, keys = self.q.shape[2], self.k.shape[2]
        found: Values = {"mask": self.mask, "sink": self.sink, "has_sink": int(self.sink is not None)}
        for name, x in (("q", self.q), ("k", self.k), ("v", self.v), ("y", self.y)):
            found |= {name: x, f"{name}_batch": x.stride(0), f"{name}_head": x.stride(1), f"{name}_row": x.stride(2)}
        shape = (self.q.shape[0], self.q.shape[1], queries, keys)
        strides = (0, 0, 0, 0) if self.mask is None else self.mask.expand(shape).stride()
        return found | {
            **dict(zip(("mask_batch", "mask_head", "mask_row", "mask_column"), strides, strict=True)),
            "k_column": self.k.stride(3),
            "scale": self.q.shape[3] ** -0.5,
            "softcap": self.softcap,
            "mask_value": -math.inf,
            "heads": self.q.shape[1],
            "group": self.q.shape[1] // self.k.shape[1],
            "queries": queries,
            "keys": keys,
            "head_size": self.q.shape[3],
            "value_size": self.v.shape[3],
            "diagonal": keys - queries if self.is_causal else 0,
            "left": UNLIMITED if self.window_left < 0 else self.window_left,
            "right": 0 if self.is_causal else UNLIMITED,
            "zero_masked_rows": 0,
            "specialised": int(os.environ.get("ONNXFUSE_SPECIALISED") == "1"),
        }

    def exact(self) -> torch.Tensor:
        """What the operator's body gives, in float64."""
        group = self.q.shape[1] // self.k.shape[1]
        q, k, v = self.q.double(), self.k.double().repeat_interleave(group, 1), self.v.double().repeat_interleave(group, 1)
        s = q @ k.transpose(2, 3) * self.q.shape[3] ** -0.5
        if self.softcap:
            s = self.softcap * torch.tanh(s / self.softcap)
        if self.mask is not None:
            s = torch.where(self.mask, s, -math.inf) if self.mask.dtype == torch.bool else s + self.mask.double()
        beyond = torch.arange(k.shape[2], device="cuda") - torch.arange(q.shape[2], device="cuda")[:, None] - (k.shape[2] - q.shape[2])
        if self.is_causal:
            s = s.masked_fill(beyond > 0, -math.inf)
        if self.window_left >= 0:
            s = s.masked_fill(beyond < -self.window_left, -math.inf)
        if self.sink is None:
            return s.softmax(-1) @ v
        sinks = self.sink.double()[None, :, None, None].expand(*s.shape[:3], 1)
        return torch.cat([s, sinks], -1).softmax(-1)[..., :-1] @ v


def attention(gpu: Gpu, use: Use) -> list[Launch]:
    """Runs it into `use.y`; gives back what runs it again."""
    values = use.values()
    variant = {"dtype": TYPES[use.q.dtype], "mask": "none" if use.mask is None else TYPES[use.mask.dtype]}
    split = gpu.find("split", "Attention", variant, values) if use.splits else None
    if split is not None and values["group"] * values["queries"] <= FEW_ROWS:
        return _split(gpu, use, values, variant, split)
    tile = gpu.find("tile", "Attention", variant, values)
    assert tile is not None, f"no kernel for {variant}"
    size = tile["tile"]
    tiles = ceil_div(values["queries"], size["q"]) * ceil_div(values["value_size"], size["v"])
    return [gpu.start(tile, values, tiles * values["heads"] * use.q.shape[0])]


def _split(gpu: Gpu, use: Use, values: Values, variant: dict[str, str], split: Any) -> list[Launch]:
    step, keys, batch = split["tile"]["k"], values["keys"], use.q.shape[0]
    blocks = ceil_div(values["group"] * values["queries"], split["tile"]["q"]) * use.k.shape[1] * batch
    splits = max(1, min(2 * gpu.multiprocessors // blocks, MOST_SPLITS, ceil_div(keys, 2 * step)))
    values["split_keys"] = ceil_div(ceil_div(keys, splits), step) * step
    values["splits"] = ceil_div(keys, values["split_keys"])
    rows = batch * values["heads"] * values["queries"]
    values["partial"] = torch.full((rows, values["splits"], values["value_size"]), math.nan, device="cuda")
    values["stats"] = torch.full((rows, values["splits"], 2), math.nan, device="cuda")
    combine = gpu.find("combine", "Attention", {"dtype": variant["dtype"]}, values)
    assert combine is not None, f"no kernel to combine {variant}"
    return [gpu.start(split, values, blocks * values["splits"]), gpu.start(combine, values, rows)]


def linear(
    gpu: Gpu,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: str,
    y: torch.Tensor,
) -> list[Launch]:
    """y = f(x weight + bias + residual); the weight is [depth, columns], with any strides. Gives back what runs it again."""
    values: Values = {
        **{"x": x, "weight": weight, "bias": bias, "residual": residual, "y": y, "rows": x.shape[0], "columns": weight.shape[1]},
        **{"depth": x.shape[1], "weight_depth": weight.stride(0), "weight_column": weight.stride(1), "alpha": 1.0},
        **{"activation": ACTIVATIONS[activation], "activation_alpha": 1.0, "activation_beta": 0.0, "residual_last": 0},
        **{"has_bias": int(bias is not None), "has_residual": int(residual is not None)},
    }
    variant, rows, columns = {"dtype": TYPES[x.dtype]}, x.shape[0], weight.shape[1]
    if launches := _split_depth(gpu, x, values, variant):
        return launches
    kernel = gpu.find("tile", "Linear", variant, values)
    assert kernel is not None, f"no kernel for Linear of {x.dtype}"
    tile = kernel["tile"]
    return [gpu.start(kernel, values, ceil_div(rows, tile["m"]) * ceil_div(columns, tile["n"]))]


def _split_depth(gpu: Gpu, x: torch.Tensor, values: Values, variant: dict[str, str]) -> list[Launch]:
    """Nothing where there are blocks enough, as custom_ops/linear/kernel_triton.cc decides."""
    split, combine = gpu.find("split", "Linear", variant, values), gpu.find("combine", "Linear", variant, values)
    if split is None or combine is None:
        return []
    tile, rows, columns, depth = split["tile"], values["rows"], values["columns"], values["depth"]
    blocks = ceil_div(rows, tile["m"]) * ceil_div(columns, tile["n"])
    by_memory = depth * x.element_size() // (2 * 4 * rows)
    parts = min(2 * gpu.multiprocessors // blocks, MOST_DEPTH_SPLITS, depth // (LEAST_STEPS * tile["k"]), by_memory)
    if parts < 2:
        return []
    values["split_depth"] = ceil_div(ceil_div(depth, parts), tile["k"]) * tile["k"]
    values["splits"] = ceil_div(depth, values["split_depth"])
    values["partial"] = torch.full((values["splits"], rows, columns), math.nan, device="cuda")
    first = gpu.start(split, values, blocks * values["splits"])
    return [first, gpu.start(combine, values, ceil_div(rows * columns, combine["tile"]["size"]))]


def gated_linear(
    gpu: Gpu, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str, y: torch.Tensor
) -> list[Launch]:
    """y = f(x wg + bg) (x wu + bu); weight [depth, 2 columns], with any strides, and bias hold the gate and then the other half."""
    columns = y.shape[1]
    values: Values = {
        **{"x": x, "weight": weight, "bias": bias, "y": y, "rows": x.shape[0], "columns": columns, "depth": x.shape[1]},
        **{"weight_depth": weight.stride(0), "weight_column": weight.stride(1), "gate_column": 0, "up_column": columns},
        **{"activation": GATES[activation], "activation_alpha": 1.0, "has_bias": int(bias is not None)},
    }
    kernel = gpu.find("tile", "GatedLinear", {"dtype": TYPES[x.dtype]}, values)
    assert kernel is not None, f"no kernel for GatedLinear of {x.dtype}"
    tile = kernel["tile"]
    return [gpu.start(kernel, values, ceil_div(x.shape[0], tile["m"]) * ceil_div(columns, tile["n"]))]
