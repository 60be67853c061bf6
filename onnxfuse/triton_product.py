"""What the lists of kernels of products share: blocks, and how a weight lies. Nothing here needs Triton."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxfuse.triton_kernel import BYTES, FARTHEST, Condition

UNITS = {"weight_column": "weight_depth", "weight_depth": "weight_column"}  # the stride that is 1, and the other


@dataclass(frozen=True)
class Blocks:
    """rows and columns of y that a block makes; depth: taken at a time; warps of a block; stages: steps on their way."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int

    @property
    def constants(self) -> dict[str, int]:
        """Of a kernel."""
        return {"ROWS": self.rows, "COLUMNS": self.columns, "DEPTH": self.depth}

    @property
    def tile(self) -> dict[str, int]:
        """What the grid is worked out from."""
        return {"m": self.rows, "n": self.columns, "k": self.depth}


def form(unit: str, most_rows: int | None) -> str:
    """The part of a kernel's name that says how its weight lies, and for how many rows it is."""
    return f"{'transposed' if unit == 'weight_depth' else 'plain'}{'' if most_rows is None else f'_{most_rows}'}"


def lying(dtype: str, unit: str, most_rows: int | None, pointers: Sequence[str]) -> tuple[Condition, ...]:
    """For weights whose stride named `unit` is 1, and at most so many rows; None for any number."""
    few = () if most_rows is None else (Condition("rows", max=most_rows),)
    return (
        *(Condition(name, align=16) for name in pointers),
        *(Condition(name, align=16 // BYTES[dtype], max=FARTHEST) for name in ("columns", UNITS[unit])),
        Condition(unit, equals=1),
        *few,
    )
