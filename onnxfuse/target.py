"""What fused ops are written in: our own, ONNX Runtime's contrib operators, or standard ONNX.

Rules name a meaning once, as a call of one of our ops. Each op says in its `targets.py` how a use of it is written
without our library, or raises Decline where it cannot be: nothing about another operator is taken on trust, so what
it does not say exactly (a mask value, a row that is masked throughout, a type without a kernel) is a reason not to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from onnxfuse.graph import Value
from onnxfuse.kernels import CONTRIB, KERNELS, OWN_OF_RUNTIME, SINCE, label, types_of
from onnxfuse.op import TYPE_NAMES, Attribute, Op, Shape
from onnxfuse.pattern import Call
from onnxfuse.rule import Decline, Made, Match, NewConstant, Operand

TARGETS = ("onnxfuse", "contrib", "standard")
DOMAINS = {"contrib": ("", "ai.onnx", CONTRIB), "standard": ("", "ai.onnx")}
GivenOperand = Value | NewConstant | Made


@dataclass(frozen=True)
class Use:
    """One call of an op of ours that is to be written in other operators.

    device: "cpu" or "cuda". needs_kernel: only operators that ONNX Runtime has a kernel for there will do.
    """

    match: Match
    call: Call
    device: str
    needs_kernel: bool

    @property
    def opset(self) -> int:
        return self.match.view.graph.opset

    @property
    def type(self) -> str:
        """The type of the result: float16."""
        return TYPE_NAMES[self.match.root.dtype]

    def get(self, name: str) -> Operand:
        """An input of the op by its name, None where it is absent."""
        op: Op = self.call.op
        position = [p.name for p in op.inputs].index(name)
        return self.call.operands[position] if position < len(self.call.operands) else None

    def operand(self, name: str) -> GivenOperand:
        """An input that is given, and whose shape is known: what the op's signature demands."""
        operand = self.get(name)
        assert operand is not None and operand.shape is not None, f"{self.call.name} has no input {name}"
        return operand

    def shape(self, name: str) -> Shape:
        shape = self.operand(name).shape
        assert shape is not None
        return shape

    def output(self, name: str) -> Any:
        """What a further output of the op stands for, None where nobody needs it."""
        op: Op = self.call.op
        position = [p.name for p in op.outputs].index(name)
        return self.call.outputs[position] if position < len(self.call.outputs) else None

    def attribute(self, name: str) -> Attribute:
        op: Op = self.call.op
        return {**op.attributes, **self.call.attributes}[name]  # type: ignore[no-any-return]  # a rule's attributes are of any type

    def number(self, name: str) -> float:
        return float(self.attribute(name))

    def contrib(self, name: str, *operands: Operand, **attributes: Attribute) -> Call:
        """A call of a contrib operator. Raises Decline where ONNX Runtime has no kernel of it for the type and device."""
        domain = "" if name in OWN_OF_RUNTIME else CONTRIB
        self.check_kernel(domain, name)
        return _call(domain, name, operands, attributes)

    def standard(self, name: str, *operands: Operand, **attributes: Attribute) -> Call:
        """A call of a standard operator. Raises Decline where the model's opset lacks it, or where a kernel is needed and missing."""
        if self.opset < SINCE[name]:
            raise Decline(f"the model must import opset {SINCE[name]} or later for {name}; it imports {self.opset}")
        if self.needs_kernel:
            self.check_kernel("", name)
        return _call("", name, operands, attributes)

    def check_kernel(self, domain: str, name: str) -> None:
        """Raises Decline where ONNX Runtime has no kernel of the operator for the type and device."""
        known = types_of(domain, name, self.device)
        if self.type not in known:
            have = ", ".join(known) or "no type at all"
            wanted = f"a kernel of {label(domain, name)} for {self.type} on {self.device}"
            raise Decline(f"ONNX Runtime must have {wanted}; it has one for {have}")


def _call(domain: str, name: str, operands: tuple[Operand, ...], attributes: Mapping[str, Attribute]) -> Call:
    while operands and operands[-1] is None:
        operands = operands[:-1]
    return Call(domain, name, operands, attributes)


Form = Callable[[Use], Call]


@dataclass(frozen=True)
class Forms:
    """How an op is written without our library: `FORMS` in its `targets.py`. None: there is no such operator."""

    contrib: Form | None = None
    standard: Form | None = None


@dataclass(frozen=True)
class Target:
    """One of TARGETS on a device ("cpu" or "cuda"), with the forms of each op by its name."""

    name: str = "onnxfuse"
    device: str = "cpu"
    forms: Mapping[str, Forms] = field(default_factory=dict)

    def write(self, match: Match, call: Call) -> list[Call]:
        """What the target has for a call of a rule, best first. Raises Decline with the reasons when it has nothing.

        A contrib model may use standard operators too, where ONNX Runtime has their kernels.
        """
        if self.name == "onnxfuse":
            return [call]
        if not isinstance(call.op, Op):
            return [self._allowed(match, call)]
        use = Use(match, call, self.device, needs_kernel=self.name == "contrib")
        forms = self.forms.get(call.name, Forms())
        wanted = [f for f in (forms.contrib if self.name == "contrib" else None, forms.standard) if f is not None]
        if not wanted:
            raise Decline(f"{' or '.join(_worded(self.name))} must have an operator that does what {call.name} does; there is none")
        forms_found = [replace(c, then=(*c.then, *call.then)) for c in _written(use, wanted)]
        return sorted(forms_found, key=lambda c: len(c.then) + sum(map(_made, c.operands)))

    def _allowed(self, match: Match, call: Call) -> Call:
        if call.domain not in DOMAINS[self.name]:
            allowed = " or ".join(_worded(self.name))
            raise Decline(f"with --target {self.name} the result must be of {allowed}; the rule writes {call.label}")
        if call.label in KERNELS and self.name == "contrib":
            Use(match, call, self.device, needs_kernel=True).check_kernel(call.domain, call.name)
        return call


def _worded(target: str) -> tuple[str, ...]:
    return (CONTRIB, "standard ONNX") if target == "contrib" else ("standard ONNX",)


def _written(use: Use, forms: list[Form]) -> list[Call]:
    """The forms that say this use. Raises Decline with all reasons when none does."""
    found: list[Call] = []
    reasons: list[str] = []
    for form in forms:
        try:
            found.append(form(use))
        except Decline as reason:
            reasons.append(str(reason))
    if not found:
        raise Decline("; and ".join(dict.fromkeys(reasons)))
    return found


def _made(operand: Operand) -> int:
    """How many operators stand in front of an operand."""
    return 1 + sum(map(_made, operand.operands)) if isinstance(operand, Made) else 0
