"""How long a generated kernel takes to compile, as measured on one core of a server; about linear in its ops."""

from __future__ import annotations

from typing import Literal

Compiler = Literal["nvrtc", "triton", "none"]

# milliseconds: once, for each op, and for each pair of ops
COSTS: dict[Compiler, tuple[float, float, float]] = {"nvrtc": (40.0, 4.0, 0.002), "triton": (90.0, 5.0, 0.005), "none": (0.0, 0.0, 0.0)}


def compile_ms(ops: int, compiler: Compiler) -> float:
    """Milliseconds to compile a fusion of so many ops; `none`: the kernel is in the library already."""
    once, each, pair = COSTS[compiler]
    return once + each * ops + pair * ops * ops
