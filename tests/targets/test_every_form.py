"""Each op in operators of others gives the numbers of its body, in every use that they can say."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import pytest

from onnxfuse.case import Case
from onnxfuse.custom_ops import all_cases
from onnxfuse.kernels import OWN_OF_RUNTIME, types_of
from onnxfuse.op import DOMAIN, Op
from onnxfuse.rule import Decline
from onnxfuse.verify.compare import REWRITE_BUDGETS, difference
from tests.ops.harness import exact, feeds, run
from tests.targets.harness import forms, target, written

TARGETS = ("contrib", "standard")
OPSETS = (14, 17, 24)
BUDGETS = {"float": REWRITE_BUDGETS["float32"], "float16": REWRITE_BUDGETS["float16"], "bfloat16": REWRITE_BUDGETS["bfloat16"]}
# Empty inputs are left out: the runtime's own kernels refuse some, with an error where ours give nothing.
USES = [(op, case) for op, case in all_cases() if op.name in forms() and all(0 not in shape for shape in case.shapes.values())]
SAID = [(name, to) for name, form in forms().items() for to in TARGETS if getattr(form, to) is not None]


@cache
def models(op_name: str, case_index: int, to: str, kind: str, opset: int) -> tuple[onnx.ModelProto, ...] | str:
    """The forms of one use, or why there is none."""
    op, case = USES[case_index]
    assert op.name == op_name
    try:
        return tuple(written(op, case, kind, target(to), opset))
    except Decline as reason:
        return str(reason)


def can_run(model: onnx.ModelProto, kind: str) -> bool:
    """Whether the runtime has kernels for all of a model: standard operators without one are made of others, of float at least."""
    return kind == "float" or any(kind in types_of(n.domain, n.op_type, "cpu") for n in model.graph.node)


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize(("index", "op", "case"), [(i, *use) for i, use in enumerate(USES)], ids=[f"{op.name} {case}" for op, case in USES])
def test_gives_the_numbers_of_the_body(index: int, op: Op, case: Case, to: str) -> None:
    for kind in op.types["T"]:
        want = None
        for opset in OPSETS:
            made = models(op.name, index, to, kind, opset)
            if isinstance(made, str):
                assert made
                continue
            want = exact(op, case, kind) if want is None else want
            for model in (m for m in made if can_run(m, kind)):
                assert DOMAIN not in {n.domain for n in model.graph.node}
                if not any(n.op_type in OWN_OF_RUNTIME for n in model.graph.node):
                    onnx.checker.check_model(model)
                got = run(model, feeds(op, case, kind), register=False, optimizations=False)
                assert got.keys() == want.keys()
                for name, value in got.items():
                    with np.errstate(over="ignore"):
                        wrong = difference(value.astype(np.float32), want[name].astype(np.float32), BUDGETS[kind])
                    assert wrong is None, f"{to} {kind} opset {opset}: {name}: {wrong}"


@pytest.mark.parametrize(("name", "to"), SAID)
def test_says_some_use(name: str, to: str) -> None:
    ours = [(i, op) for i, (op, _) in enumerate(USES) if op.name == name]
    assert any(not isinstance(models(name, i, to, "float", opset), str) for i, _ in ours for opset in OPSETS)


@pytest.mark.parametrize("name", forms())
def test_every_folder_with_forms_has_one(name: str) -> None:
    assert forms()[name].contrib or forms()[name].standard
