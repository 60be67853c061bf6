"""Models as text, what is generated for them, and their numbers before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from onnxfuse import api
from onnxfuse.decision import Decision, Verdict
from onnxfuse.generated.candidates import GENERATORS
from onnxfuse.op import DOMAIN
from onnxfuse.report.record import Report
from onnxfuse.ruletest import parse
from tests.engine.harness import assert_same_numbers

NAMES = tuple(GENERATORS)
OPSET = 18  # from here on all reductions take their axes as an input


def generate(text: str | onnx.ModelProto, only: Sequence[str] = NAMES, **options: Any) -> tuple[onnx.ModelProto, Report]:
    """The model with all that can be generated and nothing that rules find; its numbers are as before."""
    model = parse(text, opset=OPSET) if isinstance(text, str) else text
    result = api.optimize(model, level=options.pop("level", "all"), only=only, verify=False, **options)
    assert_same_numbers(model, result.model)
    return result.model, result.report


def programs(model: onnx.ModelProto) -> list[str]:
    """The texts of the programs in a model, in order."""
    return [next(a.s.decode() for a in n.attribute if a.name == "program") for n in model.graph.node if n.domain == DOMAIN]


def kept(model: onnx.ModelProto) -> list[str]:
    """Types of the other nodes."""
    return [n.op_type for n in model.graph.node if n.domain != DOMAIN and n.op_type != "Constant"]


def apart(text: str, **options: Any) -> dict[str, str]:
    """For each node in no region, by its output, why."""
    found: Sequence[Decision] = api.explain(parse(text, opset=OPSET), level="all", each_node=True, **options).decisions
    return {d.value: d.reason for d in found if d.verdict is Verdict.NEAR_MISS and d.numbers.get("apart")}
