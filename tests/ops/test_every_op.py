"""What holds for every op that there is."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import onnx
import pytest
from _pytest.mark.structures import ParameterSet

from onnxfuse import custom_ops
from onnxfuse.case import Case, Refusal
from onnxfuse.errors import ModelError
from onnxfuse.op import Op
from tests.ops import harness

TYPES = ("float", "float16", "bfloat16")
OPSETS = range(11, 26)
FIRST_BFLOAT16_OPSET = 13
WITH_LIBRARY = (11, 13, 25)  # a kernel takes no notice of the opset: the oldest and the newest will do
FIXED = {name: op for name, op in custom_ops.all_ops().items() if op.formals is None}  # the others take what their program says


def _every_use() -> list[ParameterSet]:
    return [
        pytest.param(op, case, kind, id=f"{op.name}-{kind}-{case}")
        for op, case in custom_ops.all_cases()
        for kind in harness.kinds(op, TYPES)
    ]


def _every_body() -> list[ParameterSet]:
    """One case for each body that the cases of ops with a fixed meaning bring about; it has elements."""
    uses: dict[bytes, ParameterSet] = {}
    for use in sorted(
        (use for use in _every_use() if use.values[0].formals is None), key=lambda use: 0 in itertools.chain(*use.values[1].shapes.values())
    ):
        op, case, kind = use.values
        uses.setdefault(op.body(harness.instance(op, case, kind)).SerializeToString(deterministic=True), use)
    return list(uses.values())


def _every_refusal() -> list[ParameterSet]:
    return [pytest.param(op, refusal, id=f"{op.name}-{number}") for number, (op, refusal) in enumerate(custom_ops.all_refusals())]


@pytest.mark.parametrize(("op", "case", "kind"), _every_use())
def test_kernel_gives_the_numbers_of_the_body_and_the_inferred_shapes(op: Op, case: Case, kind: str) -> None:
    values = harness.feeds(op, case, kind)
    got = harness.run(harness.node_model(op, case, kind), values, register=True)
    harness.assert_close(got, harness.exact(op, case, kind), harness.tolerance(op, case, kind))
    inferred = op.infer(case.shapes, {**op.attributes, **case.attributes})
    assert {name: value.shape for name, value in got.items()} == {name: inferred[name] for name in got}


@pytest.mark.parametrize(("op", "case", "kind"), _every_use())
def test_model_gives_the_same_numbers_without_the_library(op: Op, case: Case, kind: str) -> None:
    values = harness.feeds(op, case, kind)
    model = harness.node_model(op, case, kind, body=True)
    got = harness.run(model, values, register=False, optimizations=False)
    harness.assert_close(got, harness.exact(op, case, kind), harness.tolerance(op, case, kind))


@pytest.mark.parametrize(("op", "case", "kind"), _every_body())
@pytest.mark.parametrize("opset", OPSETS)
def test_body_is_valid_at_every_opset(op: Op, case: Case, kind: str, opset: int) -> None:
    if kind == "bfloat16" and opset < FIRST_BFLOAT16_OPSET:
        return  # no model of that opset holds bfloat16 values
    model = harness.node_model(op, case, kind, opset=opset, body=True)
    onnx.checker.check_model(model)
    values = harness.feeds(op, case, kind)
    harness.assert_close(harness.run(model, values, register=False), harness.exact(op, case, kind), harness.tolerance(op, case, kind))
    if opset in WITH_LIBRARY:
        harness.assert_close(harness.run(model, values, register=True), harness.exact(op, case, kind), harness.tolerance(op, case, kind))


@pytest.mark.parametrize(("op", "refusal"), _every_refusal())
def test_bad_use_ends_in_an_error_that_names_op_and_node(op: Op, refusal: Refusal) -> None:
    model = harness.node_model(op, refusal, refusal.types.get("T", harness.kinds(op, TYPES)[0]))
    with pytest.raises(Exception, match=re.escape(f"onnxfuse {op.name} 'tested': ") + ".*" + re.escape(refusal.says)):
        harness.run(model, harness.feeds(op, refusal, harness.kinds(op, TYPES)[0]), register=True)


@pytest.mark.parametrize("op", FIXED.values(), ids=FIXED)
def test_type_that_no_body_admits_is_refused_when_the_model_is_loaded(op: Op) -> None:
    case = next(case for other, case in custom_ops.all_cases() if other is op)
    with pytest.raises(ModelError, match="double"):
        harness.run(harness.node_model(op, case, "double"), harness.feeds(op, case, "double"), register=True)


@pytest.mark.parametrize("op", FIXED.values(), ids=FIXED)
def test_source_of_the_library_states_the_same_signature(op: Op) -> None:
    folder = next(name for name in custom_ops._folders() if custom_ops._op(name) is op)
    source = (Path(custom_ops.__path__[0]) / folder / "op.cc").read_text()
    text = re.search(r"\.signature\s*=\s*((?:\"[^\"]*\"\s*)+)", source)
    assert text is not None
    assert "".join(re.findall(r'"([^"]*)"', text[1])) == op.signature
