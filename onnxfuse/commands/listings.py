"""`onnxfuse rules`, `ops` and `devices`: what there is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onnxfuse import api, custom_ops
from onnxfuse.candidate import Origin
from onnxfuse.commands import screen
from onnxfuse.cost.device import Gpu
from onnxfuse.cost.devices import devices, this_cpu
from onnxfuse.report.tables import table
from onnxfuse.report.text import show_bytes


def rules(files: Sequence[Path]) -> None:
    """A row per rule, with those of the user's files, and last what is generated where none applies."""
    made = table("", "Rule", "Kind", "What it does, and why")
    known: dict[str, Origin] = {**dict(sorted(api.load_rules(files).items())), **api.load_generators()}
    for name, origin in known.items():
        made.add_row(name, origin.kind, origin.summary)
    screen.out().print(made)


def ops() -> None:
    """A row per fused op that the library has."""
    made = table("", "Op", "Types", "Attributes, with defaults")
    for _, op in sorted(custom_ops.all_ops().items()):
        types = "; ".join(f"{variable} = {', '.join(allowed)}" for variable, allowed in op.types.items())
        attributes = ", ".join(f"{key} = {value!r}" for key, value in op.attributes.items())
        made.add_row(op.signature, types, attributes)
    screen.out().print(made)


def known_devices() -> None:
    """A row per device that the cost model knows, and what `auto` means here."""
    made = table("", "Device", "Name", "Memory", "GB/s", "Confidence", "Note", right=("Memory", "GB/s"))
    for key, device in devices().items():
        memory = show_bytes(device.memory_bytes) if isinstance(device, Gpu) else ""
        rate = device.memory_gbs if isinstance(device, Gpu) else device.memory_gbs_all
        made.add_row(key, device.name, memory, f"{rate:,.0f}", device.confidence, device.note)
    screen.out().print(made)
    screen.say(f"auto and cpu mean {this_cpu().name}")
