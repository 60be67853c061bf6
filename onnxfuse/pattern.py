"""Patterns: the equation a rule looks for, written with Python's operators.

    x, bias = Var("x"), Var("bias")
    op.Gelu(x + bias, approximate="none")        # or 0.5 * s * (1 + op.Erf(s / sqrt(2))): the same pattern

A pattern is brought into the same algebra as the graph, so operand order, constants folded differently, and other
spellings of the same function need no copies of the rule. `optional` and `either` say what may differ in meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import onnx

from onnxfuse.errors import RuleError
from onnxfuse.identities import Canonical
from onnxfuse.term import NUMBER, Term

NAMED = "#named"
MAX_ALTERNATIVES = 256


class Pattern:
    """An equation with holes. Build one from `Var`, `Scalar`, numbers, operators and `op.Name(...)`."""

    def __init__(self, op: str, args: tuple[Operand, ...] = (), attributes: Mapping[str, Any] | None = None) -> None:
        self.op = op
        self.args = tuple(a if isinstance(a, Pattern) else Number(a) for a in args)
        self.attributes = dict(attributes or {})

    def __add__(self, other: Operand) -> Pattern:
        return Pattern("Add", (self, other))

    def __radd__(self, other: Operand) -> Pattern:
        return Pattern("Add", (other, self))

    def __sub__(self, other: Operand) -> Pattern:
        return Pattern("Sub", (self, other))

    def __rsub__(self, other: Operand) -> Pattern:
        return Pattern("Sub", (other, self))

    def __mul__(self, other: Operand) -> Pattern:
        return Pattern("Mul", (self, other))

    def __rmul__(self, other: Operand) -> Pattern:
        return Pattern("Mul", (other, self))

    def __truediv__(self, other: Operand) -> Pattern:
        return Pattern("Div", (self, other))

    def __rtruediv__(self, other: Operand) -> Pattern:
        return Pattern("Div", (other, self))

    def __pow__(self, exponent: float) -> Pattern:
        return Pattern("Pow", (self, exponent))

    def __matmul__(self, other: Operand) -> Pattern:
        return Pattern("MatMul", (self, other))

    def __neg__(self) -> Pattern:
        return Pattern("Neg", (self,))

    def named(self, name: str) -> Pattern:
        """The same pattern; what it matched is known by `name`, and can be an output of the fused op."""
        return Pattern(NAMED, (self,), {"name": name})


Operand = Pattern | float | int


class Number(Pattern):
    def __init__(self, value: float) -> None:
        super().__init__("#number")
        self.value = float(value)


class Var(Pattern):
    """A hole for one tensor; the same Var must be the same value everywhere.

    constant: only weights and literals fit. computed: only what depends on an input of the model fits.
    """

    def __init__(self, name: str, *, constant: bool = False, computed: bool = False) -> None:
        super().__init__("#variable")
        self.name = name
        self.constant = constant
        self.computed = computed


class Scalar(Pattern):
    """A hole for a constant number, in the equation or as an attribute: `op.LayerNormalization(x, axes=axes, epsilon=eps)`.

    As an attribute it takes whatever the attribute holds (a tuple of axes, a string).
    """

    def __init__(self, name: str) -> None:
        super().__init__("#scalar")
        self.name = name


@dataclass(frozen=True)
class Choice:
    """One alternative of a pattern, as a term; `absent`: Vars that only other alternatives have."""

    term: Term
    names: frozenset[str]


class _Either(Pattern):
    def __init__(self, options: tuple[Pattern | None, ...]) -> None:
        super().__init__("#either")
        self.options = options


def either(*options: Operand) -> Pattern:
    """Any one of several patterns, here. They need not have the same Vars."""
    return _Either(tuple(o if isinstance(o, Pattern) else Number(o) for o in options))


def optional(part: Pattern) -> Pattern:
    """An operand that may be missing: `x + optional(bias)` matches x + bias, and x alone."""
    return _Either((part, None))


class _Ops:
    """`op.Name(args, attribute=...)`: any canonical or ONNX operator as a pattern."""

    def __getattr__(self, name: str) -> Callable[..., Pattern]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **attributes: Pattern(name, args, attributes)


op = _Ops()
ARITHMETIC = {"Add", "Sub", "Mul", "Div", "Neg", "Pow", "Sqrt", "Reciprocal"}


def alternatives(pattern: Pattern) -> list[Pattern]:
    """The pattern with each `either` and `optional` decided, in all ways, most specific (with every optional part) first.

    Raises RuleError when they multiply to more than 256.
    """
    found: list[Pattern] = []
    for expanded in _expand(pattern):
        if len(found) == MAX_ALTERNATIVES:
            more = f"more than {MAX_ALTERNATIVES} alternatives"
            raise RuleError(f"the pattern has {more}. Split the rule, or use fewer either() and optional()")
        if expanded is None:
            raise RuleError("the whole pattern is optional. Give it a part that must be there")
        found.append(expanded)
    return found


def choices(pattern: Pattern, algebra: Canonical) -> list[Choice]:
    """All alternatives of a pattern as terms, most specific first. Raises RuleError, see `alternatives`."""
    found: dict[int, Choice] = {}
    for expanded in alternatives(pattern):
        term = _lower(expanded, algebra)
        found.setdefault(term.id, Choice(term, frozenset(_names(expanded))))
    return list(found.values())


Decision = Mapping["_Either", int]


def _expand(pattern: Pattern, decision: Decision | None = None) -> Iterator[Pattern | None]:
    """The pattern with each `either` decided, in all ways; the same object is decided the same way everywhere."""
    made = decision or {}
    switch = _undecided(pattern, made)
    if switch is None:
        yield _decide(pattern, made)
        return
    for position in range(len(switch.options)):
        yield from _expand(pattern, {**made, switch: position})


def _undecided(pattern: Pattern, decision: Decision) -> _Either | None:
    """The first choice that is still to be made, among those that the others leave standing."""
    if isinstance(pattern, _Either):
        if pattern not in decision:
            return pattern
        option = pattern.options[decision[pattern]]
        return None if option is None else _undecided(option, decision)
    return next((s for a in pattern.args if (s := _undecided(a, decision)) is not None), None)


def _decide(pattern: Pattern, decision: Decision) -> Pattern | None:
    if isinstance(pattern, _Either):
        option = pattern.options[decision[pattern]]
        return None if option is None else _decide(option, decision)
    if not pattern.args:
        return pattern
    args = [_decide(a, decision) for a in pattern.args]
    kept = tuple(a for a in args if a is not None)
    if len(kept) == len(args):
        return Pattern(pattern.op, kept, pattern.attributes)
    if pattern.op in ("Add", "Mul") and len(kept) == 1:
        return kept[0]
    if pattern.op in ("Sub", "Div") and len(kept) == 1:
        return kept[0] if args[0] is not None else Pattern({"Sub": "Neg", "Div": "Reciprocal"}[pattern.op], kept)
    return Pattern(pattern.op, kept, pattern.attributes) if kept else None


def _names(pattern: Pattern) -> Iterator[str]:
    if isinstance(pattern, (Var, Scalar)):
        yield pattern.name
    for arg in pattern.args:
        yield from _names(arg)
    for value in pattern.attributes.values():
        if isinstance(value, Scalar):
            yield value.name


def _lower(pattern: Pattern, algebra: Canonical) -> Term:
    if isinstance(pattern, Number):
        return algebra.number(pattern.value)
    if isinstance(pattern, (Var, Scalar)):
        return algebra.variable(pattern)
    args = [_lower(a, algebra) for a in pattern.args]
    if pattern.op == NAMED:
        return algebra.plain(NAMED, args, pattern.attributes)
    if pattern.op in ARITHMETIC:
        return _arithmetic(pattern.op, args, algebra)
    return algebra.operation(pattern.op, args, {**_schema_defaults(pattern.op), **pattern.attributes})


def _arithmetic(name: str, args: list[Term], algebra: Canonical) -> Term:
    one = algebra.number(1.0)
    if name == "Pow":
        if isinstance(args[1].tag, Scalar):
            raise RuleError(f"a pattern's exponent must be a number or a Var; it is Scalar('{args[1].tag.name}'). Write a rule per number")
        return algebra.power(args[0], args[1].coefficient) if args[1].op == NUMBER else algebra.operation("Pow", args)
    table: Mapping[str, Callable[[], Term]] = {
        "Add": lambda: algebra.add(*args),
        "Sub": lambda: algebra.subtract(*args),
        "Mul": lambda: algebra.multiply(*args),
        "Div": lambda: algebra.divide(*args),
        "Neg": lambda: algebra.negate(args[0]),
        "Sqrt": lambda: algebra.power(args[0], 0.5),
        "Reciprocal": lambda: algebra.divide(one, args[0]),
    }
    return table[name]()


def _schema_defaults(name: str) -> dict[str, Any]:
    """Defaults of the newest opset for operators the view leaves as they are; canonical ops have none."""
    if name in CANONICAL_ATTRIBUTES:
        return {}
    try:
        schema = onnx.defs.get_schema(name)
    except onnx.defs.SchemaError:
        return {}
    given = {n: a.default_value for n, a in schema.attributes.items() if a.default_value.type != onnx.AttributeProto.UNDEFINED}
    values = {n: onnx.helper.get_attribute_value(v) for n, v in given.items()}
    return {n: v.decode() if isinstance(v, bytes) else v for n, v in values.items()}


# operators whose canonical form has its own attributes (see onnxfuse/canonical/): a pattern must give each of them
CANONICAL_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "LayerNormalization": ("axes", "epsilon"),
    "RMSNormalization": ("axes", "epsilon"),
    "BoundedNormalization": ("axes", "epsilon"),
    "GroupNormalization": ("num_groups", "epsilon"),
    "Conv": ("settings",),
    "Mean": ("axes", "keepdims"),
    "ReduceSum": ("axes", "keepdims"),
    "ReduceMax": ("axes", "keepdims"),
    "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"),
    "Swish": ("alpha",),
    "Gelu": ("approximate",),
    "Softmax": ("axis",),
    "Concat": ("axis",),
    "View": ("layout",),
    "AttentionOperator": ("settings",),
}


def sqrt(value: float) -> float:
    """The square root, for constants in patterns."""
    return math.sqrt(value)


@dataclass(frozen=True)
class Call:
    """What a match becomes: an op with its operands by position (None: absent) and attributes."""

    domain: str
    name: str
    operands: tuple[Any, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[Any, ...] = (None,)  # what the 2nd, 3rd, ... output gives: a sub-pattern's name, a Value, or None; the first is the root
    op: Any = None  # the `onnxfuse.op.Op`, for ops of ours
    context: tuple[Any, ...] = ()  # Nodes in front, in order: what they make is relied on, so a rewrite is validated behind them
    title: str = ""  # what people are told it becomes, where the op's name alone does not say it
    then: tuple[Any, ...] = ()  # `rule.Made`s that in turn make the root of the first output, each taking it as its first operand

    @property
    def label(self) -> str:
        """The op as people write it: `com.microsoft.Gelu`; ours and standard ones by their name alone."""
        if self.title:
            return self.title
        return self.name if self.domain in ("", "ai.onnx") or self.op is not None else f"{self.domain}.{self.name}"

    def giving(self, *outputs: Any) -> Call:
        """The call with what its further outputs stand for: sub-pattern names, Values, or None."""
        return replace(self, outputs=(None, *outputs))

    def relying_on(self, *context: Any) -> Call:
        """The call with the Nodes whose doing makes it right, though it does not replace them."""
        return replace(self, context=context)

    def followed_by(self, *steps: Any) -> Call:
        """The call with standard operators (`rule.Made`, less their first operand) between its first output and the root."""
        return replace(self, then=steps)


class _Domain:
    def __init__(self, domain: str) -> None:
        self._domain = domain

    def __getattr__(self, name: str) -> Callable[..., Call]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *operands, **attributes: Call(self._domain, name, operands, attributes)


def target(domain: str) -> Any:
    """Ops of another library as a rule's result: `target("com.microsoft").BiasGelu(x, bias)`; "" is standard ONNX."""
    return _Domain(domain)
