"""One interpreter for the kernels of all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compiled.client import Interpreter


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Interpreter]:
    process = Interpreter()
    yield process
    process.close()
