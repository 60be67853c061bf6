"""The fused ops, one folder each: `op.py` says what it is, `op.cc` and the kernels run it, `cases.py` tries it.

`targets.py`, where there is one, says it in operators of others.
A new op is a new folder: it is found here, by CMake and by the tests without a line anywhere else.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from pathlib import Path

from onnxfuse.case import Case, Refusal
from onnxfuse.op import Op
from onnxfuse.target import Forms


def all_ops() -> dict[str, Op]:
    """Every op by its name."""
    return {op.name: op for op in map(_op, _folders())}


def all_forms() -> dict[str, Forms]:
    """How ops are written without our library, by op name: `FORMS` in the targets.py of the folders that have one."""
    folders = [f for f in _folders() if importlib.util.find_spec(f"{__name__}.{f}.targets") is not None]
    return {_op(folder).name: importlib.import_module(f"{__name__}.{folder}.targets").FORMS for folder in folders}


def all_cases() -> list[tuple[Op, Case]]:
    """Every op with each use of it that must give the numbers of its reference: `CASES` in its cases.py."""
    return [(_op(folder), case) for folder in _folders() for case in importlib.import_module(f"{__name__}.{folder}.cases").CASES]


def all_refusals() -> list[tuple[Op, Refusal]]:
    """Every op with each use of it that must end in an error: `REFUSED` in its cases.py."""
    return [(_op(folder), case) for folder in _folders() for case in importlib.import_module(f"{__name__}.{folder}.cases").REFUSED]


def kernel_tables() -> list[Path]:
    """The files beside the ops that say what the compiler said of their GPU kernels; see `onnxfuse.cost.compiled`."""
    found = (Path(folder) / name / "kernels.json" for folder in __path__ for name in _folders())
    return [path for path in found if path.is_file()]


def all_timed() -> list[tuple[Op, Case]]:
    """Every op with the uses of it that calibration times: `TIMED` in the cases.py of the folders that have one."""
    folders = [f for f in _folders() if importlib.util.find_spec(f"{__name__}.{f}.cases") is not None]
    known = ((_op(folder), importlib.import_module(f"{__name__}.{folder}.cases")) for folder in folders)
    return [(op, case) for op, cases in known for case in getattr(cases, "TIMED", ())]


def _folders() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg and not module.name.startswith("_"))


def _op(folder: str) -> Op:
    """The one Op that a folder's op.py defines."""
    (op,) = (value for value in vars(importlib.import_module(f"{__name__}.{folder}.op")).values() if isinstance(value, Op))
    return op
