"""Is the written model the same as the one it was made from? Both run, whole, on inputs made up or given."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxfuse import runtime
from onnxfuse.errors import ModelError, OnnxFuseError, RuntimeMissingError, VerificationError
from onnxfuse.inputs import Feed, Maker, load_feeds, trials
from onnxfuse.inputs.sizes import Refusal
from onnxfuse.verify.compare import MODEL_BUDGETS, Difference, difference, largest_error, located
from onnxfuse.verify.isolated import Job, run_isolated
from onnxfuse.verify.loaded import Loaded, Source, load
from onnxfuse.verify.memory import too_large, weight_bytes
from onnxfuse.verify.runs import Runner, described, joined
from onnxfuse.verify.widen import is_narrow, widen, widen_feed

RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
WIDENED = 2**30  # bytes of weights up to which a half model is also run in float32


@dataclass(frozen=True)
class Verification:
    """What came of comparing two models.

    feeds: sizes and kind of each input set that both ran. errors: the largest absolute error by output.
    not_run: what could not be compared, and why. `ok` holds when at least one feed ran and nothing differed.
    """

    feeds: tuple[str, ...]
    errors: Mapping[str, float]
    differences: tuple[Difference, ...] = ()
    not_run: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return bool(self.feeds) and not self.differences

    def summary(self) -> str:
        """One line for people."""
        left = f"; not compared: {'; '.join(self.not_run)}" if self.not_run else ""
        if self.differences:
            more = f" (and {len(self.differences) - 1} more)" if len(self.differences) > 1 else ""
            return f"different: {self.differences[0]}{more}{left}"
        if not self.feeds:
            return f"not compared: {'; '.join(self.not_run)}"
        return self.same + left

    @property
    def same(self) -> str:
        """How much was compared and found the same."""
        worst = max(self.errors, key=lambda name: self.errors[name], default="")
        error = f", largest error {self.errors[worst]:.3g} in '{worst}'" if worst else ""
        return f"same on {len(self.feeds)} input set{'s' if len(self.feeds) > 1 else ''}{error}"


@dataclass(frozen=True)
class _Setup:
    """What all sessions of one verification share."""

    libraries: tuple[str, ...]
    providers: tuple[str, ...]

    def plain(self, model: Loaded, *, register: bool) -> Runner:
        """With every optimisation off."""
        return model.runner(self.libraries, self.providers, optimizations=False, register=register)

    def optimised(self, model: Loaded, temporary: Path, *, register: bool) -> Job:
        """With every optimisation on."""
        return model.job(self.libraries, self.providers, temporary, register=register)


@dataclass(frozen=True)
class _Asked:
    """A feed and what the original model answered."""

    feed: Feed
    label: str
    want: list[Any]


@dataclass
class _Findings:
    errors: dict[str, float] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    random: set[str] = field(default_factory=set)


def verify(
    a: Source,
    b: Source,
    *,
    inputs: str | Path | Sequence[Feed] | None = None,
    shapes: Mapping[str, int] | None = None,
    libraries: Sequence[str | Path] = (),
    seed: int = 0,
    providers: Sequence[str] = ("CPUExecutionProvider",),
    folder: Path | None = None,
) -> Verification:
    """Compare model `b` with the original `a` by running both, one after the other.

    `a` runs with every optimisation of ONNX Runtime off; `b` with them off and on, with our library and, if it has our
    ops, also by their function bodies. Where the optimisations alone make a difference, and make it in `a` too, that
    is not held against `b`; they run in a process of their own, since they crash on some models.
    inputs: an .npz file or feeds; without them inputs are made up, with `shapes` for sizes that are to be fixed.
    folder: where the external data of protos lies; that of the other model if it is a file.
    Raises RuntimeMissingError (no ONNX Runtime, no library, operators nobody registered), VerificationError (no inputs
    can be made up that run), ModelError (`a` cannot be loaded), UsageError (bad inputs or shapes).
    """
    first, second = _models(a, b, folder)
    if runtime.has_own_ops(second.proto):
        runtime.library_path()
    contract = _contract(first.proto, second.proto)
    if contract is not None:
        return Verification((), {}, (contract,))
    problem = too_large((first.proto, second.proto), {} if inputs is not None else shapes or {})
    if problem:
        return Verification((), {}, not_run=(problem,))
    setup = _Setup(tuple(map(str, libraries)), tuple(providers))
    findings = _Findings()
    asked = _ask(first, setup, inputs, shapes or {}, seed, findings)
    for register in _ways(second.proto):
        _compare_plain(first, second, setup, asked, register, findings)
    if not findings.differences:
        _compare_optimised(first, second, setup, asked, findings)
    findings.not_run += [f"output '{name}' is random" for name in sorted(findings.random)]
    return Verification(tuple(q.label for q in asked), findings.errors, tuple(findings.differences), tuple(findings.not_run))


def _models(a: Source, b: Source, folder: Path | None) -> tuple[Loaded, Loaded]:
    first, second = load(a, folder), load(b, folder)
    return replace(first, folder=first.folder or second.folder), replace(second, folder=second.folder or first.folder)


def _ways(model: onnx.ModelProto) -> tuple[bool, ...]:
    """With our library, and without if that makes a difference."""
    return (True, False) if runtime.has_own_ops(model) else (True,)


def _way_text(register: bool) -> str:
    return "" if register else "without our library: "


def _contract(a: onnx.ModelProto, b: onnx.ModelProto) -> Difference | None:
    """What is wrong with the inputs and outputs of `b`: names and types must be those of `a`, and outputs in its order."""
    for kind in ("input", "output"):
        one, two = ({v.name: v.type.tensor_type.elem_type for v in getattr(m.graph, kind) if v.name not in _listed(m)} for m in (a, b))
        if one != two:
            lost = [n for n in one if n not in two]
            what = f"lost {joined(lost)}" if lost else f"has {joined([n for n in two if one.get(n) != two[n]])}, new or of another type"
            return Difference(f"{kind}s must stay as they were: the new model {what}")
    if [o.name for o in a.graph.output] != [o.name for o in b.graph.output]:
        return Difference("outputs must stay in order")
    return None


def _listed(model: onnx.ModelProto) -> set[str]:
    """Initializers, which below IR 4 had to be listed as inputs though no caller may give them."""
    return {t.name for t in model.graph.initializer} if model.ir_version < 4 else set()


def _ask(
    model: Loaded, setup: _Setup, inputs: str | Path | Sequence[Feed] | None, shapes: Mapping[str, int], seed: int, findings: _Findings
) -> list[_Asked]:
    """Run the original on every feed, and note which outputs are not the same twice."""
    run = setup.plain(model, register=True)
    is_random = any(node.op_type in RANDOM for node in runtime.all_nodes(model.proto))
    asked = []
    for feed, label in _feeds(model.proto, run, inputs, shapes, seed):
        want = run(feed)
        if isinstance(want, Refusal):
            raise VerificationError(f"{model.label}: does not run on these inputs: {want.text}. Give others with --inputs FILE.npz")
        if is_random:
            findings.random |= _unsteady(run, feed, want)
        asked.append(_Asked(feed, label, want))
    return asked


def _unsteady(run: Runner, feed: Feed, want: list[Any]) -> set[str]:
    again = run(feed)
    if isinstance(again, Refusal):
        return set(run.outputs)
    return {name for name, one, two in zip(run.outputs, want, again, strict=True) if difference(two, one, MODEL_BUDGETS) is not None}


def _feeds(
    model: onnx.ModelProto, run: Runner, given: str | Path | Sequence[Feed] | None, shapes: Mapping[str, int], seed: int
) -> Iterator[tuple[Feed, str]]:
    if given is not None:
        for feed in load_feeds(given, model) if isinstance(given, str | Path) else given:
            yield feed, described(feed, {}, "as given")
        return
    for trial in trials(Maker(model, shapes), run.share, seed=seed):
        yield trial.feed, described(trial.feed, trial.sizes, trial.regime.name)


def _compare_plain(first: Loaded, second: Loaded, setup: _Setup, asked: Sequence[_Asked], register: bool, findings: _Findings) -> None:
    """Run the new model one way on every feed and note what differs."""
    try:
        run = setup.plain(second, register=register)
    except (ModelError, RuntimeMissingError) as error:
        findings.differences.append(Difference(f"{_way_text(register)}the new model cannot be loaded: {error}"))
        return
    for question in asked:
        got = run(question.feed)
        answer = got.text if isinstance(got, Refusal) else got
        found = _judge(first, setup, question, answer, findings)
        findings.differences += [replace(d, reason=_way_text(register) + d.reason) for d in found]


def _compare_optimised(first: Loaded, second: Loaded, setup: _Setup, asked: Sequence[_Asked], findings: _Findings) -> None:
    """Run the new model with every optimisation on; what they do to the original as well is no fault of ours."""
    feeds = [question.feed for question in asked]
    ways = _ways(second.proto)
    with tempfile.TemporaryDirectory(prefix="onnxfuse-") as name:
        jobs = [setup.optimised(second, Path(name), register=register) for register in ways]
        answers = zip(ways, run_isolated(jobs, feeds), strict=True)
        scratch = _Findings(random=findings.random)  # errors of the optimisations are not those of the rewrites
        found = [d for register, result in answers for d in _judge_all(first, setup, asked, result, register, scratch)]
        if not found:
            return
        (original,) = run_isolated([setup.optimised(first, Path(name), register=True)], feeds)
    theirs = _judge_all(first, setup, asked, original, True, scratch)
    if theirs:
        findings.not_run.append(f"with ONNX Runtime's own optimisations, which go wrong on the original model too ({theirs[0]})")
    else:
        findings.differences += [replace(d, reason="with ONNX Runtime's own optimisations: " + d.reason) for d in found]


def _judge_all(
    first: Loaded, setup: _Setup, asked: Sequence[_Asked], result: list[Any] | str, register: bool, findings: _Findings
) -> list[Difference]:
    if isinstance(result, str):
        return [Difference(f"{_way_text(register)}cannot be loaded: {result}")]
    found = [d for question, answer in zip(asked, result, strict=True) for d in _judge(first, setup, question, answer, findings)]
    return [replace(d, reason=_way_text(register) + d.reason) for d in found]


def _judge(first: Loaded, setup: _Setup, question: _Asked, answer: list[Any] | str, findings: _Findings) -> list[Difference]:
    """Compare all outputs for one feed; a text is what the runtime said instead of running."""
    if isinstance(answer, str):
        return [Difference(f"the new model fails where the original runs: {answer}", feed=question.label)]
    names = [o.name for o in first.proto.graph.output]
    found = []
    for name, got, want in zip(names, answer, question.want, strict=True):
        if name not in findings.random:
            findings.errors[name] = max(findings.errors.get(name, 0.0), largest_error(got, want))
            found.append(located(difference(got, want, MODEL_BUDGETS), name, question.label))
    wrong = [d for d in found if d is not None]
    if wrong and any(is_narrow(want) for want in question.want):
        return _beside_truth(first, setup, question, dict(zip(names, answer, strict=True)), wrong)
    return wrong


def _beside_truth(first: Loaded, setup: _Setup, question: _Asked, got: Mapping[str, Any], wrong: list[Difference]) -> list[Difference]:
    """What is left of the differences of a half model when each number may also be near what the original gives in float32."""
    if weight_bytes(first.proto) > WIDENED:
        return wrong
    try:
        wide = widen(first.proto, first.folder)
        run = setup.plain(Loaded(wide, None, first.folder), register=True)
    except OnnxFuseError:
        return wrong
    truth = run(widen_feed(question.feed))
    if isinstance(truth, Refusal):
        return wrong
    wants, truths = dict(zip(run.outputs, question.want, strict=True)), dict(zip(run.outputs, truth, strict=True))
    left = []
    for old in wrong:
        want, other = wants[old.output], truths[old.output]
        with np.errstate(over="ignore"):
            other = other.astype(want.dtype) if is_narrow(want) else None
        left.append(located(difference(got[old.output], want, MODEL_BUDGETS, other=other), old.output, question.label))
    return [d for d in left if d is not None]
