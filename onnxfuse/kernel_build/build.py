"""Builds the kernels that the ops list: several processes at a time, each with one kernel; what has not changed is left alone."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from onnxfuse.errors import KernelError, RuntimeMissingError, UsageError
from onnxfuse.kernel_build import worker
from onnxfuse.triton_kernel import Kernel, folder_of

PACKAGE = Path(__file__).parents[1]
NEWEST_PTX = 90  # what drivers of CUDA 13.0 read
ARCHS = (80, 86, 89, 90, 100, 103, 120)  # Triton has no tensor instructions before 80
Tell = Callable[[str, int, int], None]  # name of the kernel, how many are done, of how many


@dataclass(frozen=True)
class Task:
    """One kernel for one architecture. source: a hash of everything that decides what comes out."""

    file: Path
    kernel: Kernel
    arch: int
    source: str

    @property
    def stem(self) -> str:
        return f"{self.kernel.name}.sm_{self.arch}"


@dataclass(frozen=True)
class Built:
    """made: the kernels that were compiled; kept: those that were there; failed: what the compiler said, by kernel."""

    made: tuple[str, ...]
    kept: tuple[str, ...]
    failed: dict[str, str]


def default_folder() -> Path:
    """The user's cache, where the library looks."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "onnxfuse" / "kernels"


def arch_number(text: str) -> int:
    """80 for "sm_80" or "80". Raises UsageError for what Triton has no tensor instructions for."""
    match = re.fullmatch(r"(?:sm_)?(\d+)a?", text)
    if match is None or int(match.group(1)) not in ARCHS:
        raise UsageError(f"--arch must be one of {', '.join(f'sm_{arch}' for arch in ARCHS)}; got '{text}'")
    return int(match.group(1))


def tasks(archs: Sequence[int], only: Sequence[str] = (), newest_ptx: int = NEWEST_PTX) -> list[Task]:
    """Every kernel of every op for these architectures; `only`: those whose name matches one of these regular expressions.

    Raises RuntimeMissingError without Triton, UsageError where an expression of `only` matches none.
    """
    require_triton()
    found = []
    for file in sorted((PACKAGE / "custom_ops").glob("*/kernel_triton.py")):
        module = worker.load(file)
        for arch in archs:
            found += [Task(file, kernel, arch, _source(module, kernel, arch, newest_ptx)) for kernel in worker.variants(file, arch)]
    for pattern in only:
        if not any(re.fullmatch(pattern, task.kernel.name) for task in found):
            near = difflib.get_close_matches(pattern, sorted({task.kernel.name for task in found}), 5, 0.3)
            raise UsageError(f"no kernel is called '{pattern}'. There are {len(found)}, among them {', '.join(near)}")
    return [task for task in found if not only or any(re.fullmatch(pattern, task.kernel.name) for pattern in only)]


def has_kernels(op: str) -> bool:
    """Whether Triton compiles kernels of the operator."""
    return (PACKAGE / "custom_ops" / folder_of(op) / "kernel_triton.py").is_file()


def require_triton() -> None:
    """Raises RuntimeMissingError, with the command that brings it, where Triton is not installed; UsageError where it would not compile."""
    if importlib.util.find_spec("triton") is None:
        raise RuntimeMissingError('building GPU kernels needs Triton, which is not installed. Run `pip install "onnxfuse[kernels]"`')
    if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        raise UsageError("TRITON_INTERPRET is set, and with it Triton compiles nothing. Unset it")


def build(wanted: Iterable[Task], folder: Path, *, jobs: int, newest_ptx: int = NEWEST_PTX, tell: Tell = lambda *_: None) -> Built:
    """Compile what the folder does not have yet, `jobs` at a time. Failures do not stop the others."""
    folder.mkdir(parents=True, exist_ok=True)
    every = list(wanted)
    old = [task for task in every if _is_there(task, folder)]
    new = [task for task in every if task not in old]
    failed = {}
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(_compile, task, folder, newest_ptx, scratch): task for task in new}
        for done, future in enumerate(as_completed(running), 1):
            task, error = running[future], future.result()
            if error:
                failed[task.stem] = error
            tell(task.stem, len(old) + done, len(every))
    return Built(tuple(t.stem for t in new if t.stem not in failed), tuple(t.stem for t in old), failed)


def facts(folder: Path) -> list[dict[str, Any]]:
    """What is known of every kernel in a folder. Raises KernelError where a file is not what it should be."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            code = path.with_suffix(".cubin").read_bytes()
        except (OSError, ValueError) as error:
            raise KernelError(f"{path}: must be JSON beside its cubin; {error}. Build the kernels again") from None
        if hashlib.sha256(code).hexdigest() != known.get("cubin_sha256"):
            raise KernelError(f"{path}: is of another cubin than the one beside it. Build the kernels again")
        found.append(known | {"path": path.with_suffix(".cubin")})
    return found


def _source(module: Any, kernel: Kernel, arch: int, newest_ptx: int) -> str:
    """A hash of the kernel's text with what it calls, of its options, of Triton's version, and of what writes the files."""
    parts = [getattr(module, kernel.function).cache_key, repr(kernel), str(arch), str(newest_ptx), metadata.version("triton")]
    return hashlib.sha256("\0".join([*parts, Path(worker.__file__).read_text(encoding="utf-8")]).encode()).hexdigest()


def _is_there(task: Task, folder: Path) -> bool:
    try:
        known = json.loads((folder / f"{task.stem}.json").read_text(encoding="utf-8"))
        code = (folder / f"{task.stem}.cubin").read_bytes()
    except (OSError, ValueError):
        return False
    return (task.source, hashlib.sha256(code).hexdigest()) == (known.get("source"), known.get("cubin_sha256"))


def _compile(task: Task, folder: Path, newest_ptx: int, scratch: str) -> str:
    """What went wrong, or nothing."""
    command = [sys.executable, "-m", worker.__name__, str(task.file), task.kernel.name, str(task.arch), str(folder), task.source]
    environment = {**os.environ, "TRITON_CACHE_DIR": scratch, "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *_python_path()])}
    done = subprocess.run([*command, str(newest_ptx)], env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    said = [line for line in done.stderr.strip().splitlines() if line.strip()]
    return f"the compiler ended with {done.returncode}: {' '.join(said[-3:])}"


def _python_path() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
