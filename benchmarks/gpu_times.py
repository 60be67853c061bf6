"""Times of compiled kernels on a GPU, beside what torch has for the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from gpu_launch import Gpu
from gpu_ops import Use, attention, linear

WARM, RUNS = 5, 25
SHAPES = ((4, 16, 2048, 64), (2, 16, 4096, 64), (1, 32, 2048, 128), (1, 16, 8192, 128))  # batch, heads, seq, size
PRODUCTS = ((4096, 4096, 4096), (2048, 768, 3072), (2048, 3072, 768), (16, 4096, 4096))  # rows, depth, columns
DECODED = ((1, 32, 4096, 128), (8, 32, 4096, 128))  # one query, 8 heads of keys


def microseconds(run: Callable[[], object]) -> float:
    """The median time on the GPU, with everything warm."""
    for _ in range(WARM):
        run()
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(RUNS)]
    for begin, end in marks:
        begin.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return 1000 * median(begin.elapsed_time(end) for begin, end in marks)


def measure_all(gpu: Gpu) -> list[dict[str, Any]]:
    """One row a case: ours and the best of the others in microseconds, how much faster ours is, the part of a plain product's rate."""
    torch.manual_seed(7)
    peak = _product_rate()
    copy = _copy_rate()
    print(f"   a product of 8192: {peak / 1e12:.0f} TFLOP/s; a copy of 256 MB: {copy / 1e9:.0f} GB/s", flush=True)
    found = []
    for row in (*_attentions(gpu, peak), *_decoding(gpu, copy), *_linears(gpu, peak)):
        print(f"   {row['case']}: {row['ours']} us, {row['other']}: x{row['ratio']}, {row['peak']} of peak", flush=True)
        found.append(row)
    return found


def _product_rate() -> float:
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.float16) for _ in range(2))
    return 2 * 8192**3 / (microseconds(lambda: a @ b) * 1e-6)


def _copy_rate() -> float:
    a = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() / (microseconds(lambda: b.copy_(a)) * 1e-6)


def _row(case: str, ours: float, others: dict[str, float], part: float) -> dict[str, Any]:
    best = min(others, key=lambda name: others[name], default="")
    other = f"{others[best]:.1f} us {best}" if best else "none ran"
    ratio = f"{others[best] / ours:.2f}" if best else ""
    return {"case": case, "ours": f"{ours:.1f}", "other": other, "ratio": ratio, "peak": f"{part:.0%}", "others": others}


def _backends() -> Iterator[tuple[str, Any]]:
    backends = torch.nn.attention.SDPBackend
    yield from (("flash", backends.FLASH_ATTENTION), ("cudnn", backends.CUDNN_ATTENTION), ("efficient", backends.EFFICIENT_ATTENTION))


def _torch_attention(use: Use) -> dict[str, float]:
    """Times of every backend of torch that takes it."""
    found = {}
    arguments = {"is_causal": use.is_causal, "attn_mask": use.mask, "enable_gqa": use.q.shape[1] != use.k.shape[1]}
    for name, backend in _backends():
        try:
            with torch.nn.attention.sdpa_kernel(backend):
                found[name] = microseconds(lambda: torch.nn.functional.scaled_dot_product_attention(use.q, use.k, use.v, **arguments))
        except RuntimeError:
            continue
    return found


def _attentions(gpu: Gpu, peak: float) -> Iterator[dict[str, Any]]:
    for batch, heads, seq, size in SHAPES:
        for dtype in (torch.float16, torch.bfloat16):
            q, k, v = (torch.randn(batch, seq, heads, size, device="cuda").to(dtype).transpose(1, 2) for _ in range(3))
            mask = torch.randn(batch, 1, seq, seq, device="cuda").to(dtype) if dtype == torch.float16 else None
            kinds = {"whole": Use(q, k, v), "causal": Use(q, k, v, is_causal=True)}
            if mask is not None and seq <= 4096:
                kinds["masked"] = Use(q, k, v, mask=mask)
            for kind, use in kinds.items():
                (again,) = attention(gpu, use)
                ours = microseconds(again)
                flops = 4 * batch * heads * seq * seq * size * (0.5 if use.is_causal else 1)
                case = f"attention {str(dtype).removeprefix('torch.')} {batch}x{heads}x{seq}x{size} {kind}"
                yield _row(case, ours, _torch_attention(use), flops / (ours * 1e-6) / peak)


def _decoding(gpu: Gpu, copy: float) -> Iterator[dict[str, Any]]:
    """One query against many keys: reading them is all there is to do."""
    for batch, heads, seq, size in DECODED:
        q, k, v = (torch.randn(batch, h, s, size, device="cuda", dtype=torch.float16) for h, s in ((heads, 1), (8, seq), (8, seq)))
        use = Use(q, k, v, splits=True)
        launches = attention(gpu, use)
        ours = microseconds(lambda launches=launches: [launch() for launch in launches])
        case = f"attention float16, 1 query {batch}x{heads}/8x{seq}x{size}"
        yield _row(case, ours, _torch_attention(use), (k.nbytes + v.nbytes) / (ours * 1e-6) / copy)


def _linears(gpu: Gpu, peak: float) -> Iterator[dict[str, Any]]:
    for rows, depth, columns in PRODUCTS:
        x = torch.randn(rows, depth, device="cuda", dtype=torch.float16)
        weight = torch.randn(depth, columns, device="cuda", dtype=torch.float16) / depth**0.5
        bias = torch.randn(columns, device="cuda", dtype=torch.float16)
        y = torch.empty(rows, columns, device="cuda", dtype=torch.float16)
        ours = microseconds(linear(gpu, x, weight, bias, None, "gelu", y))
        other = microseconds(lambda x=x, weight=weight, bias=bias: torch.nn.functional.gelu(torch.addmm(bias, x, weight)))
        case = f"linear float16 gelu {rows}x{depth}x{columns}"
        yield _row(case, ours, {"cublas and gelu": other}, 2 * rows * depth * columns / (ours * 1e-6) / peak)
