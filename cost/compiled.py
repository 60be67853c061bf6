"""What the compiler said of our GPU kernels: tables that a kernel build writes beside the ops, whose figures replace estimates.

A table is a JSON file, `kernels.json` in the folder of an op:

    {"version": 1, "compiler": "ptxas 13.0",
     "kernels": {"SkipLayerNorm/float16": {"sm_90": {"registers": 40, "stack": 0, "smem": 16, "threads": 128, "barriers": 1}}}}

A kernel is named like its op, followed by the ONNX type it computes where there is one for each. registers: of a thread.
stack: bytes of a thread's local memory, which spills go to. smem: bytes of a block, static and dynamic. threads: of a block.
barriers: named ones; 1 if it is not given. An architecture that has no entry keeps its estimates.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from onnxfuse.cost.device import Gpu
from onnxfuse.cost.work import Compiled, Work
from onnxfuse.errors import UsageError

FILE = "kernels.json"
VERSION = 1
FIELDS = ("registers", "stack", "smem", "threads")
Tables: TypeAlias = "Mapping[str, Mapping[str, Compiled]]"  # by kernel, then by architecture


def read(paths: Iterable[Path]) -> Tables:
    """All kernels of these files. Raises UsageError that names the file and the kernel where one is not well formed, or is there twice."""
    found: dict[str, Mapping[str, Compiled]] = {}
    for path in paths:
        for name, kernel in _kernels(path).items():
            if name in found:
                raise UsageError(f"kernel table {path}: '{name}' must be in one table alone; another has it too")
            found[name] = {arch: _compiled(path, f"{name}, {arch}", facts) for arch, facts in kernel.items()}
    return found


def compiled(work: Work, tables: Tables, gpu: Gpu) -> Compiled | None:
    """What is known of the kernel that runs `work` on the GPU; None where nothing is."""
    arch = f"sm_{gpu.compute_capability.replace('.', '')}"
    names = (f"{work.name}/{work.dtype}", work.name)
    return next((tables[name][arch] for name in names if arch in tables.get(name, {})), None)


def _kernels(path: Path) -> Mapping[str, Mapping[str, Any]]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"kernel table {path}: must be JSON; {error}") from None
    if not isinstance(table, dict) or table.get("version") != VERSION or not isinstance(table.get("kernels"), dict):
        raise UsageError(f"kernel table {path}: must be an object with version {VERSION} and kernels. Build the kernels again")
    kernels: Mapping[str, Mapping[str, Any]] = table["kernels"]
    return kernels


def _compiled(path: Path, where: str, facts: Any) -> Compiled:
    given = facts if isinstance(facts, dict) else {}
    numbers: dict[str, Any] = {name: given.get(name) for name in FIELDS} | {"barriers": given.get("barriers", 1)}
    wrong = [name for name, number in numbers.items() if not isinstance(number, int) or isinstance(number, bool) or number < 0]
    if wrong:
        raise UsageError(f"kernel table {path}: {where}: {', '.join(wrong)} must be whole numbers of at least 0. Build the kernels again")
    return Compiled(
        registers=numbers["registers"],
        smem=numbers["smem"],
        threads=numbers["threads"],
        spill_bytes=numbers["stack"],
        barriers=numbers["barriers"],
    )
