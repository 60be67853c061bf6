"""Compares a program run by our library with its body run by ONNX Runtime, and makes what differs smaller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from onnxfuse import runtime
from onnxfuse.errors import OnnxFuseError, UsageError
from onnxfuse.generated.body import body, onnx_type
from onnxfuse.generated.made_up import Array, Example, is_exact
from onnxfuse.generated.primitives import CONST
from onnxfuse.generated.program import Program, Step
from onnxfuse.op import DOMAIN, VERSION

OPSET, IR_VERSION = 20, 9
NUDGE = {"float": 2.0**-20, "float16": 2.0**-9, "double": 2.0**-48}  # by which inputs are moved to see how far results go
ROUNDING = {
    "float": 2.0**-22,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "double": 2.0**-51,
}  # of a function: 2 to 4 units in the last place
ALLOWED = {"float": 4e-6, "float16": 2e-3, "double": 1e-12}  # relative to max(1, |result|), where not every bit must be the same
SPREAD = 4.0  # times as far as nudged inputs move a result


def op_name(program: Program) -> str:
    """The operator that runs a program."""
    return "FusedReduction" if program.is_reduction else "FusedElementwise"


def node_model(example: Example) -> onnx.ModelProto:
    """A model of one node of ours."""
    program = example.program
    axes: dict[str, Any] = {"axes": example.axes} if program.is_reduction else {}
    inputs, outputs = (list(map(str, n)) for n in _formal(program))
    node = helper.make_node(op_name(program), inputs, outputs, "tested", domain=DOMAIN, program=program.text, **axes)
    return _model(example, [node])


def body_model(example: Example) -> onnx.ModelProto:
    """The same in standard operators."""
    name = op_name(example.program)
    return _model(example, list(body(example.program, domain=DOMAIN, name=name, opset=OPSET, axes=example.axes or 1).node))


def _formal(program: Program) -> tuple[list[str], list[str]]:
    return [f"x{i}" for i in range(len(program.inputs))], [f"y{i}" for i in range(len(program.results))]


def _model(example: Example, nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    program = example.program
    inputs, outputs = _formal(program)
    given = [
        helper.make_tensor_value_info(name, onnx_type(x.type), a.shape)
        for name, x, a in zip(inputs, program.inputs, example.arrays, strict=True)
    ]
    made = [
        helper.make_tensor_value_info(name, onnx_type(program.types[r]), None) for name, r in zip(outputs, program.results, strict=True)
    ]
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, VERSION)]
    return helper.make_model(helper.make_graph(nodes, "program", given, made), opset_imports=imports, ir_version=IR_VERSION)


def difference(example: Example) -> str | None:
    """How the library's results differ from the body's; None where they do not, or where ONNX Runtime cannot run the body.

    Raises RuntimeMissingError when the library is missing.
    """
    runtime.library_path()
    try:
        reference = _session(body_model(example), register=False)
        want = _run(reference, example)
    except (OnnxFuseError, _Refused):
        return None
    try:
        got = _run(_session(node_model(example), register=True), example)
    except (OnnxFuseError, _Refused) as error:
        return f"fails where the body runs: {error}"
    exact = exact_values(example.program)
    for name, one, other in zip(example.program.results, got, want, strict=True):
        found = _compared(one, other, exact=name in exact)
        if found and name not in exact and not _is_near(one, other, _moved(reference, example, name)):
            return f"{name}: {found}"
        if found and name in exact:
            return f"{name}, to the bit: {found}"
    return None


def runs(example: Example) -> bool:
    """Whether ONNX Runtime runs the body."""
    try:
        _run(_session(body_model(example), register=False), example)
    except (OnnxFuseError, _Refused):
        return False
    return True


class _Refused(Exception):
    """A run that ONNX Runtime ended with an error."""


def _session(model: onnx.ModelProto, *, register: bool) -> Any:
    return runtime.session(model, ["CPUExecutionProvider"], optimizations=False, threads=1, register=register)


def _run(session: Any, example: Example, arrays: Sequence[Array] | None = None) -> list[Array]:
    feeds = {f"x{i}": array for i, array in enumerate(arrays or example.arrays)}
    taken = {i.name for i in session.get_inputs()}
    try:
        return list(session.run(None, {name: array for name, array in feeds.items() if name in taken}))
    except Exception as error:  # noqa: BLE001  # ONNX Runtime's own exceptions have no common base
        raise _Refused(str(error)) from error


def exact_values(program: Program) -> set[str]:
    """Names of values that come from operations whose every bit is given."""
    exact = {f"x{i}" for i in range(len(program.inputs))}
    for i, step in enumerate(program.steps):
        if is_exact(step, [program.types[o] for o in step.operands]) and all(o in exact for o in step.operands):
            exact.add(f"v{i}")
    return exact


def _compared(got: Array, want: Array, *, exact: bool) -> str | None:
    """The first difference in words: by shape and type, by every bit, or by how large an error may be."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    same = (got == want) | ((got != got) & (want != want))
    if exact or got.dtype.kind not in "f":
        return None if same.all() else _first(got, want, ~same)
    wrong = ~same & ~_within(got, want, np.zeros(want.shape))
    return _first(got, want, wrong) if wrong.any() else None


def _first(got: Array, want: Array, wrong: Array) -> str:
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{got[place]!r} instead of {want[place]!r} at {list(place)}, and {int(wrong.sum()) - 1} more"


def _within(got: Array, want: Array, spread: Array) -> Array:
    kind = {2: "float16", 4: "float", 8: "double"}[want.dtype.itemsize]
    one, other = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.abs(one - other) <= ALLOWED[kind] * np.maximum(1.0, np.abs(other)) + SPREAD * spread


def _moved(reference: Any, example: Example, name: str) -> list[Array]:
    """The result at inputs that are a little smaller and larger, and where one inexact value is a little off for its readers."""
    place = example.program.results.index(name)
    step = max(NUDGE[kind] for kind in example.program.types.values() if kind in NUDGE)  # a half type may be rounded to, or not
    nudged = ([_nudged(array, sign * step) for array in example.arrays] for sign in (-1, 1))
    moved = [_run(reference, example, arrays)[place] for arrays in nudged]
    moved += [_run(_session(body_model(e), register=False), e)[place] for e in _shaken(example)]
    return [one.astype(np.float64) for one in moved]


def _shaken(example: Example) -> Iterator[Example]:
    """The example with all readers of one inexact value reading a number that is off by its rounding."""
    program = example.program
    exact = exact_values(program)
    for i, step in enumerate(program.steps):
        if step.type not in ROUNDING or f"v{i}" in exact:
            continue
        for sign in (-1, 1):
            yield replace(example, program=_with_factor(program, i, 1 + sign * ROUNDING[step.type]))


def _with_factor(program: Program, place: int, factor: float) -> Program:
    """The program in which what reads the value `place` reads it times `factor`; results stay what they are."""
    kind = program.steps[place].type

    def moved(name: str, *, read: bool) -> str:
        number = int(name[1:])
        if name[0] == "x" or number < place or (number == place and not read):
            return name
        return f"v{number + 2}"

    steps = [replace(step, operands=tuple(moved(o, read=True) for o in step.operands)) for step in program.steps]
    between = [Step(CONST, kind, number=factor), Step("Mul", kind, (f"v{place}", f"v{place + 1}"))]
    results = tuple(moved(result, read=False) for result in program.results)
    return Program(program.inputs, (*steps[: place + 1], *between, *steps[place + 1 :]), results)


def _nudged(array: Array, step: float) -> Array:
    """Floats that are a little larger or smaller; others as they are."""
    if array.dtype.kind != "f":
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(array * (1 + step)).astype(array.dtype)


def _is_near(got: Array, want: Array, moved: Sequence[Array]) -> bool:
    """Whether the error is no more than what the rounding of inputs and of inexact values does to the result."""
    with np.errstate(invalid="ignore"):
        spread = np.max([np.abs(one - want) for one in moved], axis=0)
    unsteady = ~np.all([np.isfinite(one) for one in moved], axis=0)
    same = (got == want) | ((got != got) & (want != want))
    return bool(np.all(same | unsteady | _within(got, want, np.nan_to_num(spread))))


# ---- smaller


def shrunk(example: Example) -> Example:
    """A smaller example that differs too, as small as one change at a time makes it."""
    while True:
        smaller = next((e for e in _smaller(example) if difference(e) is not None), None)
        if smaller is None:
            return example
        example = smaller


def _smaller(example: Example) -> Iterator[Example]:
    """Examples with less in them."""
    program = example.program
    for result in program.results if len(program.results) > 1 else ():
        yield from _made(example, program.steps, (result,))
    for result in program.results:
        for operand in program.steps[int(result[1:])].operands:
            if operand[0] == "v":
                yield from _made(example, program.steps, (operand,))
    for i, step in enumerate(program.steps):
        for operand in step.operands:
            if program.types[operand] == step.type:
                yield from _made(example, _without(program.steps, f"v{i}", operand), tuple(program.results))


def _without(steps: Sequence[Step], name: str, other: str) -> list[Step]:
    """The steps with `other` read in place of `name`."""
    return [replace(step, operands=tuple(other if o == name else o for o in step.operands)) for step in steps]


def _made(example: Example, steps: Sequence[Step], results: tuple[str, ...]) -> Iterator[Example]:
    """The example without the steps and inputs that no result needs, if that is less; none where it is no program."""
    needed: set[str] = set()
    todo = list(results)
    while todo:
        name = todo.pop()
        if name not in needed:
            needed.add(name)
            todo += steps[int(name[1:])].operands if name[0] == "v" else ()
    kept = [i for i in range(len(steps)) if f"v{i}" in needed]
    inputs = [i for i in range(len(example.arrays)) if f"x{i}" in needed] or [0]
    if len(kept) + len(inputs) >= len(example.program.steps) + len(example.arrays) and len(results) == len(example.program.results):
        return
    names = {f"v{i}": f"v{k}" for k, i in enumerate(kept)} | {f"x{i}": f"x{k}" for k, i in enumerate(inputs)}
    try:
        yield Example(
            _renamed(example.program, steps, kept, inputs, results, names), example.axes, tuple(example.arrays[i] for i in inputs)
        )
    except UsageError:
        return


def _renamed(
    program: Program, steps: Sequence[Step], kept: Sequence[int], inputs: Sequence[int], results: Sequence[str], names: Mapping[str, str]
) -> Program:
    moved = tuple(replace(steps[i], operands=tuple(names[o] for o in steps[i].operands)) for i in kept)
    return Program(tuple(program.inputs[i] for i in inputs), moved, tuple(names[r] for r in results))
