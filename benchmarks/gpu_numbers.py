"""Every kind of compiled kernel against float64 on a GPU: ragged sizes, padded heads, masks, windows, sinks, split keys."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from gpu_launch import Gpu
from gpu_ops import Use, attention, gated_linear, linear

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# As the operators' tolerances, relative to max(1, |y|).
ALLOWED = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 3e-6}
HEADS = ((32, 32), (40, 40), (64, 64), (80, 128), (128, 128), (256, 256), (37, 131))


def check_all(gpu: Gpu, *, is_small: bool) -> list[dict[str, Any]]:
    """What each case gave. is_small: few and tiny ones."""
    torch.manual_seed(7)
    torch.backends.cuda.matmul.allow_tf32 = False
    found = []
    for name, use in uses(is_small=is_small):
        found.append(_judged(gpu, name, use.q.dtype, lambda use=use: attention(gpu, use), lambda use=use: (use.y, use.exact())))
    for name, x, weight, bias, residual, activation in products(is_small=is_small):
        y = torch.full((x.shape[0], weight.shape[1]), math.nan, dtype=x.dtype, device="cuda")
        made = x.double() @ weight.double() + bias.double() + residual.double()
        want = torch.nn.functional.gelu(made) if activation == "gelu" else torch.nn.functional.silu(made)
        given = (x, weight, bias, residual, activation, y)
        found.append(_judged(gpu, name, x.dtype, lambda given=given: linear(gpu, *given), lambda y=y, want=want: (y, want)))
    for name, x, weight, bias in gates(is_small=is_small):
        y = torch.full((x.shape[0], bias.shape[0] // 2), math.nan, dtype=x.dtype, device="cuda")
        gate, up = (x.double() @ weight.double() + bias.double()).chunk(2, -1)
        want = torch.nn.functional.silu(gate) * up
        run = lambda x=x, weight=weight, bias=bias, y=y: gated_linear(gpu, x, weight, bias, "silu", y)  # noqa: E731
        found.append(_judged(gpu, name, x.dtype, run, lambda y=y, want=want: (y, want)))
    return found


def _judged(gpu: Gpu, name: str, dtype: torch.dtype, run: Any, results: Any) -> dict[str, Any]:
    gpu.started.clear()
    try:
        run()
    except AssertionError as lacking:  # a kernel that was not built in time is a finding, and the others go on
        return {"case": name, "kernels": [str(lacking)], "error": math.inf, "allowed": ALLOWED[dtype], "is_right": False}
    torch.cuda.synchronize()
    got, want = results()
    same = torch.isnan(got) == torch.isnan(want)
    error = ((got.double() - want).abs() / want.abs().clamp(min=1.0)).nan_to_num(0.0).max().item() if got.numel() else 0.0
    is_right = bool(same.all()) and error <= ALLOWED[dtype]
    return {"case": name, "kernels": list(gpu.started), "error": error, "allowed": ALLOWED[dtype], "is_right": is_right}


def uses(*, is_small: bool) -> Iterator[tuple[str, Use]]:
    """Attention in all its forms."""
    batch, q_heads, kv_heads, queries, keys = (1, 2, 1, 19, 48) if is_small else (2, 4, 2, 203, 336)
    for dtype in DTYPES:
        for size, value in HEADS[1:4] if is_small else HEADS:
            for form in FORMS:
                few = 2 if form == "split" else queries
                q, k, v = _random(dtype, (batch, q_heads, few, size), (batch, kv_heads, keys, size), (batch, kv_heads, keys, value))
                yield f"attention {dtype} {size}/{value} {form}", FORMS[form](q, k, v)


def _random(dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    """Normal numbers, laid out [batch, seq, heads, size]."""
    return [torch.randn(b, s, h, d, device="cuda").to(dtype).transpose(1, 2) for b, h, s, d in shapes]


def _bool_rows(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """A mask whose first row sees nothing."""
    mask = torch.rand(q.shape[0], q.shape[1], q.shape[2], k.shape[2], device="cuda") < 0.7
    mask[:, :, 0] = False
    return mask


def _added(q: torch.Tensor, k: torch.Tensor, dtype: torch.dtype, *, rows: bool) -> torch.Tensor:
    return torch.randn(q.shape[0], 1, q.shape[2] if rows else 1, k.shape[2], device="cuda").to(dtype)


FORMS: dict[str, Any] = {
    "whole": lambda q, k, v: Use(q, k, v),
    "causal": lambda q, k, v: Use(q, k, v, is_causal=True),
    "bool rows": lambda q, k, v: Use(q, k, v, mask=_bool_rows(q, k)),
    "float keys": lambda q, k, v: Use(q, k, v, mask=_added(q, k, torch.float32, rows=False)),
    "own rows causal": lambda q, k, v: Use(q, k, v, mask=_added(q, k, q.dtype, rows=True), is_causal=True),
    "bool rows, window": lambda q, k, v: Use(q, k, v, mask=_bool_rows(q, k), window_left=90, softcap=4.0),
    "general": lambda q, k, v: Use(
        q, k, v, is_causal=True, window_left=70, softcap=5.0, sink=torch.randn(q.shape[1], device="cuda").to(q.dtype)
    ),
    "split": lambda q, k, v: Use(q, k, v, is_causal=True, mask=_added(q, k, torch.float32, rows=True), splits=True),
}


def products(*, is_small: bool) -> Iterator[tuple[Any, ...]]:
    """Linear with both orders of the weight, few rows and many, whole and ragged steps, few blocks of much depth."""
    small = ((3, 64, 72), (70, 40, 136), (33, 37, 70))
    large = ((5, 512, 264), (9, 4096, 128), (70, 2048, 128), (300, 1024, 520), (300, 200, 136), (77, 37, 70))
    for dtype in DTYPES:
        for rows, depth, columns in small if is_small else large:
            for is_transposed in (False, True):
                weight = torch.randn(columns, depth, device="cuda").to(dtype) / depth**0.5
                weight = weight.t() if is_transposed else weight.t().contiguous()
                x, residual = (torch.randn(rows, n, device="cuda").to(dtype) for n in (depth, columns))
                bias = torch.randn(columns, device="cuda").to(dtype)
                name = f"linear {dtype} {rows}x{depth}x{columns}{' transposed' if is_transposed else ''}"
                yield name, x, weight, bias, residual, "gelu" if rows > 100 else "silu"


def gates(*, is_small: bool) -> Iterator[tuple[Any, ...]]:
    """GatedLinear likewise."""
    for dtype in DTYPES:
        for rows, depth, columns in ((3, 64, 72), (33, 37, 35)) if is_small else ((5, 512, 264), (300, 1024, 520), (77, 37, 35)):
            for is_transposed in (False, True):
                weight = torch.randn(2 * columns, depth, device="cuda").to(dtype) / depth**0.5
                weight = weight.t() if is_transposed else weight.t().contiguous()
                x, bias = torch.randn(rows, depth, device="cuda").to(dtype), torch.randn(2 * columns, device="cuda").to(dtype)
                yield f"gated linear {dtype} {rows}x{depth}x{columns}{' transposed' if is_transposed else ''}", x, weight, bias
