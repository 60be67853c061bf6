"""What a generated operator computes: a small typed program in single assignment form, and its text.

    x0:float x1:float16 x2:bool
    v0:float = Const(0.5)
    v1:float = Mul(x0, v0)
    v2:float = Cast(x1)
    v3:float = Where(x2, v1, v2)
    -> v3

Inputs, one value a line, results. Inputs broadcast to one shape that is only known when the operator runs; every value has
it. `v4:float = Concat(x0, x3, -1)` is inputs one behind the other along an axis, and broadcasts in their place. In a reduction
a Reduce has size 1 over the row's axes, and so has what is computed of such values, of constants and of inputs declared `/row`
alone. docs/generated.md says it all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from onnxfuse.errors import UsageError
from onnxfuse.generated.primitives import CONCAT, CONST, DIM, MOST_PIECES, PRIMITIVES, TYPES, is_integer, is_reduction

Number = bool | int | float


@dataclass(frozen=True)
class Input:
    """An input of the operator. row: its axes of the row, if it has them, have size 1."""

    type: str
    row: bool = False


@dataclass(frozen=True)
class Step:
    """One value: `op` applied to operands `x0`, `v3`. number: what a Const holds, or the axis of a Dim or Concat."""

    op: str
    type: str
    operands: tuple[str, ...] = ()
    number: Number | None = None


@dataclass(frozen=True)
class Program:
    """Values v0, v1, ... made by `steps` in order from inputs x0, x1, ...; `results` are the operator's outputs.

    Raises UsageError where it is not well formed.
    """

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    results: tuple[str, ...]

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def types(self) -> dict[str, str]:
        """The type of each input and value, by name."""
        named = {f"x{i}": given.type for i, given in enumerate(self.inputs)}
        return named | {f"v{i}": step.type for i, step in enumerate(self.steps)}

    @cached_property
    def rows(self) -> frozenset[str]:
        """Names of inputs and values that have size 1 over the row's axes."""
        found = {f"x{i}" for i, given in enumerate(self.inputs) if given.row}
        constants: set[str] = set()  # and what is computed of nothing else: they are of no shape
        for i, step in enumerate(self.steps):
            plain = [o for o in step.operands if o not in constants]
            if step.op == CONCAT:
                continue
            if step.op == DIM or not plain:
                constants.add(f"v{i}")
            elif is_reduction(step.op) or found.issuperset(plain):
                found.add(f"v{i}")
        return frozenset(found)

    @property
    def is_reduction(self) -> bool:
        """Whether it reduces rows."""
        return any(is_reduction(step.op) for step in self.steps)

    @property
    def ops(self) -> tuple[str, ...]:
        """The primitives in it, in order, without constants."""
        return tuple(step.op for step in self.steps if step.op != CONST)

    @property
    def text(self) -> str:
        """The text form; `parse` reads it back."""
        head = " ".join(f"x{i}:{given.type}{'/row' if given.row else ''}" for i, given in enumerate(self.inputs))
        lines = [f"v{i}:{step.type} = {step.op}({', '.join(_shown(step))})" for i, step in enumerate(self.steps)]
        return "\n".join([head, *lines, f"-> {', '.join(self.results)}"])


def parse(text: str) -> Program:
    """Read the text form. Raises UsageError with the line that is wrong."""
    head, *lines = [line.strip() for line in text.strip().splitlines()] or [""]
    inputs = tuple(_input(word, i) for i, word in enumerate(head.split()))
    if not lines or not lines[-1].startswith("->"):
        raise UsageError(f"program: must end in a line `-> v3` with its results; got {lines[-1] if lines else head!r}")
    steps = tuple(_step(line, i) for i, line in enumerate(lines[:-1]))
    return Program(inputs, steps, tuple(lines[-1][2:].replace(",", " ").split()))


_INPUT = re.compile(r"x(\d+):(\w+)(/row)?")
_STEP = re.compile(r"v(\d+)\s*:\s*(\w+)\s*=\s*(\w+)\s*\(([^()]*)\)")


def _input(word: str, place: int) -> Input:
    found = _INPUT.fullmatch(word)
    if found is None or int(found[1]) != place:
        raise UsageError(f"program: input {place} must be written `x{place}:float`; got {word!r}")
    return Input(found[2], bool(found[3]))


def _step(line: str, place: int) -> Step:
    found = _STEP.fullmatch(line)
    if found is None or int(found[1]) != place:
        raise UsageError(f"program: value {place} must be written `v{place}:float = Mul(x0, x1)`; got {line!r}")
    kind, op, words = found[2], found[3], [word.strip() for word in found[4].split(",") if word.strip()]
    if op == CONST and len(words) == 1:
        return Step(op, kind, (), _number(words[0], kind, line))
    if op in (DIM, CONCAT) and len(words) > 1:
        return Step(op, kind, tuple(words[:-1]), _number(words[-1], "int64", line))
    return Step(op, kind, tuple(words))


def _number(word: str, kind: str, line: str) -> Number:
    try:
        if kind == "bool":
            return {"true": True, "false": False}[word]
        return int(word, 0) if is_integer(kind) else float.fromhex(word) if "0x" in word.lower() else float(word)
    except (KeyError, ValueError):
        raise UsageError(f"program: a {kind} must be a number of that type; got {word!r} in {line!r}") from None


def _shown(step: Step) -> Iterable[str]:
    yield from step.operands
    if isinstance(step.number, bool):
        yield str(step.number).lower()
    elif step.number is not None:
        yield repr(step.number)


def _check(program: Program) -> None:
    known = {}
    for i, given in enumerate(program.inputs):
        _check_type(given.type, f"x{i}")
        known[f"x{i}"] = given.type
    for i, step in enumerate(program.steps):
        _check_step(step, f"v{i}", known, len(program.inputs))
        known[f"v{i}"] = step.type
    if not program.results or len(set(program.results)) < len(program.results):
        raise UsageError(f"program: results must be one or more different values; got {' '.join(program.results) or 'none'}")
    for result in program.results:
        if not result.startswith("v") or result not in known:
            raise UsageError(f"program: a result must be a value that a step makes; got {result!r}")
    if any(step.op.startswith("Reduce") and step.operands[0] in program.rows for step in program.steps):
        raise UsageError("program: a reduction must read what has a whole row; it reads what was reduced")


def _check_step(step: Step, name: str, known: dict[str, str], inputs: int) -> None:
    _check_type(step.type, name)
    missing = [operand for operand in step.operands if operand not in known]
    if missing:
        raise UsageError(f"program: {name} = {step.op} must read inputs or earlier values; it reads {missing[0]!r}")
    primitive = PRIMITIVES.get(step.op)
    if primitive is None and step.op != CONCAT:
        raise UsageError(f"program: {name} must be made by a primitive that there is; got {step.op!r}")
    kinds = [known[operand] for operand in step.operands]
    problem = _concat_problem(step, kinds) if primitive is None else primitive.problem(kinds, step.type)
    if problem is None and (step.number is None) == (step.op in (CONST, DIM, CONCAT)):
        problem = "a Const has a number, a Dim and a Concat have an axis, and nothing else has one"
    if problem is None and step.op == DIM and not step.operands[0].startswith("x"):
        problem = "a Dim is of an input"
    if problem is not None:
        raise UsageError(f"program: {name}:{step.type} = {step.op}({', '.join(_shown(step))}): {problem}")


def _concat_problem(step: Step, kinds: list[str]) -> str | None:
    if not 1 <= len(kinds) <= MOST_PIECES:
        return f"a Concat is of 1 to {MOST_PIECES} inputs"
    if any(operand[0] != "x" for operand in step.operands) or set(kinds) != {step.type}:
        return "a Concat is of inputs of its own type"
    return "the axis of a Concat is counted from the end: -1 is the last" if step.number is None or step.number >= 0 else None


def _check_type(kind: str, name: str) -> None:
    if kind not in TYPES:
        raise UsageError(f"program: {name} must be of type {', '.join(TYPES)}; got {kind!r}")
