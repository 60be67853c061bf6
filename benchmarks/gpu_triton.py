"""Registers, shared memory and occupancy of the compiled kernels that decisions rest on.

    python benchmarks/gpu_triton.py [--write] [--folder FOLDER] [ARCH...]

Builds, for each architecture and type, the kernel that stands for its operator: heads of 64 without a mask, weights [k, n].
Needs Triton, no GPU. Prints a table; --write puts the figures into kernels.json beside the operators, where the cost model looks.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from importlib import metadata
from pathlib import Path
from typing import Any

from onnxfuse.kernel_build import build, gate

CUSTOM_OPS = Path(__file__).parents[1] / "custom_ops"
STAND_FOR = {"Attention": "attention_(float|float16|bfloat16)_64", "Linear": "linear_(float|float16|bfloat16)_plain"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archs", nargs="*", type=int, default=list(build.ARCHS))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where kernels are built and kept; without it, they are not kept")
    arguments = parser.parse_args()
    tables: dict[str, dict[str, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    print("| kernel | arch | registers | stack | shared | threads | blocks an SM | tensor share |\n|" + " --- |" * 8)
    with tempfile.TemporaryDirectory() as nowhere:
        folder = arguments.folder or Path(nowhere)
        wanted = build.tasks(arguments.archs, list(STAND_FOR.values()))
        built = build.build(wanted, folder, jobs=arguments.jobs)
        known = {(task.kernel.name, task.arch) for task in wanted}
        for facts in (one for one in build.facts(folder) if (one["name"], one["arch"]) in known):
            row = {"registers": facts["registers"], "stack": facts["stack"], "smem": facts["shared"], "threads": facts["block"][0]}
            tables[facts["op"]][f"{facts['op']}/{facts['variant']['dtype']}"][f"sm_{facts['arch']}"] = row
            verdict = gate.judge(facts)
            shown = (facts["name"], f"sm_{facts['arch']}", *row.values(), verdict.fits.blocks, f"{verdict.share:.2f}")
            print(f"| {' | '.join(map(str, shown))} |", flush=True)
    for name, error in built.failed.items():
        print(f"{name}: {error}")
    if arguments.write:
        for op, kernels in tables.items():
            table = {"version": 1, "compiler": f"triton {metadata.version('triton')}", "kernels": kernels}
            (CUSTOM_OPS / op.lower() / "kernels.json").write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
