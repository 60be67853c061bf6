"""Random kernels."""

from __future__ import annotations

import random

from onnxfuse.cost.scalar import SCALARS
from onnxfuse.cost.work import Compiled, Gemm, Kind, Work, vector_of

KINDS: tuple[Kind, ...] = ("pointwise", "reduction", "matmul", "attention", "layout", "other")
TYPES = ("float", "float16", "bfloat16", "double", "int8", "bool", "float8e4m3fn", "int64")
OPS = (*SCALARS, "Unknown", "Pow:2", "Pow:0.5", "Transpose:last", "Conv:depthwise")


def random_work(rng: random.Random) -> Work:
    """Any kernel that the counters might make, and some that they would not."""
    kind, dtype = rng.choice(KINDS), rng.choice(TYPES)
    elements = int(10 ** rng.uniform(0, 8))
    parts = tuple((rng.choice(OPS), int(elements * rng.choice((0, 0.5, 1, 3)))) for _ in range(rng.randrange(5)))
    products = kind in ("matmul", "attention") or rng.random() < 0.1
    gemm = Gemm(*(max(1, int(10 ** rng.uniform(0, 3.9))) for _ in range(4))) if products and rng.random() < 0.7 else None
    gemm_flops = gemm.flops if gemm is not None else int(10 ** rng.uniform(3, 12)) if products else 0
    read = int(10 ** rng.uniform(0, 9))
    return Work(
        name="random",
        flops=gemm_flops + int(elements * rng.uniform(0, 30)),
        special=int(elements * rng.random()),
        bytes_read=read,
        bytes_written=int(10 ** rng.uniform(0, 9)),
        kind=kind,
        elements=elements,
        dtype=dtype,
        op=rng.choice(("", "MatMul", "Conv", "Gelu", "Transpose")),
        parts=parts,
        gemm_flops=gemm_flops,
        gemm=gemm,
        nodes=rng.choice((1, 5, 64, 65)),
        launches=rng.choice((0, 1, 1, 1)),
        operands=rng.randrange(1, 100),
        fused=rng.random() < 0.5,
        blocks=rng.choice((0, rng.randrange(1, 5000))),
        reread_bytes=rng.choice((0, int(10 ** rng.uniform(0, 9)))),
        sharers=rng.choice((0, rng.randrange(1, 64))),
        shared_bytes=int(10 ** rng.uniform(0, 8)),
        resident_bytes=rng.choice((0, read // 2)),
        run_bytes=rng.choice((0, 1, 32, 64, 96, 4096)),
        vector=rng.choice((vector_of(dtype), 1, 4)),
        live=rng.randrange(1, 24),
        compiled=rng.choice((None, None, random_compiled(rng))),
    )


def random_compiled(rng: random.Random) -> Compiled:
    """What a compiler might say of a kernel, some of which no device can start."""
    return Compiled(
        rng.randrange(16, 260),
        rng.choice((0, rng.randrange(240_000))),
        rng.choice((32, 96, 128, 256, 1000, 1024)),
        rng.randrange(64),
        rng.randrange(5),
    )
