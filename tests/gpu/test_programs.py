"""Random programs on the fake GPU against their bodies in ONNX Runtime. ONNXFUSE_GPU_PROGRAMS in the environment: how many."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from onnxfuse.generated import fuzz
from onnxfuse.generated.made_up import Example, made_up
from tests.gpu.client import Client

COUNT = int(os.environ.get("ONNXFUSE_GPU_PROGRAMS", "30"))
FROM = int(os.environ.get("ONNXFUSE_GPU_FIRST_PROGRAM", "0"))


class _OnGpu:
    """What `fuzz` takes for a session: one node, run by the fake driver."""

    def __init__(self, gpu: Client, example: Example) -> None:
        self._gpu = gpu
        self._example = example

    def get_inputs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=f"x{i}") for i in range(len(self._example.arrays))]

    def run(self, _: None, feeds: Mapping[str, Any]) -> list[Any]:
        program = self._example.program
        attributes = {"program": program.text, **({"axes": self._example.axes} if program.is_reduction else {})}
        kinds = [program.types[result] for result in program.results]
        return self._gpu.run(fuzz.op_name(program), attributes, list(feeds.values()), kinds).outputs[0]


@pytest.mark.parametrize("seed", range(FROM, FROM + COUNT))
def test_random_program_gives_the_numbers_of_its_body(gpu: Client, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    example, session = made_up(seed), fuzz._session
    monkeypatch.setattr(fuzz, "_session", lambda model, *, register: _OnGpu(gpu, example) if register else session(model, register=False))
    assert fuzz.difference(example) is None, f"{example.program.text}\n{[a.shape for a in example.arrays]} axes {example.axes}"
