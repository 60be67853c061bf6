"""SwiGLU: silu(gate) up, with silu(v) = v sigmoid(alpha v), in one pass over memory.

Without `up`, gate holds both side by side on its last axis, the gate first where gate_first is 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxfuse.op import Attribute, Instance, Op, Shape, show
from onnxfuse.reference import Reference, silu


def _reference(instance: Instance) -> str:
    r = Reference(instance)
    gate = r.wide("gate")
    if r.has("up"):
        up = r.wide("up")
    elif instance.attributes["gate_first"]:
        gate, up = r.halves(gate)
    else:
        up, gate = r.halves(gate)
    r.give("y", r.op("Mul", silu(r, gate, float(instance.attributes["alpha"])), up))
    return r.text


def _limits(shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> str | None:
    gate = shapes["gate"]
    if "up" not in shapes and isinstance(gate[-1], int) and gate[-1] % 2:
        return f"gate must have an even last axis where up is not given; got {show(gate)}"
    return None


def _output_shapes(shapes: Mapping[str, Shape], attributes: Mapping[str, Attribute]) -> Mapping[str, Shape]:
    gate = shapes["gate"]
    return {"y": gate if "up" in shapes else (*gate[:-1], gate[-1] // 2)}


SWIGLU = Op(
    signature="SwiGLU(gate: T[..., m], up: T[..., m]?) -> (y: T)",
    types={"T": ("float", "float16", "bfloat16")},
    attributes={"alpha": 1.0, "gate_first": 1},
    reference=_reference,
    tolerance={"float": 2e-6, "float16": 6e-4, "bfloat16": 4e-3},
    output_shapes=_output_shapes,
    limits=_limits,
)
