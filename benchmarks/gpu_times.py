"""Times of compiled kernels on a GPU, beside what torch has for the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from gpu_launch import Gpu
from gpu_ops import Launch, Use, attention, gated_linear, linear

WARM, RUNS = 5, 25
SHAPES = ((4, 16, 2048, 64), (2, 16, 4096, 64), (1, 32, 2048, 128), (1, 16, 8192, 128))  # batch, heads, seq, size
PRODUCTS = (  # rows, depth, columns: large ones, those of GPT-2 small and LLaMA-7B, and of their last token
    *((4096, 4096, 4096), (2048, 768, 3072), (2048, 3072, 768), (1024, 768, 768), (2048, 4096, 4096), (2048, 11008, 4096)),
    *((16, 4096, 4096), (1, 4096, 4096), (1, 11008, 4096), (1, 768, 3072), (8, 3072, 768)),
)
GATED = ((2048, 4096, 11008), (16, 4096, 11008), (1, 4096, 11008))  # of y
EPILOGUE = "cublaslt with bias and gelu"
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
    for row in (*_attentions(gpu, peak), *_decoding(gpu, copy), *_linears(gpu, peak), *_gates(gpu, peak)):
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
        ours = _again(launches)
        case = f"attention float16, 1 query {batch}x{heads}/8x{seq}x{size}"
        yield _row(case, ours, _torch_attention(use), (k.nbytes + v.nbytes) / (ours * 1e-6) / copy)


def _linears(gpu: Gpu, peak: float) -> Iterator[dict[str, Any]]:
    for (rows, depth, columns), is_transposed in itertools.product(PRODUCTS, (False, True)):
        x = torch.randn(rows, depth, device="cuda", dtype=torch.float16)
        weight = torch.randn(depth, columns, device="cuda", dtype=torch.float16) / depth**0.5
        weight = weight.t().contiguous().t() if is_transposed else weight
        bias = torch.randn(columns, device="cuda", dtype=torch.float16)
        y = torch.empty(rows, columns, device="cuda", dtype=torch.float16)
        ours = _again(linear(gpu, x, weight, bias, None, "gelu_tanh", y))
        operands = bias, x, weight
        others = {
            "cublas and gelu": microseconds(lambda o=operands: torch.nn.functional.gelu(torch.addmm(*o), approximate="tanh")),
            EPILOGUE: microseconds(lambda o=operands: torch._addmm_activation(*o, use_gelu=True)),  # noqa: SLF001  (cuBLASLt's own)
        }
        case = f"linear float16 gelu {rows}x{depth}x{columns}{' transposed' if is_transposed else ''}"
        sizes = {"dtype": "float16", "rows": rows, "columns": columns, "depth": depth, "trans_weight": int(is_transposed)}
        measured = {**sizes, "compiled_us": ours, "cublaslt_us": others[EPILOGUE]}
        yield _row(case, ours, others, 2 * rows * depth * columns / (ours * 1e-6) / peak) | {"product": measured}


def _gates(gpu: Gpu, peak: float) -> Iterator[dict[str, Any]]:
    for rows, depth, columns in GATED:
        x = torch.randn(rows, depth, device="cuda", dtype=torch.float16)
        weight = torch.randn(depth, 2 * columns, device="cuda", dtype=torch.float16) / depth**0.5
        y = torch.empty(rows, columns, device="cuda", dtype=torch.float16)
        ours = _again(gated_linear(gpu, x, weight, None, "silu", y))
        other = microseconds(lambda x=x, weight=weight: _gated(x @ weight))
        case = f"gated linear float16 silu {rows}x{depth}x{columns}"
        yield _row(case, ours, {"cublas, silu, product": other}, 4 * rows * depth * columns / (ours * 1e-6) / peak)


def _gated(both: torch.Tensor) -> torch.Tensor:
    gate, up = both.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def _again(launches: list[Launch]) -> float:
    return microseconds(lambda: [launch() for launch in launches])


def product_times(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the library reads to choose between compiled kernels and cuBLASLt (custom_ops/_runtime/cuda/measured.h)."""
    return {"schema": 1, "device": torch.cuda.get_device_name(0), "times": [row["product"] for row in rows if "product" in row]}
