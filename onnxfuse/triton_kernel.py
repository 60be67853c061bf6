"""What a kernel written in Triton is compiled as: `variants.py` of an op lists these, and `onnxfuse kernels build` compiles them.

Nothing here needs Triton. The host side of the library finds a kernel by what its JSON file says, so a list is the only place
where a variant is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["tile", "split", "combine", "join"]
UNLIMITED = 1 << 29  # of a window: no key is that far away
FARTHEST = (1 << 24) - 1  # elements from row to row, so that offsets within a block have 32 bits

POINTER_TYPES: Mapping[str, str] = {"float": "*fp32", "float16": "*fp16", "bfloat16": "*bf16", "bool": "*u8"}  # by ONNX type
BYTES: Mapping[str, int] = {"float": 4, "float16": 2, "bfloat16": 2, "bool": 1}


@dataclass(frozen=True)
class Condition:
    """What must hold of one value in a run for the kernel to be right; checked by the host. Bounds that are not given are none.

    align: the value, or the address of a pointer in bytes, is divisible by it; the compiler relies on it.
    """

    name: str
    align: int | None = None
    equals: float | None = None
    min: int | None = None
    max: int | None = None

    def as_json(self) -> dict[str, Any]:
        bounds = {"align": self.align, "equals": self.equals, "min": self.min, "max": self.max}
        return {"name": self.name, **{name: bound for name, bound in bounds.items() if bound is not None}}


def folder_of(op: str) -> str:
    """The folder of an op below custom_ops: gated_linear of GatedLinear."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", op).lower()


@dataclass(frozen=True)
class Kernel:
    """One kernel to be compiled for one architecture.

    name: of its files. function: that of the Triton function, in the kernel_triton.py beside the list. variant: what a node must have
    exactly, by name.
    types: the Triton type of each argument that is no constant. constants: arguments fixed when compiled.
    rank: of the kernels whose conditions hold, the host takes the one of the lowest. tile: sizes that the grid is worked out from.
    busy: its hot loop must keep tensor units busy, or the gate turns it down.
    """

    name: str
    op: str
    role: Role
    function: str
    variant: Mapping[str, str]
    types: Mapping[str, str]
    constants: Mapping[str, Any]
    tile: Mapping[str, int]
    conditions: tuple[Condition, ...] = ()
    rank: int = 0
    warps: int = 4
    stages: int = 1
    busy: bool = False

    @property
    def folder(self) -> str:
        """That of its op below custom_ops."""
        return folder_of(self.op)

    @property
    def aligned(self) -> dict[str, int]:
        """Arguments whose divisibility is promised to the compiler."""
        return {c.name: c.align for c in self.conditions if c.align is not None}
