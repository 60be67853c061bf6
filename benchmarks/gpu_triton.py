"""Registers, shared memory and occupancy of the compiled kernels that decisions rest on, or the gate's verdict on all of a folder.

    python benchmarks/gpu_triton.py [--write] [--folder FOLDER] [ARCH...]
    python benchmarks/gpu_triton.py --gate FOLDER

The first builds, for each architecture and type, the kernel that stands for its operator: heads of 64 without a mask, weights [k, n]
and many rows. It prints a table; --write puts the figures into kernels.json beside the operators, where the cost model looks. Needs
Triton, no GPU. The second prints what `onnxfuse kernels check` says as a table for results.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from onnxfuse.kernel_build import build, gate

DTYPE = "(float|float16|bfloat16)"
STAND_FOR = [f"attention_{DTYPE}_64", f"linear_{DTYPE}_plain", f"gated_linear_{DTYPE}_plain"]
COLUMNS = ("kernel", "arch", "registers", "stack", "shared", "threads", "blocks an SM", "tensor share", "verdict")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archs", nargs="*", type=int, default=list(build.ARCHS))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where kernels are built and kept; without it, they are not kept")
    parser.add_argument("--gate", type=Path, help="a folder of kernels; nothing is built")
    arguments = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |\n|" + " --- |" * len(COLUMNS))
    if arguments.gate is not None:
        for facts in sorted(build.facts(arguments.gate), key=lambda one: (one["arch"], one["name"])):
            _show(facts)
        return
    with tempfile.TemporaryDirectory() as nowhere:
        _stand_for(arguments, arguments.folder or Path(nowhere))


def _stand_for(arguments: argparse.Namespace, folder: Path) -> None:
    wanted = build.tasks(arguments.archs, STAND_FOR)
    built = build.build(wanted, folder, jobs=arguments.jobs)
    known = {(task.kernel.name, task.arch) for task in wanted}
    homes = {task.kernel.op: task.file.parent for task in wanted}
    tables: dict[str, dict[str, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    for facts in (one for one in build.facts(folder) if (one["name"], one["arch"]) in known):
        tables[facts["op"]][f"{facts['op']}/{facts['variant']['dtype']}"][f"sm_{facts['arch']}"] = _figures(facts)
        _show(facts)
    for name, error in built.failed.items():
        print(f"{name}: {error}")
    if arguments.write:
        for op, kernels in tables.items():
            table = {"version": 1, "compiler": f"triton {metadata.version('triton')}", "kernels": kernels}
            (homes[op] / "kernels.json").write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def _figures(facts: Mapping[str, Any]) -> dict[str, int]:
    """As kernels.json has them."""
    return {"registers": facts["registers"], "stack": facts["stack"], "smem": facts["shared"], "threads": facts["block"][0]}


def _show(facts: Mapping[str, Any]) -> None:
    verdict = gate.judge(facts)
    said = "; ".join(verdict.complaints) or "good"
    shown = (facts["name"], f"sm_{facts['arch']}", *_figures(facts).values(), verdict.fits.blocks, f"{verdict.share:.2f}", said)
    print(f"| {' | '.join(map(str, shown))} |", flush=True)


if __name__ == "__main__":
    main()
