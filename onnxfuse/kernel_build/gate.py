"""Is a compiled kernel good enough to ship? Judged by its machine code, with no GPU.

A kernel must fit and start on its device, keep everything in registers (no stack), and have its time in tensor instructions of its
architecture's kind, fed by loads of 16 bytes a thread. `share` is the part of the hot loop's time that tensor units can be
busy at most: their cycles over those of whatever takes longest, tensor units, exponentials, or starting instructions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxfuse.cost.device import Gpu
from onnxfuse.cost.devices import devices
from onnxfuse.cost.occupancy import Occupancy, occupancy
from onnxfuse.errors import UsageError
from onnxfuse.kernel_build import sass
from onnxfuse.kernel_build.sass import Instruction
from onnxfuse.triton_kernel import BYTES

LEAST_SHARE = 0.7
SCHEDULERS = 4  # of an SM; each starts an instruction a cycle
WARP = 32
VECTOR_BYTES = 16
TENSOR = ("HMMA", "HGMMA", "UTCHMMA")
NEWEST_OF = {9: "HGMMA", 10: "UTCHMMA"}  # by the first number of the compute capability; HMMA of the others
BLOCK_LOADS = ("UTMALDG", "UBLKCP")


@dataclass(frozen=True)
class Verdict:
    """complaints: why the kernel fails; none if it passes. mix: instructions of the hot loop. cycles of one turn of it, by unit."""

    name: str
    complaints: tuple[str, ...]
    fits: Occupancy
    mix: Mapping[str, int]
    cycles: Mapping[str, float]

    @property
    def share(self) -> float:
        return self.cycles["tensor"] / max(self.cycles.values())


def judge(facts: Mapping[str, Any]) -> Verdict:
    """The verdict on a kernel by its facts, "path" being where its cubin is. Raises RuntimeMissingError without nvdisasm."""
    gpu = gpu_of(int(facts["arch"]))
    code = sass.instructions(Path(facts["path"]))
    hot = sass.hot_loop(code)
    warps = int(facts["block"][0]) // WARP
    fits = occupancy(gpu, threads=int(facts["block"][0]), registers=int(facts["registers"]), smem=int(facts["shared"]))
    mix = sass.counts(hot)
    cycles = {
        "tensor": _products(facts, hot) / gpu.tensor_fma_per_clock_sm_fp16,
        "special": mix["MUFU"] * WARP * warps / gpu.sfu_per_clock_sm,
        "start": len(hot) * warps / SCHEDULERS,
    }
    verdict = Verdict(str(facts["name"]), (), fits, mix, cycles)
    by_blocks = any(one.name in BLOCK_LOADS for one in code)  # where warps are specialised, those that load have a loop of their own
    return replace(verdict, complaints=tuple(_complaints(facts, verdict, [] if by_blocks else hot)))


def gpu_of(arch: int) -> Gpu:
    """A device of this architecture. Raises UsageError where we know none."""
    wanted = f"{arch // 10}.{arch % 10}"
    known = [d for d in devices().values() if isinstance(d, Gpu) and d.compute_capability == wanted]
    if not known:
        raise UsageError(f"no device of cost/devices has compute capability {wanted}; the gate needs one")
    return known[0]


def _complaints(facts: Mapping[str, Any], verdict: Verdict, loading: Sequence[Instruction]) -> Iterator[str]:
    """loading: the loop whose loads must be wide; empty where blocks are brought whole."""
    mix = verdict.mix
    if verdict.fits.blocks == 0:
        yield f"does not start: {verdict.fits.limiter}"
    if facts["stack"]:
        yield f"{facts['stack']} bytes of stack"
    if local := mix["LDL"] + mix["STL"]:
        yield f"{local} accesses to local memory in the hot loop"
    if facts["role"] not in ("tile", "split"):
        return
    wanted = (NEWEST_OF.get(int(facts["arch"]) // 10, "HMMA"),) if facts["busy"] else TENSOR
    if not any(mix[name] for name in wanted):
        yield f"no {' or '.join(wanted)} in the hot loop"
    if any("align" in condition for condition in facts["conditions"]):
        yield from _of_loads(facts, loading)
        if facts["op"] == "Attention" and "size" not in facts["tile"] and not mix["MUFU"]:
            yield "no exponentials in the hot loop"
    if facts["busy"] and verdict.share < LEAST_SHARE:
        yield f"tensor units busy {verdict.share:.0%} of the hot loop, least {LEAST_SHARE:.0%}"


def _of_loads(facts: Mapping[str, Any], hot: Sequence[Instruction]) -> Iterator[str]:
    """A kernel that relies on aligned operands must bring them by 16 bytes a thread, or by blocks."""
    if not hot:
        return
    wide = sum(1 for one in hot if one.name in ("LDG", "LDGSTS") and "128" in one.modifiers)
    needed = _operand_bytes(facts) // (int(facts["block"][0]) * VECTOR_BYTES)
    if wide < needed:
        yield f"{wide} loads of {VECTOR_BYTES} bytes in the hot loop, where its operands are {needed}"


def _operand_bytes(facts: Mapping[str, Any]) -> int:
    """What one turn of the hot loop brings: keys and values, some columns of keys and queries, or a step of all operands."""
    tile = facts["tile"]
    if "size" in tile:
        elements = (tile["q"] + tile["k"]) * tile["size"]
    elif facts["op"] == "Attention":
        elements = 2 * tile["k"] * tile["v"]
    else:
        weights = 2 if facts["op"] == "GatedLinear" else 1
        elements = (tile["m"] + weights * tile["n"]) * tile["k"]
    return int(elements * BYTES[facts["variant"]["dtype"]])


def _products(facts: Mapping[str, Any], hot: Sequence[Instruction]) -> int:
    """Multiplications of all warps in one turn, of tf32 twice: units do half as many. The newest instructions do not say; tiles do."""
    if any(one.name == "UTCHMMA" for one in hot):
        tile = facts["tile"]
        return int(2 * tile["q"] * tile["k"] * tile["v"] if facts["op"] == "Attention" else tile["m"] * tile["n"] * tile["k"])
    return sum(one.products * (2 if one.is_tf32 else 1) for one in hot) * int(facts["block"][0]) // WARP
