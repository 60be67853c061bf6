"""Compiles one kernel for one architecture, in a process of its own: a compiler that aborts takes nothing else with it.

    python -m onnxfuse.kernel_build.worker FILE KERNEL ARCH FOLDER SOURCE PTX

FILE is a kernel_triton.py, KERNEL the name of one that the variants.py beside it lists. Writes KERNEL.sm_ARCH.cubin and .json into
FOLDER; SOURCE is kept in the latter as "source". PTX is the newest version of PTX that may be written, 90 for 9.0. No GPU is needed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from onnxfuse.kernel_build import cubin
from onnxfuse.triton_kernel import Kernel

SCHEMA = 1
KINDS = {"*": "pointer", "i32": "i32", "i64": "i64", "fp32": "f32"}
HIDDEN = ("global_scratch", "profile_scratch")  # what Triton adds behind the arguments


def load(file: Path) -> Any:
    """A file beside an op as a module, without the packages around it, which need more than Triton."""
    spec = importlib.util.spec_from_file_location(f"{file.stem}_of_{file.parent.name}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def variants(file: Path, arch: int) -> list[Kernel]:
    """What the variants.py beside a kernel_triton.py lists for one architecture."""
    found: list[Kernel] = load(file.with_name("variants.py")).kernels(arch)
    return found


def compile_kernel(module: Any, kernel: Kernel, arch: int, newest_ptx: int) -> tuple[bytes, dict[str, Any]]:
    """Machine code, and what the host must know of it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(module, kernel.function)
    names = function.arg_names
    options = {"num_warps": kernel.warps, "num_stages": kernel.stages, "enable_fp_fusion": True, "ptx_version": _ptx(arch, newest_ptx)}
    source = ASTSource(
        function,
        signature={name: "constexpr" if name in kernel.constants else kernel.types[name] for name in names},
        constexprs={name: kernel.constants[name] for name in names if name in kernel.constants},
        attrs={(names.index(name),): [["tt.divisibility", align]] for name, align in kernel.aligned.items() if name in kernel.types},
    )
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    passed = [{"name": name, "kind": _kind(kernel.types[name])} for name in names if name not in kernel.constants]
    passed += [{"name": name, "kind": "pointer"} for name in HIDDEN]
    return made.asm["cubin"], _facts(kernel, made, arch, passed) | {"triton": triton.__version__}


def _facts(kernel: Kernel, made: Any, arch: int, passed: list[dict[str, str]]) -> dict[str, Any]:
    code = made.asm["cubin"]
    read = cubin.read(code)
    sizes = tuple(8 if one["kind"] in ("pointer", "i64") else 4 for one in passed)
    assert read.parameters == sizes, f"the parameters of {kernel.name} have {read.parameters} bytes, not {sizes}"
    return {
        "schema": SCHEMA,
        "name": kernel.name,
        "op": kernel.op,
        "role": kernel.role,
        "variant": dict(kernel.variant),
        "rank": kernel.rank,
        "conditions": [condition.as_json() for condition in kernel.conditions],
        "arch": arch,
        "target": _found(r"^\.target (\w+)", made.asm["ptx"]),
        "entry": read.name,
        "cubin_sha256": hashlib.sha256(code).hexdigest(),
        "block": [made.metadata.num_warps * 32, 1, 1],
        "shared": made.metadata.shared,
        "registers": read.registers,
        "stack": read.stack,
        "scratch": made.metadata.global_scratch_size,
        "tile": dict(kernel.tile),
        "arguments": passed,
        "num_warps": made.metadata.num_warps,
        "num_stages": kernel.stages,
        "busy": kernel.busy,
        "ptx": _found(r"^\.version ([\d.]+)", made.asm["ptx"]),
    }


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    assert match is not None
    return match.group(1)


def _kind(kind: str) -> str:
    return KINDS["*" if kind.startswith("*") else kind]


def _ptx(arch: int, newest: int) -> int:
    """The version of PTX to write: what this Triton's assembler reads, but no newer than `newest`."""
    from triton.backends.nvidia import compiler

    return min(newest, int(compiler.ptx_get_version(compiler.get_ptxas(arch).version)))


def main() -> None:
    file, name, arch, folder, source, newest_ptx = sys.argv[1:]
    os.environ.pop("TRITON_INTERPRET", None)  # under it nothing is compiled
    module = load(Path(file))
    (kernel,) = (k for k in variants(Path(file), int(arch)) if k.name == name)
    code, facts = compile_kernel(module, kernel, int(arch), int(newest_ptx))
    stem = Path(folder) / f"{name}.sm_{arch}"
    _write(Path(f"{stem}.cubin"), code)
    _write(Path(f"{stem}.json"), (json.dumps(facts | {"source": source}, indent=1) + "\n").encode())


def _write(path: Path, data: bytes) -> None:
    """The whole file or nothing, for those who read meanwhile."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(data)
    beside.replace(path)


if __name__ == "__main__":
    main()
