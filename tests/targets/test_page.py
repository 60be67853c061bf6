"""docs/targets.md says what there is, and its code runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from onnxfuse.kernels import KERNELS, SINCE
from onnxfuse.target import TARGETS, Forms
from tests.targets.harness import forms

PAGE = (Path(__file__).parents[2] / "docs" / "targets.md").read_text(encoding="utf-8")
ROWS = {row.split("|")[1].strip(): row for row in PAGE.splitlines() if row.startswith("| ")}


@pytest.mark.parametrize("name", forms())
def test_every_op_has_a_row(name: str) -> None:
    _, _, contrib, standard, _ = ROWS[name].split("|")
    assert ("none" in standard) == (forms()[name].standard is None)
    assert "as standard" in contrib or forms()[name].contrib is not None


@pytest.mark.parametrize("key", [*KERNELS, *SINCE])
def test_every_operator_is_named(key: str) -> None:
    assert re.search(rf"`(com\.microsoft\.)?{key.rpartition('.')[2]}`", PAGE)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_is_named(target: str) -> None:
    assert target in PAGE


def test_the_code_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert isinstance(names["FORMS"], Forms)
