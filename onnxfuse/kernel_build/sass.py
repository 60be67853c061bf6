"""The machine code of a cubin as text, and the loop in which it spends its time. Needs NVIDIA's nvdisasm, which Triton brings."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxfuse.errors import RuntimeMissingError

LABEL = re.compile(r"\s*(\.L_x_\d+):")
INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_]+)((?:\.[\w.]+)?)(.*)")
TARGET = re.compile(r"\.L_x_\d+")
HMMA_SHAPES = {"16816": 16 * 8 * 16, "1688": 16 * 8 * 8, "1684": 16 * 8 * 4}


@dataclass(frozen=True)
class Instruction:
    """HMMA, .16816.F32, and the rest of the line. branch: the number of the instruction it goes to, of a branch."""

    name: str
    modifiers: str
    branch: int | None = None

    @property
    def products(self) -> int:
        """Multiplications that a tensor unit does for one warp; 0 of other instructions."""
        if self.name == "HGMMA":  # of four warps together
            match = re.search(r"\.(\d+)x(\d+)x(\d+)", self.modifiers)
            return int(match[1]) * int(match[2]) * int(match[3]) // 4 if match else 0
        return next((n for shape, n in HMMA_SHAPES.items() if self.name == "HMMA" and f".{shape}" in self.modifiers), 0)

    @property
    def work(self) -> int:
        """For telling loops apart: products, and something for instructions that do not say how many they do."""
        return self.products or int(self.name == "UTCHMMA")

    @property
    def is_tf32(self) -> bool:
        return "TF32" in self.modifiers


def nvdisasm() -> str:
    """Where the disassembler is. Raises RuntimeMissingError where there is none."""
    triton = importlib.util.find_spec("triton")
    bundled = Path(triton.origin).parent / "backends/nvidia/bin/nvdisasm" if triton and triton.origin else None
    found = str(bundled) if bundled and bundled.is_file() else shutil.which("nvdisasm")
    if found is None:
        raise RuntimeMissingError(
            "looking at machine code needs nvdisasm, of Triton or of the CUDA toolkit; there is none. Run `pip install triton`"
        )
    return found


def instructions(cubin: Path) -> list[Instruction]:
    """All instructions of a cubin of one kernel, in order."""
    text = subprocess.run([nvdisasm(), "-c", str(cubin)], capture_output=True, text=True, check=True).stdout
    found: list[tuple[str, str, str]] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if label := LABEL.match(line):
            labels[label[1]] = len(found)
        elif match := INSTRUCTION.match(line):
            found.append((match[1], match[2], match[3]))
    return [Instruction(name, modifiers, _branch(name, rest, labels)) for name, modifiers, rest in found]


def _branch(name: str, rest: str, labels: dict[str, int]) -> int | None:
    target = TARGET.search(rest) if name == "BRA" else None
    return labels.get(target[0]) if target else None


def hot_loop(code: Sequence[Instruction]) -> Sequence[Instruction]:
    """The loop with the most work of tensor units and none with any inside, the shorter of two; all of it where no loop has any.

    Loops without such work may be inside: threads wait in them.
    """
    loops = [(one.branch, place) for place, one in enumerate(code) if one.branch is not None and one.branch <= place]
    busy = [(first, last) for first, last in loops if any(one.work for one in code[first : last + 1])]
    inner = [a for a in busy if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in busy)]
    bodies = [code[first : last + 1] for first, last in inner]
    return max(bodies, key=lambda body: (sum(one.work for one in body), -len(body)), default=code)


def counts(code: Sequence[Instruction]) -> Counter[str]:
    """How often each instruction stands there."""
    return Counter(one.name for one in code)
