"""Is everything there that onnxfuse needs? One finding for each part, with the command that brings what is missing.

What is examined is imported inside the checks: this module works where onnx or ONNX Runtime cannot be imported.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import metadata
from typing import Any

from onnxfuse.cost.detect import core_count, cpu_flags, cpu_name
from onnxfuse.cost.devices import find
from onnxfuse.driver import gpus
from onnxfuse.errors import OnnxFuseError

RUNTIMES = re.compile(r"onnxruntime([-_](gpu|training|directml|openvino|qnn|rocm|cann|silicon|azure))*$")
OLDEST_RUNTIME = (1, 18)
AVX2 = frozenset({"avx", "avx2", "fma", "f16c"})
AVX512 = AVX2 | {"avx512f", "avx512dq", "avx512bw", "avx512vl"}
AMX = AVX512 | {"amx_tile", "amx_bf16"}
ISAS = ("baseline", "avx2", "avx512", "amx")


class State(Enum):
    """GOOD; NOTE: worth knowing, the main job works; BROKEN: it does not."""

    GOOD = "ok"
    NOTE = "note"
    BROKEN = "missing"


@dataclass(frozen=True)
class Finding:
    """What was found of one part, and what to do about it if anything."""

    part: str
    state: State
    found: str
    remedy: str = ""


Check = Callable[[str], Finding]


def examine() -> Iterator[Finding]:
    """All findings, in the order in which to mend them; whatever a check raises is a finding too."""
    for part, check in CHECKS.items():
        try:
            yield check(part)
        except ImportError as error:
            yield Finding(part, State.BROKEN, f"cannot be examined: {error}", "Mend what stands above, then look again")
        except Exception as error:  # this command must come to its end whatever is broken
            yield Finding(part, State.BROKEN, f"cannot be examined: {type(error).__name__}: {error}", "Report this as a bug")


def _runtime() -> Any:
    return importlib.import_module("onnxfuse.runtime")


def _python(part: str) -> Finding:
    return Finding(part, State.GOOD, f"{platform.python_version()} at {sys.executable}")


def _package(name: str) -> Finding:
    """A distribution is there and can be imported."""
    try:
        version = metadata.version(name)
        importlib.import_module(name.replace("-", "_"))
    except metadata.PackageNotFoundError:
        return Finding(name, State.BROKEN, "not installed", f"pip install {name}")
    except ImportError as error:
        return Finding(name, State.BROKEN, f"{version}, cannot be imported: {error}", f"pip install --force-reinstall {name}")
    return Finding(name, State.GOOD, version)


def installed_runtimes() -> dict[str, str]:
    """Every installed distribution that brings the module `onnxruntime`, with its version. More than one is a clash."""
    named = ((d.metadata["Name"] or "", d.version) for d in metadata.distributions())
    return {name: version for name, version in named if RUNTIMES.match(name.lower())}


def _onnxruntime(part: str) -> Finding:
    there = installed_runtimes()
    found = ", ".join(f"{name} {version}" for name, version in there.items())
    if len(there) > 1:
        remedy = f"pip uninstall -y {' '.join(there)}, then install one again: onnxruntime, or onnxruntime-gpu for CUDA"
        return Finding(part, State.BROKEN, f"{found}: they overwrite each other's files", remedy)
    try:
        version = str(_runtime().require_onnxruntime().__version__)
    except OnnxFuseError as error:
        return Finding(part, State.BROKEN, str(error), "pip install onnxruntime (or onnxruntime-gpu for CUDA)")
    found = found or f"{version}, of no installed package"
    if tuple(map(int, version.split(".")[:2])) < OLDEST_RUNTIME:
        return Finding(part, State.BROKEN, f"{found}: too old", "pip install -U onnxruntime")
    providers = ", ".join(_runtime().require_onnxruntime().get_available_providers())
    return Finding(part, State.GOOD, f"{found}, providers {providers}")


def _library(part: str) -> Finding:
    """Our library is there, and a session with it can be made."""
    try:
        path = _runtime().library_path()
    except OnnxFuseError as error:
        return Finding(part, State.BROKEN, str(error), "pip install --force-reinstall --no-deps onnxfuse")
    try:
        _runtime().session(_smallest_model(), ["CPUExecutionProvider"], libraries=[path])
    except OnnxFuseError as error:
        return Finding(part, State.BROKEN, str(error), "pip install --force-reinstall --no-deps onnxfuse")
    return Finding(part, State.GOOD, f"{path}, loads")


def _smallest_model() -> Any:
    """y = x for one float."""
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "identity", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def _cpu(part: str) -> Finding:
    flags = cpu_flags()
    seen = (
        " ".join(f for f in ("avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "amx_bf16", "asimd", "sve") if f in flags)
        or "no flags listed"
    )
    found = f"{cpu_name()}, {core_count()} cores, {seen}; kernels run on {chosen_isa(flags)}"
    wish = os.environ.get("ONNXFUSE_ISA", "")
    if wish and wish not in ISAS:
        return Finding(part, State.NOTE, found, f"ONNXFUSE_ISA={wish} is none of {', '.join(ISAS)}: unset it")
    return Finding(part, State.GOOD, found)


def chosen_isa(flags: frozenset[str]) -> str:
    """The kernels' instruction set on a machine with these flags, as custom_ops/_runtime/dispatch.h chooses it."""
    best = 3 if flags >= AMX else 2 if flags >= AVX512 else 1 if flags >= AVX2 else 0
    wish = os.environ.get("ONNXFUSE_ISA", "")
    return ISAS[min(best, ISAS.index(wish))] if wish in ISAS else ISAS[best]


def _device(part: str) -> Finding:
    """What `--device auto` decides for."""
    device = find("auto")
    if device.confidence == "high":
        return Finding(
            part, State.GOOD, f"auto means {device.name}, {device.sources[0]}" if device.sources else f"auto means {device.name}"
        )
    return Finding(part, State.NOTE, f"auto means {device.name}", "onnxfuse calibrate (about half a minute) measures this machine")


def _gpus(part: str) -> Finding:
    names = gpus()
    if not names:
        return Finding(part, State.GOOD, "none seen: models run on the CPU")
    found = ", ".join(names)
    try:
        providers = _runtime().require_onnxruntime().get_available_providers()
    except OnnxFuseError:
        providers = []
    if "CUDAExecutionProvider" not in providers:
        remedy = "pip uninstall -y onnxruntime; pip install onnxruntime-gpu"
        return Finding(part, State.NOTE, f"{found}, but this ONNX Runtime cannot use them", remedy)
    return Finding(part, State.GOOD, found)


def _triton(part: str) -> Finding:
    try:
        return Finding(part, State.GOOD, metadata.version("triton"))
    except metadata.PackageNotFoundError:
        return Finding(
            part,
            State.GOOD,
            'not installed; only needed to build kernels of Attention, Linear and GatedLinear for GPUs (pip install "onnxfuse[kernels]")',
        )


CHECKS: Mapping[str, Check] = {
    "Python": _python,
    "onnx": _package,
    "onnx-graphsurgeon": _package,
    "numpy": _package,
    "ONNX Runtime": _onnxruntime,
    "Operator library": _library,
    "CPU": _cpu,
    "Cost model": _device,
    "GPUs": _gpus,
    "Triton": _triton,
}
