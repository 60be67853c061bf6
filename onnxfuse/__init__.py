"""onnxfuse: fuses subgraphs of ONNX models into operators that do them in one kernel.

    import onnxfuse
    result = onnxfuse.optimize("in.onnx", "out.onnx")
    session = onnxfuse.session("out.onnx")

Rules are written with `onnxfuse.pattern`, `onnxfuse.rule` and the ops in `onnxfuse.custom_ops`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxfuse.api import Result, explain, optimize
    from onnxfuse.bench import bench
    from onnxfuse.runtime import library_path, session
    from onnxfuse.verify import verify

__all__ = ["Result", "bench", "explain", "library_path", "optimize", "session", "verify"]

# where each public name lives; loaded on first use, so that `import onnxfuse` and `onnxfuse --help` cost nothing
_HOMES = {
    "Result": "api",
    "bench": "bench",
    "explain": "api",
    "library_path": "runtime",
    "optimize": "api",
    "session": "runtime",
    "verify": "verify",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.metadata.version("onnxfuse")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


class _Package(ModuleType):
    """Keeps `onnxfuse.verify` and `onnxfuse.bench` the functions: importing the modules of that name would rebind them."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
