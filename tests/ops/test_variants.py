"""An op goes by several names, so that a model can carry several bodies for it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxfuse import custom_ops
from onnxfuse.case import Case
from onnxfuse.op import Op, variant_name
from tests.ops.harness import feeds, node_model, run

FIRST = {op.name: (op, case) for op, case in reversed(custom_ops.all_cases())}


@pytest.mark.parametrize(("op", "case"), FIRST.values(), ids=FIRST)
@pytest.mark.parametrize("number", [2, 6])
def test_the_library_knows_an_op_by_its_other_names(op: Op, case: Case, number: int) -> None:
    model = node_model(op, case, "float")
    renamed = onnx.ModelProto()
    renamed.CopyFrom(model)
    (node,) = (n for n in renamed.graph.node if n.op_type == op.name)
    node.op_type = variant_name(op.name, number)
    values = feeds(op, case, "float")
    want, got = run(model, values, register=True), run(renamed, values, register=True)
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value)
