"""GLU: f(gate) up, with f sigmoid or relu, in one pass over memory.

Without `up`, gate holds both side by side on the axis `axis` (negative, counted from the end), the gate first where
gate_first is 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxfuse.op import Attribute, Instance, Op, Shape, show
from onnxfuse.reference import Reference

FUNCTIONS = {"sigmoid": "Sigmoid", "relu": "Relu"}


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    gate = r.wide("gate")
    if r.has("up"):
        up = r.wide("up")
    elif instance.attributes["gate_first"]:
        gate, up = r.halves(gate, int(instance.attributes["axis"]))
    else:
        up, gate = r.halves(gate, int(instance.attributes["axis"]))
    r.give("y", r.op("Mul", r.op(FUNCTIONS[str(instance.attributes["activation"])], gate), up))
    return r.text


def _limits(shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> str | None:
    gate, axis = shapes["gate"], int(attributes["axis"])
    if not -len(gate) <= axis < 0:
        return f"axis must be negative and at least minus the rank of gate {show(gate)}; got {axis}"
    if "up" not in shapes and isinstance(gate[axis], int) and gate[axis] % 2:
        return f"gate must have an even axis {axis} where up is not given; got {show(gate)}"
    return None


def _output_shapes(shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> Mapping[str, Shape]:
    gate, axis = shapes["gate"], int(attributes["axis"]) + len(shapes["gate"])
    return {"y": gate if "up" in shapes else (*gate[:axis], gate[axis] // 2, *gate[axis + 1 :])}


GLU = Op(
    signature="GLU(gate: T[...], up: T[...]?) -> (y: T)",
    types={"T": ("float", "float16", "bfloat16")},
    attributes={"activation": "sigmoid", "axis": -1, "gate_first": 1},
    reference=_reference,
    tolerance={"float": 2e-6, "float16": 6e-4, "bfloat16": 4e-3},
    output_shapes=_output_shapes,
    limits=_limits,
)
