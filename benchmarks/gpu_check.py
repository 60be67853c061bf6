"""The steps of gpu_check.sh: `python benchmarks/gpu_check.py STEP FOLDER`. A step that lacks something says so and exits with 3."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from onnxfuse import driver
from onnxfuse.kernel_build import build

LEFT_OUT = 3
PACKAGES = ("torch", "triton", "numpy", "onnx", "onnxruntime", "onnxruntime-gpu")


def leave_out(reason: str) -> None:
    """End the step, as one that could not be done here."""
    print(f"   {reason}")
    sys.exit(LEFT_OUT)


def keep(folder: Path, step: str, found: Any) -> None:
    """Write what a step found."""
    (folder / f"{step}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def machine(folder: Path) -> None:
    """What is here. Without a GPU, torch or triton nothing else can be done."""
    gpus, archs = driver.gpus(), driver.architectures()
    versions = {name: _version(name) for name in PACKAGES}
    found = {"gpus": gpus, "archs": archs, "packages": versions, "driver": _driver_version()}
    keep(folder, "machine", found)
    print("\n".join(f"   {name}: {value}" for name, value in found.items()))
    missing = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
    if not gpus:
        missing.insert(0, "an NVIDIA GPU that the driver shows")
    if missing:
        leave_out(f"missing: {', '.join(missing)}")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def _driver_version() -> str:
    try:
        asked = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True)
    except OSError:
        return "unknown: no nvidia-smi"
    return asked.stdout.strip().splitlines()[0] if asked.returncode == 0 and asked.stdout.strip() else "unknown"


def kernels(folder: Path) -> None:
    """All kernels for the first GPU, as far as the time allows."""
    (arch, *_) = driver.architectures()
    if arch not in build.ARCHS:
        leave_out(f"kernels are for {', '.join(f'sm_{a}' for a in build.ARCHS)}; this GPU is sm_{arch}")
    wanted = sorted(build.tasks([arch]), key=lambda task: task.kernel.variant["dtype"] != "float16")
    built = build.build(wanted, folder / "kernels", jobs=os.cpu_count() or 1)
    for name, error in built.failed.items():
        print(f"   {name}: {error}")
    print(f"   {len(built.made)} built, {len(built.kept)} kept, {len(built.failed)} failed")
    sys.exit(1 if built.failed else 0)


def numbers(folder: Path) -> None:
    from gpu_numbers import check_all

    found = check_all(_ready(folder), is_small=False)
    keep(folder, "numbers", found)
    _fail_if_any(found)


def sanitized(folder: Path) -> None:
    """The same on small shapes, to be run under a tool that watches every access."""
    from gpu_numbers import check_all

    _fail_if_any(check_all(_ready(folder), is_small=True))


def _fail_if_any(found: list[dict[str, Any]]) -> None:
    wrong = [one for one in found if not one["is_right"]]
    for one in wrong:
        print(f"   WRONG {one['case']}: error {one['error']:.3g}, allowed {one['allowed']:.3g}, by {one['kernels']}")
    print(f"   {len(found) - len(wrong)} of {len(found)} cases are right")
    sys.exit(1 if wrong else 0)


def times(folder: Path) -> None:
    from gpu_times import measure_all, product_times

    found = measure_all(_ready(folder))
    keep(folder, "times", found)
    (arch, *_) = driver.architectures()
    chosen = folder / "kernels" / f"linear.sm_{arch}.times"
    chosen.write_text(json.dumps(product_times(found), indent=1) + "\n", encoding="utf-8")
    print(f"   {chosen}: where it lies among compiled kernels, Linear goes by cuBLASLt where that was faster")


def _ready(folder: Path) -> Any:
    from gpu_launch import Gpu

    if not list((folder / "kernels").glob("*.json")):
        leave_out("no kernels were built")
    return Gpu(build.facts(folder / "kernels"))


def sessions(folder: Path) -> None:
    """Whole models in ONNX Runtime, with nothing fused up to everything."""
    needed = ("onnx", "onnx_graphsurgeon", "onnxruntime", "rich", "typer")
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        leave_out(f"missing: {', '.join(missing)}")
    import onnxruntime

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        leave_out("this ONNX Runtime has no CUDA provider: strategies and row kernels are measured with onnxruntime-gpu alone")
    from gpu_sessions import measure_all

    os.environ["ONNXFUSE_KERNELS"] = str((folder / "kernels").resolve())
    keep(folder, "sessions", measure_all())


def table(folder: Path) -> None:
    """All that was found as one Markdown table."""
    lines = ["| what | ours | other | ratio | of peak |", "| --- | ---: | ---: | ---: | ---: |"]
    for step in ("numbers", "times", "sessions"):
        path = folder / f"{step}.json"
        if not path.is_file():
            lines.append(f"| {step} | not measured | | | |")
            continue
        found = json.loads(path.read_text(encoding="utf-8"))
        if step == "numbers":
            lines.append(f"| cases right | {sum(one['is_right'] for one in found)} | of {len(found)} | | |")
        else:
            lines += [f"| {one['case']} | {one['ours']} | {one['other']} | {one['ratio']} | {one['peak']} |" for one in found]
    text = "\n".join(lines) + "\n"
    (folder / "table.md").write_text(text, encoding="utf-8")
    print(text)


STEPS: dict[str, Callable[[Path], None]] = {step.__name__: step for step in (machine, kernels, numbers, sanitized, times, sessions, table)}

if __name__ == "__main__":
    STEPS[sys.argv[1]](Path(sys.argv[2]))
