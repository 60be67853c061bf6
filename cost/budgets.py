"""What must hold before any time is compared: the four checks, and the limits of a generated kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxfuse.cost.device import Device, Gpu
from onnxfuse.cost.occupancy import MAX_REGISTERS
from onnxfuse.cost.roofline import kernel_facts
from onnxfuse.cost.work import Work

MAX_NODES = 64
MAX_OPERANDS = 96


@dataclass(frozen=True)
class Checks:
    """The four questions on every candidate; `failures` says for each no which value broke which bound."""

    semantics_match: bool = True
    shape_supported: bool = True
    onchip_fit: bool = True
    backend_lowered: bool = True
    failures: tuple[str, ...] = ()

    @property
    def answers(self) -> dict[str, bool]:
        """Each question and its answer."""
        return {name: getattr(self, name) for name in ("semantics_match", "shape_supported", "onchip_fit", "backend_lowered")}

    @property
    def passed(self) -> bool:
        """Whether all four hold."""
        return all(self.answers.values())


def budget_failures(after: Sequence[Work], device: Device, *, max_nodes: int = MAX_NODES) -> tuple[str, ...]:
    """Which fused kernels break a limit of the device or of the generator, and by how much."""
    return tuple(failure for work in after if work.fused for failure in _failures(work, device, max_nodes))


def _failures(work: Work, device: Device, max_nodes: int) -> list[str]:
    found = []
    if work.nodes > max_nodes:
        found.append(f"{work.name}: {work.nodes} nodes > {max_nodes}, the most one fusion may take (--max-fusion-size)")
    if work.operands > MAX_OPERANDS:
        found.append(f"{work.name}: {work.operands} operands > {MAX_OPERANDS}")
    if isinstance(device, Gpu):
        facts, estimated = kernel_facts(work)
        source = "estimated" if estimated else "compiled"
        if facts.registers > MAX_REGISTERS:
            found.append(f"{work.name}: {facts.registers} registers ({source}) > {MAX_REGISTERS}")
        if facts.smem > device.smem_per_block:
            found.append(
                f"{work.name}: {facts.smem} bytes of shared memory ({source}) > {device.smem_per_block}, a block's most on {device.key}"
            )
    return found
