"""Kernels with the threads of a block in the other order, and under AddressSanitizer: neither changes a number."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from onnxfuse import custom_ops
from onnxfuse.case import Case
from onnxfuse.op import Op
from tests.gpu.client import Client
from tests.gpu.conftest import compiler
from tests.gpu.test_forms import WITHOUT_FORM, run
from tests.ops import harness

FIRST = {op.name: (op, case) for op, case in reversed(custom_ops.all_cases()) if op.name not in WITHOUT_FORM}
WAITING = {name: use for name, use in FIRST.items() if "Norm" in name or name in ("MaskedSoftmax", "FusedReduction")}


@pytest.fixture(scope="module")
def sanitizer() -> str:
    found = subprocess.run([compiler(), "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
    if "/" not in found:
        pytest.skip(f"{compiler()} has no AddressSanitizer")
    return found


@pytest.fixture(scope="module")
def sanitized(fakes: Path, sanitizer: str, pytestconfig: pytest.Config) -> Iterator[Client]:
    """Kernels whose every access is checked; one outside of a buffer ends the process."""
    cache = Path(str(pytestconfig.cache.mkdir("onnxfuse-sanitized-kernels")))
    client = Client(fakes, cache=cache, options="-O1 -fsanitize=address", preload=sanitizer)
    yield client
    client.close()


@pytest.mark.parametrize(("op", "case"), WAITING.values(), ids=WAITING)
def test_order_of_threads_changes_no_number(gpu: Client, op: Op, case: Case) -> None:
    forward, _ = run(gpu, op, case, "float")
    gpu.ask("reverse", on=True)
    backward, _ = run(gpu, op, case, "float")
    gpu.ask("reverse", on=False)
    for name, value in forward.items():
        np.testing.assert_array_equal(backward[name], value)


@pytest.mark.parametrize(("op", "case"), FIRST.values(), ids=FIRST)
def test_no_access_is_outside_of_a_buffer(sanitized: Client, op: Op, case: Case) -> None:
    got, _ = run(sanitized, op, case, "float")
    harness.assert_close(got, harness.exact(op, case, "float"), op.tolerance["float"])


def test_an_access_outside_of_a_buffer_would_be_found(fakes: Path, sanitizer: str) -> None:
    client = Client(fakes, options="-O1 -fsanitize=address", preload=sanitizer)
    with pytest.raises(AssertionError, match="heap-buffer-overflow"):
        client.run("Gelu", {"approximate": "none"}, [np.ones(64, np.float32), None], ["float"], missing=4)
