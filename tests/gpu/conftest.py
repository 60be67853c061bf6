"""The fake driver and the fake compiler, built once, and processes in which our library finds them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxfuse import runtime as session
from tests.gpu.client import LIBRARY, Client

FAKE = Path(__file__).parent / "fake"
LIBRARIES = {"libcuda.cc": "libcuda.so.1", "libnvrtc.cc": "libnvrtc.so.13", "libcublaslt.cc": "libcublasLt.so.13"}


def compiler() -> str:
    found = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    assert found, "the tests of the GPU's host side need a C++ compiler"
    return found


@pytest.fixture(scope="session")
def fakes(pytestconfig: pytest.Config) -> Path:
    """The folder of the three libraries, built where their source has changed, and of a link to ours: there is nothing beside it."""
    text = b"".join(path.read_bytes() for path in sorted(FAKE.iterdir()))
    folder = Path(str(pytestconfig.cache.mkdir("onnxfuse-fakes"))) / hashlib.sha256(text).hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    for source, library in LIBRARIES.items():
        if (folder / library).exists():
            continue
        beside = folder / f"{library}.{os.getpid()}"
        options = ["-std=c++17", "-O2", "-shared", "-fPIC", f"-Wl,-soname,{library}", "-o", str(beside)]
        done = subprocess.run([compiler(), *options, str(FAKE / source), "-ldl"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        beside.rename(folder / library)
    link = folder / f"{LIBRARY}.{os.getpid()}"
    link.symlink_to(session.library_path())
    link.rename(folder / LIBRARY)
    return folder


@pytest.fixture(scope="session")
def gpu(fakes: Path, pytestconfig: pytest.Config) -> Iterator[Client]:
    """A process with two fake GPUs, of sm_90 and sm_80."""
    client = Client(fakes, cache=Path(str(pytestconfig.cache.mkdir("onnxfuse-fake-kernels"))))
    yield client
    client.close()
