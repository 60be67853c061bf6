"""`onnxfuse kernels build` and `check`: machine code for GPUs, and whether it is good enough. No GPU is needed for either."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from onnxfuse import driver
from onnxfuse.commands import screen
from onnxfuse.errors import KernelError, UsageError
from onnxfuse.kernel_build import build as builder
from onnxfuse.report.tables import table


def build(archs: Sequence[str], folder: Path | None, *, jobs: int | None, only: Sequence[str], newest_ptx: int) -> None:
    """Compile all kernels that the ops list, and say what came of it. Raises KernelError where one cannot be compiled."""
    numbers = [builder.arch_number(arch) for arch in archs] or _present()
    folder = folder or builder.default_folder()
    wanted = builder.tasks(sorted(set(numbers)), only, newest_ptx)
    with screen.progress() as (tick, log):

        def tell(name: str, done: int, total: int) -> None:
            tick("kernels", done, total)

        built = builder.build(wanted, folder, jobs=jobs or os.cpu_count() or 1, newest_ptx=newest_ptx, tell=tell)
        for name, error in built.failed.items():
            log(f"{name}: {error}")
    targets = ", ".join(f"sm_{arch}" for arch in sorted({task.arch for task in wanted}))
    screen.say(f"{len(built.made)} kernels built, {len(built.kept)} were up to date, for {targets}, in {folder}")
    if built.failed:
        raise KernelError(f"{len(built.failed)} of {len(wanted)} kernels could not be compiled; what the compiler said stands above")


def _present() -> list[int]:
    """The architectures of the GPUs of this machine that we can build for."""
    found = [arch for arch in driver.architectures() if arch in builder.ARCHS]
    if not found:
        raise UsageError("no GPU is seen here to build kernels for. Say which: --arch sm_90, which may be repeated")
    return found


def check(folder: Path | None) -> None:
    """A table of all kernels of a folder with the gate's verdict. Raises KernelError where one fails it, UsageError where there is none."""
    from onnxfuse.kernel_build import gate

    folder = folder or builder.default_folder()
    known = builder.facts(folder)
    if not known:
        raise UsageError(f"{folder} has no kernels. Run `onnxfuse kernels build --arch sm_90 --out {folder}` first")
    shown = table("", "Kernel", "Arch", "Registers", "Stack B", "Shared B", "Threads", "Blocks an SM", "Tensor share", "Verdict")
    failed = 0
    for facts in known:
        verdict = gate.judge(facts)
        failed += bool(verdict.complaints)
        figures = (facts["registers"], facts["stack"], facts["shared"], facts["block"][0], verdict.fits.blocks)
        said = "; ".join(verdict.complaints) or "good"
        shown.add_row(str(facts["name"]), f"sm_{facts['arch']}", *map(str, figures), f"{verdict.share:.2f}", said)
    screen.out().print(shown)
    if failed:
        raise KernelError(f"{failed} of {len(known)} kernels fail; the table says why")
