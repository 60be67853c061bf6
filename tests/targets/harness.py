"""One node of ours written in operators of others, and models fused for a target."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import onnx

from onnxfuse import api, graph, shapes
from onnxfuse.candidate import Candidate
from onnxfuse.canonical import View
from onnxfuse.case import Case
from onnxfuse.custom_ops import all_forms
from onnxfuse.decision import Decision, Verdict
from onnxfuse.op import DOMAIN, Op
from onnxfuse.pattern import Call, Var, op
from onnxfuse.rewriter import rewrite
from onnxfuse.rule import Match, Rule
from onnxfuse.target import Forms, Target
from tests.ops.harness import node_model

NO_RULE = Rule(before=op.Neg(Var("x")), after=lambda match: [])


@cache
def forms() -> dict[str, Forms]:
    return all_forms()


def target(name: str, device: str = "cpu") -> Target:
    return Target(name, device, forms())


def matched(model: onnx.ModelProto) -> tuple[View, Call, graph.Node]:
    """The view of a model with one node of ours, and that node as a rule's call."""
    loaded = graph.load(model)
    shapes.infer(loaded)
    view = View(loaded.main)
    node = next(n for n in loaded.main.nodes if n.domain == DOMAIN)
    return view, Call(DOMAIN, node.op, tuple(node.inputs), node.attributes, (None, *node.outputs[1:])), node


def written(op: Op, case: Case, kind: str, to: Target, opset: int) -> Iterator[onnx.ModelProto]:
    """The model of one node of `op` in every way the target has for it. Raises Decline when it has none."""
    view, call, node = matched(node_model(op, case, kind, opset=opset, body=True, value_info=True))
    root = node.outputs[0]
    assert root is not None
    for form in to.write(Match(view, root, {}), Call(call.domain, call.name, call.operands, call.attributes, call.outputs, op)):
        outputs = [root, *form.outputs[1:]]
        while outputs[-1] is None:
            outputs.pop()
        blank = Decision("none", Verdict.FUSED, view.graph.name, node.label, root.name)
        one = Candidate(NO_RULE, form, view, tuple(outputs), (node,), frozenset([node]), {}, blank)
        model = rewrite(view.graph.model, [one]).proto
        del model.functions[:]
        yield model


def fused(model: onnx.ModelProto, to: str, **options: Any) -> api.Result:
    """All that matches, validated."""
    return api.optimize(model, target=to, level="all", **options)


def operators(model: onnx.ModelProto) -> list[str]:
    """Operators of the main graph, constants left out: com.microsoft.Gelu."""
    return [f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in model.graph.node if n.op_type != "Constant"]


def reasons(result: api.Result) -> str:
    return "\n".join(d.reason for d in result.report.decisions if d.verdict is not Verdict.FUSED)
