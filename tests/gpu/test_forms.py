"""Every op that has a form for GPUs, run on the CPU through the fake driver: from the node to the numbers."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from _pytest.mark.structures import ParameterSet
from onnx import helper

from onnxfuse import custom_ops
from onnxfuse.case import Case
from onnxfuse.op import ONNX_TYPES, Op
from tests.gpu.client import Client, Ran
from tests.gpu.runtime import elements
from tests.ops import harness

FOLDER = Path(custom_ops.__path__[0])
WITHOUT_FORM = {custom_ops._op(name).name for name in custom_ops._folders() if not (FOLDER / name / "kernel_cuda.cc").is_file()}
TYPES = ("float", "float16", "bfloat16")


def _uses() -> list[ParameterSet]:
    """Of each op some ways to use it (what is given, attributes), the smallest and the largest case of a way.

    All of them in all types where the environment has ONNXFUSE_EVERY_CASE.
    """
    ways: dict[object, list[tuple[Op, Case]]] = {}
    for op, case in custom_ops.all_cases():
        if op.name not in WITHOUT_FORM:
            ways.setdefault((op.name, tuple(case.shapes), case.outputs, str(case.types), str(case.attributes)), []).append((op, case))
    chosen = [use for uses in ways.values() for use in (uses[0], max(uses, key=_size))[: 1 + (len(uses) > 1)]]
    by_op = {op.name: [use for use in chosen if use[0] is op] for op, _ in chosen}
    chosen = [use for uses in by_op.values() for use in uses[:: max(1, len(uses) // 3)]]
    plain = [(use, TYPES[0] if number % 3 else TYPES[1 + number // 3 % 2]) for number, use in enumerate(chosen)]
    every = [
        (use, kind)
        for use, kind in itertools.product(custom_ops.all_cases(), TYPES)
        if use[0].name not in WITHOUT_FORM and "T" in use[0].types
    ]
    uses = every if os.environ.get("ONNXFUSE_EVERY_CASE") else plain
    return [
        pytest.param(op, case, kind, id=f"{op.name}-{kind}-{case}")
        for (op, case), kind in uses
        if kind in op.types.get("T", TYPES[:1])  # a generated op's types are those of its program
    ]


def _size(use: tuple[Op, Case]) -> int:
    return max(map(elements, use[1].shapes.values()))


def run(gpu: Client, op: Op, case: Case, kind: str, **options: object) -> tuple[dict[str, np.ndarray], Ran]:
    """The outputs of a case by name, as float64, and what was launched."""
    values, types = harness.feeds(op, case, kind), {"T": kind, **case.types}
    inputs, outputs = op.params(case.attributes)

    def narrow(name: str, type_name: str) -> object:
        return values[name].astype(helper.tensor_dtype_to_np_dtype(ONNX_TYPES[type_name]))

    given = [narrow(p.name, types.get(p.type, p.type)) if p.name in values else None for p in inputs]
    wanted = case.outputs or tuple(p.name for p in outputs)
    kinds = [types.get(p.type, p.type) if p.name in wanted else None for p in outputs]
    ran = gpu.run(op.name, {**op.attributes, **case.attributes}, given, kinds, **options)
    got = {p.name: value.astype(np.float64) for p, value in zip(outputs, ran.outputs[0], strict=True) if value is not None}
    return got, ran


@pytest.mark.parametrize(("op", "case", "kind"), _uses())
def test_kernel_gives_the_numbers_of_the_body(gpu: Client, op: Op, case: Case, kind: str) -> None:
    got, ran = run(gpu, op, case, kind)
    harness.assert_close(got, harness.exact(op, case, kind), op.tolerance[kind])
    assert ran.made == [event for event in ran.made if event["event"] == "load"], "the making of a node starts nothing"
    assert all(event["event"] == "launch" for event in ran.launches), "what the model tells is loaded when the node is made"
