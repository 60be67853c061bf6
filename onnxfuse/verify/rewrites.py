"""Is a rewrite right? The replaced subgraph against the fused node, on inputs made to tell them apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxfuse import runtime
from onnxfuse.errors import ModelError, OnnxFuseError, RuntimeMissingError, VerificationError
from onnxfuse.inputs import Feed, Maker
from onnxfuse.inputs import sizes as size
from onnxfuse.inputs.sizes import Refusal, Sizes
from onnxfuse.inputs.values import Regime
from onnxfuse.verify.compare import REWRITE_BUDGETS, Difference, difference, finite_share, located
from onnxfuse.verify.rounding import constant_noise, noise, off_by_rounding
from onnxfuse.verify.runs import Runner, described, joined
from onnxfuse.verify.widen import has_cast_constants, has_narrow, is_narrow, widen, widen_feed

LARGEST_FEED = 2**22  # elements
USUAL = Regime("usual values")
REGIMES = (  # with which sizes: see `_plan`
    ("plain", USUAL),
    ("plain", Regime("rows from 1e-6 to 1, whole rows masked by -inf", scale=1e-6, by_row=True, masks="dead")),
    ("plain", Regime("large values, whole rows masked by the lowest number", scale=50.0, masks="dead", filler=-1e300)),
    ("plain", Regime("constant rows, nothing masked", constant_rows=True, masks="ones")),
    ("ones", Regime("nothing masked", masks="ones")),
    ("equal", Regime("masks of -1e4", masks="any", filler=-1e4)),
    ("larger", Regime("masks of the lowest number", masks="any", filler=-1e300)),
)
LARGER = (33, 17, 65, 9, 31, 5, 6, 3, 10, 12)


@dataclass(frozen=True)
class _Question:
    feed: Feed
    label: str


@dataclass
class _Sides:
    """The runners of one rewrite. `before` and `kernel` are None where ONNX Runtime has no kernels of a half type on this device."""

    before: Runner | None
    truth: Runner | None  # `before` in float32, for half types
    kernel: Runner | None
    body: Runner | None  # `after` by its function bodies
    meaning: Runner | None  # the bodies in float32, for half types
    rounded: Runner | None  # `truth` with constants rounded as in the half type, if it has such
    off: Callable[[], list[tuple[Runner, Runner]]]  # `truth` with each constant as low and as high as it may have been

    @property
    def asked(self) -> Runner:
        """The side that says which feeds count."""
        runner = self.before or self.truth
        assert runner is not None
        return runner

    def ask(self, feed: Feed) -> list[Any] | Refusal:
        return self.asked(feed if self.before else widen_feed(feed))


def verify_rewrite(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    *,
    seed: int,
    libraries: Sequence[str | Path] = (),
    providers: Sequence[str] = ("CPUExecutionProvider",),
    folder: Path | None = None,
) -> Difference | None:
    """Return the first difference between a subgraph and what is to replace it, or None.

    before, after: small models with the same inputs and outputs; unknown sizes are symbols of the inputs, and inputs
    that only spell a shape (of a Reshape) are understood if the reshaped value has a value_info. `before` runs with all
    optimisations off; `after` with our library registered, and again by its function bodies. For half types the result
    may be near `before` or near what `before` gives in float32, and the bodies must agree with it in float32 too.
    Feeds that make `before` fail are left out. Raises VerificationError if that leaves none, or the models do not
    have the same inputs and outputs, RuntimeMissingError if ONNX Runtime, our library or an operator of `before` is missing.
    """
    _check_contract(before, after)
    maker = Maker(before, {})
    opened = _open(before, after, libraries, providers, folder)
    if isinstance(opened, Difference):
        return opened
    questions = 0
    for question in _questions(maker, opened, seed):
        questions += 1
        found = _answer(opened, question)
        if found is not None:
            return found
    if not questions:
        raise VerificationError(
            f"subgraph '{before.graph.name}': runs on none of the inputs that we made up, so its rewrite is not validated"
        )
    return None


def _check_contract(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    for kind in ("input", "output"):
        one, two = ([v.name for v in getattr(m.graph, kind)] for m in (before, after))
        if (sorted(one), sorted(two)) != (sorted(two), sorted(one)) or kind == "output" and one != two:
            raise VerificationError(f"rewrite of '{before.graph.name}': must keep the {kind}s {joined(one)}; has {joined(two)}")


def _open(
    before: onnx.ModelProto, after: onnx.ModelProto, libraries: Sequence[str | Path], providers: Sequence[str], folder: Path | None
) -> _Sides | Difference:
    """Sessions for all sides; a Difference if what is to be written cannot be loaded."""

    def runner(model: onnx.ModelProto, *, register: bool = True) -> Runner:
        made = runtime.session(model, providers, optimizations=False, libraries=libraries, threads=1, register=register, folder=folder)
        return Runner(made, model)

    own = runtime.has_own_ops(after)
    if own:
        runtime.library_path()
    truth = _try(lambda: runner(widen(before, folder))) if has_narrow(before) else None
    meaning = _try(lambda: runner(widen(after, folder), register=False)) if truth is not None else None
    casts = truth is not None and has_cast_constants(before)
    rounded = _try(lambda: runner(widen(before, folder, round_constants=True))) if casts else None

    @cache
    def off() -> list[tuple[Runner, Runner]]:
        return [(runner(low), runner(high)) for low, high in off_by_rounding(before)]

    try:
        reference = runner(before)
    except RuntimeMissingError:
        if truth is None or meaning is None:
            raise
        return _Sides(None, truth, _try(lambda: runner(after)), None, meaning, rounded, off)
    try:
        kernel = runner(after)
        body = runner(after, register=False) if own else None
    except (ModelError, RuntimeMissingError) as error:
        if own or meaning is None or isinstance(error, ModelError):
            return Difference(f"the fused node cannot be loaded: {error}")
        return _Sides(reference, truth, None, None, meaning, rounded, off)  # its kernel is one of another device: compared in float32
    return _Sides(reference, truth, kernel, body, meaning, rounded, off)


def _try(make: Any) -> Runner | None:
    try:
        return make()  # type: ignore[no-any-return]  # a lambda of this module
    except OnnxFuseError:
        return None


def _questions(maker: Maker, sides: _Sides, seed: int) -> Iterator[_Question]:
    """Feeds on which `before` runs, the usual one first."""
    tried = maker.assignments()[0]
    settled = size.settle(tried, {}, lambda sizes: _refusal(sides.ask(maker.feed(sizes, USUAL, seed))))
    if isinstance(settled, Refusal):
        return
    first = sides.ask(maker.feed(settled, USUAL, seed))
    flip = not isinstance(first, Refusal) and finite_share(first) < 0.5
    for number, (sizes, regime) in enumerate(_plan(maker, tried, settled)):
        regime = replace(regime, flip=flip)
        if _elements(maker, sizes) > LARGEST_FEED:
            continue
        feed = maker.feed(sizes, regime, seed + number)
        answer = sides.ask(feed)
        if not isinstance(answer, Refusal) and _is_plausible(maker, sides.asked.outputs, answer, sizes):
            yield _Question(feed, described(feed, sizes, regime.name))


def _plan(maker: Maker, tried: Sizes, settled: Sizes) -> Iterator[tuple[Sizes, Regime]]:
    """Which sizes with which numbers. What `settled` taught about `tried` holds for the other sizes too."""
    numbers = [d for shape in maker.shapes.values() for d in shape or () if isinstance(d, int) and 1 < d <= 128]
    common = max(set(numbers), key=numbers.count) if numbers else 5
    by_value = {value: LARGER[k % len(LARGER)] for k, value in enumerate(sorted(set(tried.values())))}
    table = {
        "plain": settled,
        "ones": size.carry(settled, tried, dict.fromkeys(tried, 1)),
        "equal": size.carry(settled, tried, dict.fromkeys(tried, common)),
        "larger": size.carry(settled, tried, {n: by_value[v] for n, v in tried.items()}),
    }
    for name, regime in REGIMES:
        yield table[name], regime
    for sizes in size.splits(maker.shapes, settled, {}):
        yield sizes, Regime("a size of 1 that may be broadcast")
    for value in sorted(set(settled.values())):  # symbols that are equal are empty together
        empty = {n: 0 if v == value else v for n, v in tried.items()}
        yield size.carry(settled, tried, empty), Regime("an empty axis")


def _is_plausible(maker: Maker, names: Sequence[str], answer: list[Any], sizes: Sizes) -> bool:
    """Whether outputs have the shapes that ONNX gives them: old versions of ONNX Runtime get reductions of empty tensors wrong."""
    for name, output in zip(names, answer, strict=True):
        declared = [size.evaluate(d, sizes) for d in maker.sketch.shapes.get(name, ())]
        shape = np.shape(output)
        if len(declared) == len(shape) and any(d not in (None, n) for d, n in zip(declared, shape, strict=True)):
            return False
    return True


def _elements(maker: Maker, sizes: Sizes) -> int:
    return sum(math.prod(size.evaluate(d, sizes) or 0 for d in shape or ()) for shape in maker.shapes.values())


def _refusal(result: list[Any] | Refusal) -> Refusal | None:
    return result if isinstance(result, Refusal) else None


def _answer(sides: _Sides, question: _Question) -> Difference | None:
    """Compare every side on one feed."""
    feed = question.feed
    want = sides.before(feed) if sides.before else None
    truth = sides.truth(widen_feed(feed)) if sides.truth else None
    want = None if isinstance(want, Refusal) else want
    truth = None if isinstance(truth, Refusal) else truth
    for runner, kind in ((sides.kernel, ""), (sides.body, "without our library: ")):
        found = _compare_side(runner, sides, feed, want, truth) if runner else None
        if found is not None:
            return replace(found, reason=kind + found.reason, feed=question.label)
    if sides.meaning is not None and truth is not None:
        found = _compare_meaning(sides, widen_feed(feed), truth)
        if found is not None:
            return replace(found, reason="computed in float32: " + found.reason, feed=question.label)
    return None


def _compare_side(runner: Runner, sides: _Sides, feed: Feed, want: list[Any] | None, truth: list[Any] | None) -> Difference | None:
    result = runner(feed)
    if isinstance(result, Refusal):
        return Difference(f"the fused node fails where the subgraph runs: {result.text}")
    for k, (name, got) in enumerate(zip(runner.outputs, result, strict=True)):
        near = want[k] if want is not None else _rounded(truth, k, got)
        other = _rounded(truth, k, got) if truth is not None and is_narrow(got) else None
        found = difference(got, near, REWRITE_BUDGETS, other=other)
        if found is not None and found.allowed is not None and sides.before is not None and want is not None:
            found = difference(got, near, REWRITE_BUDGETS, extra=noise(sides.before, feed, want)[k], other=other)
        if found is not None:
            return located(found, name, "")
    return None


def _compare_meaning(sides: _Sides, feed: Feed, truth: list[Any]) -> Difference | None:
    """The bodies in float32 against the subgraph in float32: half types hide the difference between two formulas.

    A constant that is cast to the half type may count as it was or as it is rounded; one that is stored in the half
    type is off by up to half a step of it, which a formula may put right.
    """
    assert sides.meaning is not None and sides.truth is not None
    result = sides.meaning(feed)
    if isinstance(result, Refusal):
        return Difference(f"the fused node fails where the subgraph runs: {result.text}")
    found = _compare_wide(sides, result, sides.truth, feed, truth)
    if found is not None and sides.rounded is not None:
        other = sides.rounded(feed)
        return found if isinstance(other, Refusal) else _compare_wide(sides, result, sides.rounded, feed, other)
    return found


def _compare_wide(sides: _Sides, result: list[Any], runner: Runner, feed: Feed, want: list[Any]) -> Difference | None:
    assert sides.meaning is not None
    for k, (name, got) in enumerate(zip(sides.meaning.outputs, result, strict=True)):
        found = difference(got, want[k], REWRITE_BUDGETS)
        if found is not None and found.allowed is not None:
            extra = noise(runner, feed, want)[k] + constant_noise(sides.off(), feed, want)[k]
            found = difference(got, want[k], REWRITE_BUDGETS, extra=extra)
        if found is not None:
            return located(found, name, "")
    return None


def _rounded(truth: list[Any] | None, k: int, like: Any) -> Any:
    """An output computed in float32, rounded to the type it should have."""
    assert truth is not None
    with np.errstate(over="ignore"):
        return truth[k].astype(like.dtype) if is_narrow(like) and isinstance(truth[k], np.ndarray) else truth[k]
