"""Builds the kernels with their C test interface (once, incrementally, in pytest's cache) and loads them with ctypes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kernels.harness import ISAS, Kernels, build

HERE = Path(__file__).parent


def _tool(name: str) -> str:
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    assert found, f"building the kernels needs {name}: pip install cmake ninja"
    return found


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """One process at a time: the workers of pytest-xdist share the folder."""
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def library(pytestconfig: pytest.Config) -> Path:
    """The shared library that CMakeLists.txt beside this file builds.

    The environment variable ONNXFUSE_KERNEL_OPTIONS adds compile options, ;-separated (see sanitize.sh).
    """
    options = os.environ.get("ONNXFUSE_KERNEL_OPTIONS", "")
    kind = hashlib.sha256(options.encode()).hexdigest()[:8] if options else "plain"
    directory = Path(str(pytestconfig.cache.mkdir(f"onnxfuse-kernels-{kind}")))
    with _alone_in(directory):
        return build(HERE, directory, cmake=_tool("cmake"), ninja=_tool("ninja"), options=(f"-DONNXFUSE_KERNEL_OPTIONS={options}",))


@pytest.fixture(params=list(ISAS))
def kernels(request: pytest.FixtureRequest, library: Path) -> Kernels:
    """The kernels with one instruction set forced; those that machine or build lacks skip with that reason."""
    loaded = Kernels(library)
    if not loaded.force_isa(request.param):
        pytest.skip(f"this machine, or this build, has no {request.param}")
    return loaded
