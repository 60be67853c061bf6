"""The CUDA text of a node's kernels, and what the compiler makes of it. No GPU is needed, nor a session.

The text comes from our operator library, which writes it for sessions too. It is compiled by NVRTC (the package
nvidia-cuda-nvrtc, or a toolkit), else by nvcc; the registers and spills are those that ptxas reports.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from onnxfuse import runtime
from onnxfuse.errors import RuntimeMissingError, UsageError
from onnxfuse.op import ONNX_TYPES

NVRTC_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
WHEELS = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")
OPTIONS = ("--std=c++17", "--fmad=false")  # as custom_ops/_runtime/cuda/compile.cc has them
FIGURES = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers(?:[^\n]*?(?P<smem>\d+) bytes smem)?",
    re.DOTALL,
)


@dataclass(frozen=True)
class Kernels:
    """What one program of a node runs as: `names` start one after another, each with this grid and block, sizes being as given."""

    program: str
    source: str
    names: tuple[str, ...]
    grid: tuple[int, int]
    threads: int


@dataclass(frozen=True)
class Compiled:
    """Of one kernel for one architecture: registers and bytes a thread, and the bytes of shared memory a block."""

    name: str
    registers: int
    stack: int
    spills: int  # bytes stored and loaded
    smem: int


def kernels_of(op: str, attributes: Mapping[str, Any], inputs: Sequence[tuple[str, Sequence[int]] | None], outputs: int) -> list[Kernels]:
    """The generated kernels of one node. inputs: element type and sizes, None where not given; outputs: how many are wanted.

    Raises UsageError where the operator has none or the sizes do not fit, RuntimeMissingError without our library.
    """
    show = _library().OnnxfuseShowKernels
    show.restype = ctypes.c_int64
    given = [("", ()) if i is None else i for i in inputs]
    sizes = [size for _, shape in given for size in shape]
    arguments = (
        op.encode(),
        len(attributes),
        _texts(list(attributes)),
        _texts([_plain(value) for value in attributes.values()]),
        len(given),
        (ctypes.c_int * len(given))(*[ONNX_TYPES.get(kind, 0) for kind, _ in given]),
        (ctypes.c_int * len(given))(*[len(shape) for _, shape in given]),
        (ctypes.c_int64 * max(len(sizes), 1))(*sizes),
        outputs,
    )
    room = 1 << 16
    while True:
        buffer = ctypes.create_string_buffer(room)
        size = show(*arguments, buffer, ctypes.c_int64(room))
        if size < 0:
            raise UsageError(f"{op}: {buffer.value.decode()}")
        if size < room:
            return _framed(buffer.raw[:size].decode())
        room = size + 1


@cache
def compiler() -> str:
    """The path of NVRTC or nvcc, the first that is found. Raises RuntimeMissingError with what to install."""
    wish = os.environ.get("ONNXFUSE_NVRTC", "")
    packages = {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}
    wheels = [folder / wheel / name for folder in sorted(packages) for wheel in WHEELS for name in NVRTC_NAMES]
    for place in (*([wish] if wish else []), *map(str, filter(Path.is_file, wheels)), *NVRTC_NAMES):
        try:
            ctypes.CDLL(place)
        except OSError:
            continue
        return place
    found = shutil.which("nvcc")
    if found is None:
        raise RuntimeMissingError("CUDA text needs a compiler to be compiled; there is none. Run `pip install nvidia-cuda-nvrtc`")
    return found


def compiled(source: str, arch: int) -> list[Compiled]:
    """What each kernel of a text becomes for compute capability arch / 10. Raises UsageError with the compiler's words."""
    log, _ = _build(source, f"sm_{arch}")
    return [
        Compiled(m["name"], int(m["registers"]), int(m["stack"]), int(m["stores"]) + int(m["loads"]), int(m["smem"] or 0))
        for m in FIGURES.finditer(log)
    ]


def ptx(source: str, arch: int) -> str:
    """The assembly text that a driver would compile for compute capability arch / 10. Raises UsageError as `compiled` does."""
    return _build(source, f"compute_{arch}")[1]


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(runtime.library_path()))


def _texts(words: Sequence[str]) -> Any:
    return (ctypes.c_char_p * max(len(words), 1))(*[word.encode() for word in words])


def _plain(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else repr(value) if isinstance(value, float) else str(value)


def _framed(text: str) -> list[Kernels]:
    found = []
    while text:
        head, text = text.split("\n", 1)
        program, source, grid_x, grid_y, threads, *names = head.split(" ")
        end = int(program) + int(source)
        found.append(Kernels(text[: int(program)], text[int(program) : end], tuple(names), (int(grid_x), int(grid_y)), int(threads)))
        text = text[end:]
    return found


def _build(source: str, target: str) -> tuple[str, str]:
    """The compiler's log, and the PTX where the target is a virtual one (compute_90)."""
    path = compiler()
    return _by_nvcc(path, source, target) if Path(path).stem == "nvcc" else _by_nvrtc(path, source, target)


def _by_nvcc(path: str, source: str, target: str) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        file, made = Path(folder, "kernel.cu"), Path(folder, "kernel.out")
        file.write_text(source)
        kind = "-ptx" if target.startswith("compute") else "-cubin"
        command = [path, kind, f"-arch={target}", *OPTIONS, "-Xptxas", "-v", "-o", str(made), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise UsageError(f"nvcc refuses the kernel for {target}: {done.stderr[-2000:]}")
        return done.stdout + done.stderr, made.read_text() if kind == "-ptx" else ""


def _by_nvrtc(path: str, source: str, target: str) -> tuple[str, str]:
    nvrtc, program = ctypes.CDLL(path), ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"onnxfuse.cu", 0, None, None)
    options = [f"--gpu-architecture={target}".encode(), *(o.encode() for o in OPTIONS), b"--ptxas-options=-v"]
    result = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    log = _given_by(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
    text = _given_by(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program) if target.startswith("compute") and result == 0 else ""
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    if result != 0:
        raise UsageError(f"NVRTC refuses the kernel for {target}: {log[-2000:]}")
    return log, text


def _given_by(size_of: Any, fill: Any, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    fill(program, buffer)
    return buffer.value.decode()
