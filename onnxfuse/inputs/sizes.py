"""Numbers for the unknown sizes of a model's inputs: awkward ones, that fit each other.

The same symbol is the same number. Different symbols are tried as equal where exporters give one size several names
(the batch of each input, the past of each layer), and as a sum where a total length meets a past and a new one.
What the names do not tell, the model's refusals do (`settle`).
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from onnxfuse.errors import UsageError
from onnxfuse.inputs.roles import INTEGERS
from onnxfuse.inputs.sketch import DimText, Shape, Sketch

Sizes = dict[str, int]

PAST = re.compile(r"past|cache|prefix", re.IGNORECASE)
TOTAL = re.compile(r"total|^all_|kv_?(seq|len)", re.IGNORECASE)
SIDE = re.compile(r"encoder|decoder", re.IGNORECASE)
IMAGE = re.compile(r"^(h|w|height|width|\w*_(height|width))$", re.IGNORECASE)
NAME = re.compile(r"[A-Za-z_]\w*")
DIGITS = re.compile(r"\d+")
NUMBER = re.compile(r"[A-Za-z_]{2,}\w*|(\d+)")  # a name such as ids_3 says nothing of sizes
TURNS = (  # what to start from for a batch, a past, the first other size and the rest
    {"batch": 2, "past": 5, "first": 7, "other": 11},
    {"batch": 3, "past": 11, "first": 1, "other": 13},
    {"batch": 1, "past": 0, "first": 13, "other": 3},
)
LARGEST_SIZE = 100_000  # that a refusal may suggest
TRIALS = 300  # runs that one search for fitting sizes may take


@dataclass(frozen=True)
class Refusal:
    """Why a model did not run: how many nodes did, and what the runtime said."""

    progress: int
    text: str


def input_shapes(model: Sketch) -> dict[str, Shape | None]:
    """The shape of every input tensor; a size without a name is called `input.axis`; None: not even the rank is known."""
    return {i.name: _named(i.name, model.shapes.get(i.name)) for i in model.inputs if i.type.HasField("tensor_type")}


def symbols(shapes: Mapping[str, Shape | None]) -> list[str]:
    """Names of the unknown sizes, in the order of the inputs."""
    found = [name for shape in shapes.values() for dim in shape or () for name in _names(dim)]
    return list(dict.fromkeys(found))


def evaluate(dim: DimText, sizes: Mapping[str, int]) -> int | None:
    """The number that a size stands for, None if a name in it has no number."""
    if isinstance(dim, int) or dim is None:
        return dim
    if dim in sizes:
        return sizes[dim]
    try:
        return _evaluate(ast.parse(dim, mode="eval").body, sizes)
    except (KeyError, SyntaxError, ZeroDivisionError):
        return None


def check(given: Mapping[str, int], known: list[str]) -> None:
    """Raise UsageError when a size is set that no input has."""
    for name, size in given.items():
        if name not in known:
            raise UsageError(f"size '{name}': the inputs of this model have no such size. They have: {', '.join(known) or 'numbers only'}")
        if size < 0:
            raise UsageError(f"size '{name}': must be 0 or more; got {size}")


def assignments(model: Sketch, given: Mapping[str, int]) -> list[Sizes]:
    """Three assignments of the unknown sizes: a plain one, one of a single new token after a past, one without a past."""
    return [assign(model, given, plain) for plain in TURNS]


def assign(model: Sketch, given: Mapping[str, int], plain: Mapping[str, int]) -> Sizes:
    """One assignment: equal in a group of symbols, different between groups; a total is the past and the first other.

    plain: the number to use for a `batch`, a `past`, the `first` other symbol and, where it is free, an `other`.
    """
    shapes = input_shapes(model)
    names = symbols(shapes)
    tokens = {i.name for i in model.inputs if i.type.tensor_type.elem_type in INTEGERS}
    groups = _groups(shapes, names, tokens)
    numbers = _numbers([groups[n] for n in names], plain)
    sizes = {n: given.get(n, numbers[groups[n]]) for n in names}
    new = [n for n in names if groups[n][0] == "other"][:1]
    old = [n for n in names if groups[n] == ("past",)][:1]
    total = sum(sizes[n] for n in new + old)
    return {n: total if groups[n] == ("total",) and n not in given else s for n, s in sizes.items()}


def splits(shapes: Mapping[str, Shape | None], sizes: Sizes, given: Mapping[str, int]) -> Iterator[Sizes]:
    """Assignments in which one of several symbols that `sizes` gives the same number is 1: it may well be broadcast."""
    for name in symbols(shapes):
        twins = [other for other, size in sizes.items() if other != name and size == sizes[name]]
        if twins and sizes[name] > 1 and name not in given:
            yield {**sizes, name: 1}


def carry(settled: Sizes, tried: Sizes, other: Sizes) -> Sizes:
    """Return `other` with what was learnt when `tried` had to become `settled`: equalities, sums, or plain numbers."""
    result = dict(other)
    kept = [n for n in settled if settled[n] == tried.get(n)]
    for name in (n for n in settled if n not in kept):
        twin = next((n for n in kept if settled[n] == settled[name]), None)
        pair = next(((a, b) for a in kept for b in kept if a < b and settled[a] + settled[b] == settled[name]), None)
        result[name] = result[twin] if twin else result[pair[0]] + result[pair[1]] if pair else settled[name]
    return result


def settle(sizes: Sizes, given: Mapping[str, int], attempt: Callable[[Sizes], Refusal | None]) -> Sizes | Refusal:
    """Return sizes near `sizes` that `attempt` accepts, or its last refusal.

    Each refusal names numbers that should have been equal: the symbols that hold one of them are set to another.
    """
    refusal = attempt(sizes)
    best, trials, seen = sizes, 1, {_key(sizes)}
    while refusal is not None:
        for change in _changes(best, refusal.text):
            moved = {**best, **{n: s for n, s in change.items() if n not in given}}
            if _key(moved) in seen:
                continue
            if trials == TRIALS:
                return refusal
            seen.add(_key(moved))
            trials += 1
            answer = attempt(moved)
            if answer is None or answer.progress > refusal.progress:
                best, refusal = moved, answer
                break
        else:
            return refusal
    return best


def _named(owner: str, shape: Shape | None) -> Shape | None:
    return None if shape is None else tuple(f"{owner}.{axis}" if dim is None else dim for axis, dim in enumerate(shape))


def _names(dim: DimText) -> list[str]:
    """The symbols in a size: itself, unless it is an expression of names."""
    if dim is None or isinstance(dim, int):
        return []
    try:
        tree = ast.parse(dim, mode="eval").body
        _evaluate(tree, _Any())
    except (KeyError, SyntaxError, ZeroDivisionError):
        return [dim]
    calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return [n for n in dict.fromkeys(NAME.findall(dim)) if n not in calls]


class _Any(dict[str, int]):
    """Sizes that hold a number for every name."""

    def __missing__(self, key: str) -> int:
        return 7


BINARY: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., int]] = {"max": max, "min": min, "Max": max, "Min": min, "floor": int, "broadcast": max}


def _evaluate(node: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        return BINARY[type(node.op)](_evaluate(node.left, sizes), _evaluate(node.right, sizes))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, sizes)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and not node.keywords:
        return FUNCTIONS[node.func.id](*(_evaluate(a, sizes) for a in node.args))
    raise SyntaxError("no arithmetic of sizes")


def _groups(shapes: Mapping[str, Shape | None], names: list[str], tokens: set[str]) -> dict[str, tuple[str, ...]]:
    """Which symbols start out equal: symbol -> (what it counts, which of these). tokens: inputs of integers."""
    groups: dict[str, tuple[str, ...]] = {}
    has_past = any(PAST.search(owner) or PAST.search(str(dim)) for owner, shape in shapes.items() for dim in shape or ())
    for owner, shape in shapes.items():
        for axis, dim in enumerate(shape or ()):
            if isinstance(dim, str) and dim in names and dim not in groups:
                groups[dim] = _group(owner, axis, dim, len(shape or ()), has_past, owner in tokens)
    return {**{n: ("other", n) for n in names}, **groups}


def _group(owner: str, axis: int, dim: str, rank: int, has_past: bool, is_tokens: bool) -> tuple[str, ...]:
    if TOTAL.search(dim):
        return ("total",)
    if PAST.search(dim):
        return ("past",)
    if axis == 0 and rank > 1:
        return ("batch",)
    if PAST.search(owner):
        return ("past",)
    if IMAGE.search(dim):
        return ("other", dim)
    if has_past and "mask" in owner.lower() and axis == rank - 1:
        return ("total",)
    if is_tokens and (axis, rank) == (1, 2):
        return ("other", next(iter(SIDE.findall(owner)), "tokens"))
    return ("other", dim)


def _numbers(groups: list[tuple[str, ...]], plain: Mapping[str, int]) -> dict[tuple[str, ...], int]:
    """A number for each group, in the order that they come."""
    numbers: dict[tuple[str, ...], int] = {}
    spare = iter((17, 19, 6, 23, 29, 31, 9, 37, 41, 43))
    has_first = False
    for group in dict.fromkeys(groups):
        if group[0] != "other":
            numbers[group] = plain.get(group[0], 0)  # a total is summed up later
            continue
        wanted = plain["other" if has_first else "first"]
        taken = has_first and wanted in numbers.values()
        numbers[group] = next((n for n in spare if n not in numbers.values()), wanted) if taken else wanted
        has_first = True
    return numbers


def _key(sizes: Sizes) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(sizes.items()))


def _changes(sizes: Sizes, text: str) -> Iterator[Sizes]:
    """Changes to try after a refusal, the most likely first."""
    said = dict.fromkeys(int(n) for n in NUMBER.findall(text.split("Status Message:")[-1]) if n)
    numbers = sorted((n for n in said if n < LARGEST_SIZE), key=lambda n: n < 2)  # 1 fits everywhere: last
    for name, size in sorted(sizes.items(), key=lambda item: item[1] < 2):
        if size in numbers:
            yield from ({name: other} for other in numbers if other != size)
    yield from _products(sizes, text)
    for name, size in sizes.items():  # such as the rows of a table of positions
        yield from ({name: number} for number in sorted(numbers, reverse=True) if 1 < number < size)
    for name, size in sizes.items():
        yield from ({name: other} for other in dict.fromkeys(sizes.values()) if other != size)
    values = sorted(set(sizes.values()))
    for name in sizes:
        yield from ({name: a + b} for a in values for b in values if a <= b)
    for name in sizes:
        yield from ({name: other} for other in (1, 2, 3, 4, 8, 16, 32, 64))


def _products(sizes: Sizes, text: str) -> Iterator[Sizes]:
    """Changes by which two shapes in the text, as of a Reshape, come to hold equally many elements."""
    shapes = [[int(n) for n in DIGITS.findall(s)] for s in re.findall(r"\{([^}]*)\}", text)]
    if len(shapes) < 2:
        return
    have, want = shapes[0], 1
    for n in shapes[1]:
        want *= n or 1
    movable = [n for n in sizes if sizes[n] in have]
    fixed = 1
    for n in have:
        fixed *= n if n not in sizes.values() else 1
    rest = want // fixed if fixed and want % fixed == 0 else 0
    for first in movable:
        if rest:
            yield {first: rest}
        for second in movable:
            if second != first:
                yield from ({first: d, second: rest // d} for d in range(1, rest + 1) if rest % d == 0)
