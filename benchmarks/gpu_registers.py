"""Registers, spills and occupancy of the generated CUDA kernels, for every architecture: `python benchmarks/gpu_registers.py [ARCH...]`.

No GPU is needed, NVRTC or nvcc is. Prints a table; exits with 1 where a kernel spills.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from onnxfuse import gpu_code
from onnxfuse.commands.kernels import ARCHS
from onnxfuse.cost.device import Gpu
from onnxfuse.cost.devices import devices
from onnxfuse.cost.occupancy import occupancy

ROWS, HIDDEN = 4096, 4096
CHAIN = """x0:float x1:float x2:float
v0:float = Mul(x0, x1)
v1:float = Add(v0, x2)
v2:float = Tanh(v1)
v3:float = Mul(v2, x0)
v4:float = Sigmoid(v3)
v5:float = Mul(v4, v1)
-> v5"""
HALF_CHAIN = CHAIN.replace(":float", ":float16")
LOG_SUM_EXP = "x0:float\nv0:float = ReduceLogSumExp(x0)\nv1:float = Sub(x0, v0)\n-> v1"
SUMS = [f"v{i}:float = Add({f'v{i - 1}' if i else 'x0'}, x{i + 1})" for i in range(15)]
FAN_IN = "\n".join([" ".join(f"x{i}:float" for i in range(16)), *SUMS, "-> v14"])


@dataclass(frozen=True)
class Sample:
    """One use of an operator. inputs: type and sizes, None where not given."""

    name: str
    op: str
    attributes: dict[str, Any]
    inputs: tuple[tuple[str, tuple[int, ...]] | None, ...]
    outputs: int = 1


def _norm(name: str, op: str, kind: str, cols: int, vectors: int, outputs: int, *, skips: int = 0) -> Sample:
    full, row = (kind, (ROWS, cols)), (kind, (cols,))
    attributes = {"epsilon": 1e-5} if skips else {"epsilon": 1e-5, "axis": -1}
    return Sample(f"{name} {kind} {cols}", op, attributes, (full,) * (1 + skips) + (row,) * vectors, outputs)


def samples() -> list[Sample]:
    """What models have: activations, gates, norms, softmax, rotary embeddings, programs."""
    found = []
    for kind in ("float", "float16", "bfloat16"):
        wide = (kind, (ROWS, HIDDEN))
        found += [
            Sample(f"gelu {kind}", "Gelu", {"approximate": "none"}, (wide, (kind, (HIDDEN,)))),
            Sample(f"swiglu packed {kind}", "SwiGLU", {"alpha": 1.0, "gate_first": 1}, (wide, None)),
            *(_norm("layer norm", "LayerNorm", kind, cols, 2, 1) for cols in (64, 768, 4096, 8192, 32768)),
            _norm("skip layer norm", "SkipLayerNorm", kind, 1024, 2, 2, skips=1),
            _norm("skip rms norm", "SkipRMSNorm", kind, 4096, 1, 2, skips=1),
            Sample(f"softmax {kind}", "MaskedSoftmax", {"scale": 0.125}, ((kind, (8, 16, 512, 512)), ("bool", (8, 1, 1, 512)))),
            Sample(f"rotary {kind}", "RotaryEmbedding", {}, ((kind, (1, 2048, 32, 128)), (kind, (2048, 1, 64)), (kind, (2048, 1, 64)))),
            Sample(f"group norm {kind}", "GroupNorm", {"num_groups": 32, "activation": "silu"},
                   ((kind, (2, 320, 64, 64)), (kind, (320,)), (kind, (320,)))),
            Sample(f"channel norm {kind}", "ChannelLayerNorm", {}, ((kind, (8, 96, 56, 56)), (kind, (96,)), (kind, (96,)))),
        ]  # fmt: skip
    full = ("float", (ROWS, HIDDEN))
    found += [
        Sample("chain of 6 float", "FusedElementwise", {"program": CHAIN}, (full, full, ("float", (HIDDEN,)))),
        Sample("chain of 6 float16", "FusedElementwise", {"program": HALF_CHAIN}, (("float16", (ROWS, HIDDEN)),) * 3),
        Sample("16 inputs float", "FusedElementwise", {"program": FAN_IN}, (full,) * 16),
        Sample("log softmax float", "FusedReduction", {"program": LOG_SUM_EXP, "axes": 1}, (full,)),
    ]
    return found


def main() -> None:
    archs = [int(arch) for arch in sys.argv[1:]] or list(ARCHS)
    gpus = [d for d in devices().values() if isinstance(d, Gpu)]
    by_arch = {arch: next((g for g in gpus if g.compute_capability == f"{arch // 10}.{arch % 10}"), None) for arch in archs}
    print(f"compiler: {gpu_code.compiler()}\nregisters / blocks resident on an SM / spilled bytes\n")
    print("| kernel | " + " | ".join(f"sm_{arch}" for arch in archs) + " |\n| --- " + "| --- " * len(archs) + "|")
    spilled = 0
    for sample in samples():
        for number, kernels in enumerate(gpu_code.kernels_of(sample.op, sample.attributes, sample.inputs, sample.outputs)):
            rows: dict[str, list[str]] = {}
            for arch in archs:
                gpu = by_arch[arch]
                for made in gpu_code.compiled(kernels.source, arch):
                    fits = occupancy(gpu, threads=kernels.threads, registers=made.registers, smem=made.smem).blocks if gpu else "?"
                    rows.setdefault(made.name, []).append(f"{made.registers} / {fits} / {made.spills + made.stack}")
                    spilled += made.spills + made.stack
            for name, cells in rows.items():
                print(f"| {sample.name}{f' #{number}' if number else ''} {name} | " + " | ".join(cells) + " |", flush=True)
    sys.exit(1 if spilled else 0)


if __name__ == "__main__":
    main()
