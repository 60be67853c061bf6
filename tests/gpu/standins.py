"""A folder of compiled kernels for the fake driver: facts as `onnxfuse kernels build` writes them, stand-ins for the machine code."""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from onnxfuse import custom_ops
from onnxfuse.kernel_build import worker
from onnxfuse.triton_kernel import Kernel, folder_of

FAKE = Path(__file__).parent / "fake"
TYPES = {"float": "kFloat", "float16": "kFloat16", "bfloat16": "kBFloat16"}
MASKS = {"none": "kNone", "bool": "kBool", **TYPES}
POINTERS = {
    *("q", "k", "v", "y", "mask", "sink", "partial", "stats", "past", "fresh", "present", "x", "weight", "bias", "residual"),
    *("global_scratch", "profile_scratch"),
}
FLOATS = {"scale", "softcap", "mask_value", "alpha", "activation_alpha", "activation_beta"}
C_TYPES = {"pointer": "char* const", "i32": "int", "f32": "float"}
LETTERS = {"pointer": "p", "i32": "i", "i64": "l", "f32": "f"}


@dataclass(frozen=True)
class Standin:
    """One kernel. call: what of standin.h does the work of a block. constants: arguments that are fixed in it."""

    name: str
    op: str
    role: str
    function: str
    variant: dict[str, str]
    tile: dict[str, int]
    call: str
    rank: int = 0
    conditions: Sequence[dict[str, Any]] = ()
    threads: int = 32
    shared: int = 0
    scratch: int = 0
    arguments: Sequence[tuple[str, str]] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)

    def kinds(self) -> list[tuple[str, str]]:
        """Names and kinds of the arguments: those of the Triton function, in its order, and Triton's own."""
        if self.arguments:
            return list(self.arguments)
        names = [name for name in parameters(self.op, self.function) if name not in self.constants]
        return [(name, kind_of(name)) for name in (*names, "global_scratch", "profile_scratch")]

    def facts(self, arch: int, digest: str) -> dict[str, Any]:
        return {
            "schema": 1, "op": self.op, "role": self.role, "name": self.name, "variant": self.variant, "rank": self.rank,
            "conditions": list(self.conditions), "arch": arch, "entry": self.name, "cubin_sha256": digest,
            "block": [self.threads, 1, 1], "shared": self.shared, "registers": 64, "stack": 0, "scratch": self.scratch, "tile": self.tile,
            "arguments": [{"name": name, "kind": kind} for name, kind in self.kinds()], "triton": "3.6.0", "num_warps": 4,
        }  # fmt: skip

    def text(self) -> str:
        fixed = {name: value for name, value in self.constants.items() if name.islower()}
        names = ", ".join(f'"{name}"' for name in (*(name for name, _ in self.kinds()), *fixed))
        values = "".join(f"static const {C_TYPES[kind_of(n)]} {self.name}_{n} = {number(v)};\n" for n, v in fixed.items())
        letters = "".join(LETTERS[kind] for _, kind in self.kinds())
        return f"""{values}
            static const char* const {self.name}_names[] = {{{names}, nullptr}};
            static const void* const {self.name}_constants[] = {{{"".join(f"&{self.name}_{name}, " for name in fixed)}nullptr}};
            extern "C" const char {self.name}__kinds[] = "{letters}";
            extern "C" const int {self.name}__waits = 0;
            extern "C" void {self.name}__run(void** values) {{
              const Arguments a{{{self.name}_names, values, {self.name}_constants, {len(letters)}}};
              if (threadIdx.x == 0) {self.call};
            }}"""


def kind_of(name: str) -> str:
    return "pointer" if name in POINTERS else "f32" if name in FLOATS else "i32"


def number(value: Any) -> str:
    return "nullptr" if value is None else repr(value)


def triton_file(op: str) -> Path:
    return Path(custom_ops.__path__[0]) / folder_of(op) / "kernel_triton.py"


@cache
def parameters(op: str, function: str) -> list[str]:
    """The parameters of a Triton kernel that are no constants."""
    text = triton_file(op).read_text()
    (found,) = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == function)
    return [a.arg for a in found.args.args if a.annotation is None or "constexpr" not in ast.unparse(a.annotation)]


def attention(kind: str, mask: str) -> list[Standin]:
    """One for whatever comes, and one for few queries."""
    made = f"Attention{{a, {TYPES[kind]}, {MASKS[mask]}}}"
    variant = {"dtype": kind, "mask": mask}
    return [
        Standin(f"tile_{kind}_{mask}", "Attention", "tile", "attention", variant, {"q": 4, "k": 16, "v": 8}, f"{made}.Tile(4, 8)", rank=9),
        Standin(
            f"split_{kind}_{mask}", "Attention", "split", "split", variant, {"q": 4, "k": 16}, f"{made}.Split(4)",
            conditions=[{"name": "head_size", "max": 256}, {"name": "value_size", "max": 256}],
        ),
    ]  # fmt: skip


def for_type(kind: str) -> list[Standin]:
    """What does not depend on a mask, for whatever comes; a fast tile of Attention and one of Linear."""
    made, variant = f"Attention{{a, {TYPES[kind]}, kNone}}", {"dtype": kind}
    aligned = [{"name": name, "align": 16} for name in ("q", "k", "v", "q_row", "k_row", "v_row")]
    plain = [{"name": "softcap", "equals": 0.0}, {"name": "has_sink", "equals": 0}, {"name": "head_size", "min": 8, "max": 64}]
    even = [{"name": "x", "align": 16}, {"name": "depth", "align": 8}, {"name": "weight_column", "equals": 1}]
    return [
        Standin(
            f"combine_{kind}", "Attention", "combine", "combine", variant, {}, f"{made}.Combine()",
            conditions=[{"name": "splits", "max": 128}],
        ),
        Standin(f"join_{kind}", "Attention", "join", "join", variant, {"rows": 3}, f"{made}.Join(3)"),
        Standin(
            f"fast_{kind}", "Attention", "tile", "attention", {**variant, "mask": "none"}, {"q": 8, "k": 16}, f"{made}.Tile(8, 0)",
            rank=1, conditions=[*plain, *aligned], threads=64, shared=64 * 1024,
        ),
        Standin(f"linear_{kind}", "Linear", "tile", "linear", variant, {"m": 4, "n": 8}, f"Linear{{a, {TYPES[kind]}}}.Tile(4, 8)", rank=2),
        Standin(
            f"gated_linear_{kind}", "GatedLinear", "tile", "gated_linear", variant, {"m": 4, "n": 8},
            f"GatedLinear{{a, {TYPES[kind]}}}.Tile(4, 8)",
        ),
        Standin(
            f"linear_fast_{kind}", "Linear", "tile", "linear", variant, {"m": 8, "n": 16}, f"Linear{{a, {TYPES[kind]}}}.Tile(8, 16)",
            conditions=even, threads=128,
        ),
    ]  # fmt: skip


def every() -> list[Standin]:
    """A small table of our own, whose kernels differ in what the host looks at."""
    return [
        *itertools.chain.from_iterable(attention(kind, mask) for kind in TYPES for mask in MASKS),
        *itertools.chain.from_iterable(for_type(kind) for kind in TYPES),
    ]


def listed(op: str, arch: int) -> list[Standin]:
    """Those that the variants.py of an op lists for an architecture, with their own conditions, tiles, arguments and constants."""
    return [_standin(kernel) for kernel in worker.variants(triton_file(op), arch)]


def _standin(kernel: Kernel) -> Standin:
    tile, variant = kernel.tile, dict(kernel.variant)
    node = f"{kernel.op}{{a, {TYPES[variant['dtype']]}{', ' + MASKS[variant.get('mask', 'none')] if kernel.op == 'Attention' else ''}}}"
    calls = {
        ("Attention", "tile"): f"Tile({tile.get('q')}, {tile.get('v', 0)})",
        ("Attention", "split"): f"Split({tile.get('q')})",
        ("Attention", "combine"): "Combine()",
        ("Attention", "join"): f"Join({tile.get('rows')})",
        ("Linear", "combine"): f"Combine({tile.get('size')})",
        ("Linear", "split"): f"Split({tile.get('m')}, {tile.get('n')})",
    }
    call = calls.get((kernel.op, kernel.role), f"Tile({tile.get('m')}, {tile.get('n')})")
    return Standin(
        kernel.name, kernel.op, kernel.role, kernel.function, variant, dict(tile), f"{node}.{call}", kernel.rank,
        [condition.as_json() for condition in kernel.conditions], 32 * kernel.warps, constants=kernel.constants,
        scratch=384 if kernel.function.endswith("_blocks") else 0,
    )  # fmt: skip


def compiled(kernels: Sequence[Standin], folder: Path, compiler: str) -> bytes:
    """A shared library with all of them, made where it is not in the folder."""
    source = "#include <standin.h>\nthread_local ShimState* shim_state;\n"
    source += 'extern "C" void shim_set(ShimState* state) { shim_state = state; }\n' + "".join(kernel.text() for kernel in kernels)
    text = source.encode() + b"".join(path.read_bytes() for path in sorted(FAKE.glob("*.h")))
    library = folder / f"{hashlib.sha256(text).hexdigest()[:16]}.so"
    if not library.exists():
        beside = folder / f"{library.name}.{os.getpid()}"
        command = [compiler, "-std=c++17", "-O1", "-s", "-shared", "-fPIC", f"-I{FAKE}", "-o", str(beside), "-x", "c++", "-"]
        done = subprocess.run(command, input=source.encode(), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        beside.rename(library)
    return library.read_bytes()


def write(folder: Path, kernels: Iterable[Standin], arch: int, library: bytes) -> None:
    """The files of these kernels for an architecture."""
    folder.mkdir(parents=True, exist_ok=True)
    image = f"FAKE sm_{arch}\n".encode() + library
    digest = hashlib.sha256(image).hexdigest()
    for kernel in kernels:
        (folder / f"{kernel.name}.sm_{arch}.cubin").write_bytes(image)
        (folder / f"{kernel.name}.sm_{arch}.json").write_text(json.dumps(kernel.facts(arch, digest)))
