"""The Python API: optimise, explain; the command line calls nothing else."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from onnxfuse import cleaning, custom_ops, graph, runtime, shapes, store
from onnxfuse.candidate import Candidate
from onnxfuse.canonical import View
from onnxfuse.cost import compiled
from onnxfuse.cost.budgets import MAX_NODES
from onnxfuse.cost.device import Cpu
from onnxfuse.cost.model import Model as CostModel
from onnxfuse.decider import ELEMENTWISE, Decider
from onnxfuse.decision import Decision, Verdict
from onnxfuse.errors import ModelError, OnnxFuseError, UsageError
from onnxfuse.exhibit import exhibit
from onnxfuse.generated.candidates import Generator, apart
from onnxfuse.graph import Node
from onnxfuse.inputs.sizes import check as check_sizes
from onnxfuse.inputs.sizes import input_shapes
from onnxfuse.inputs.sizes import symbols as size_names
from onnxfuse.inputs.sketch import sketch
from onnxfuse.library import all_rules, load_generators, load_rules
from onnxfuse.nearmiss import near_misses
from onnxfuse.opsets import opset_of, raised
from onnxfuse.ranges import Ranges
from onnxfuse.report.record import Report
from onnxfuse.report.text import log_line
from onnxfuse.rewriter import Rewritten, rewrite
from onnxfuse.rule import LEVELS, Rule
from onnxfuse.symbolic import symbols
from onnxfuse.target import TARGETS, Target
from onnxfuse.validate import Validator, verify_whole

Progress = Callable[[str, int, int], None]
Log = Callable[[str], None]
Source = str | Path | onnx.ModelProto
TOLD = (Verdict.FUSED, Verdict.NOT_WORTH_IT)  # with the sizes at which they flip
RUNS_MODELS = ("validate", "verify", "clean")  # phases that hold on to sessions
OWN = "onnxfuse"  # the target that our own operators are written for
RANGE_LOSS = 5.0  # percent


@dataclass(frozen=True)
class Result:
    """The optimised model, and what happened to it."""

    model: onnx.ModelProto
    report: Report


def optimize(
    source: Source,
    output: str | Path | None = None,
    *,
    device: str = "cpu",
    level: str = "cost",
    target: str = "onnxfuse",
    shapes: Mapping[str, int] | None = None,
    rules: Sequence[str | Path] = (),
    only: Sequence[str] = (),
    disable: Sequence[str] = (),
    max_fusion_size: int = MAX_NODES,
    range_loss: float = RANGE_LOSS,
    verify: bool = True,
    inputs: str | Path | None = None,
    libraries: Sequence[str | Path] = (),
    opset: int | None = None,
    clean: bool = False,
    progress: Progress | None = None,
    log: Log | None = None,
) -> Result:
    """Fuse what is worth it and return the new model with a report; write it to `output` if that is given.

    device: a name of `onnxfuse devices`, or "auto". level: "none" (a byte-for-byte copy), "elementwise" (pointwise and
    norms), "cost" (what the cost model finds worth it), "all" (whatever matches). target: "onnxfuse" (our ops), "contrib"
    (those of ONNX Runtime, where it has the kernel), "standard" (ONNX alone). shapes: sizes of symbolic dims that
    decisions are made for. rules: files with further rules. only, disable: rule names. max_fusion_size: the most nodes in
    one fusion. range_loss: the percentage of its time that the model may lose at some size of a symbolic dim that is not
    given, by fusions that pay at the usual one. inputs: an .npz to verify with. opset: raise the model to this one first.
    clean: take away what the model does not need, whether fused or not (see `onnxfuse.cleaning`).
    Raises UsageError, ModelError, RuleError, VerificationError, RuntimeMissingError; nothing is written then.
    """
    if level not in LEVELS:
        raise UsageError(f"level '{level}' is unknown. Use one of {', '.join(LEVELS)}")
    path = None if isinstance(source, onnx.ModelProto) else Path(source)
    written = None if output is None else Path(output)
    if written is not None:
        store.check_target(path, written)
    if level == "none" and opset is None and not clean:
        load_rules(rules, only, disable)  # names are checked whatever becomes of them
        cost = _cost(device, max_fusion_size, range_loss)
        _target(target, cost)
        proto = source if isinstance(source, onnx.ModelProto) else graph.read_proto(Path(source))
        result = Result(proto, replace(_report(source, proto, proto, device, level, (), {}), exhibit=partial(_unchanged, proto, cost)))
    else:
        cost = _cost(device, max_fusion_size, range_loss)
        known, made = load_rules(rules, only, disable), load_generators(only, disable, level)
        if verify and target == OWN:
            runtime.library_path()  # raises where it is missing: nothing of ours could be verified
        with _blaming(source):
            run = _Run(source, cost, device, level, target, shapes or {}, range_loss, known, made, progress or _silent, only, opset)
            result = run.optimize(verify=verify, inputs=inputs, libraries=libraries, clean=clean)
    for decision in result.report.decisions if log else ():
        assert log is not None
        log(log_line(decision))
    if written is not None:
        if path is not None and not result.report.fused and not result.report.changes:
            store.copy_unchanged(path, written)
        else:
            store.save(result.model, path, written)
    return result


def explain(
    source: Source,
    *,
    device: str = "cpu",
    level: str = "cost",
    target: str = "onnxfuse",
    shapes: Mapping[str, int] | None = None,
    rules: Sequence[str | Path] = (),
    only: Sequence[str] = (),
    disable: Sequence[str] = (),
    max_fusion_size: int = MAX_NODES,
    range_loss: float = RANGE_LOSS,
    progress: Progress | None = None,
    each_node: bool = False,
) -> Report:
    """What `optimize` would decide, and the places where a pattern got at least half way; nothing is written or run.

    each_node: for each node too why nothing is generated for it.
    """
    cost = _cost(device, max_fusion_size, range_loss)
    known, made = load_rules(rules, only, disable), load_generators(only, disable, level)
    with _blaming(source):
        run = _Run(source, cost, device, level, target, shapes or {}, range_loss, known, made, progress or _silent, only)
        chosen, decisions = run.decide(every=True)
        result = rewrite(run.model, chosen)
        fused = [_fused(r.candidate.decision, r.node.name) for r in result.rewrites]
        near = near_misses(run.decider.views, run.rules, [*fused, *decisions])
        alone = apart(run.decider.regions([c for c in chosen if not c.written])) if each_node else ()
        return run.report(result.proto, chosen, [*fused, *decisions, *near, *alone])


@contextmanager
def _blaming(source: Source) -> Iterator[None]:
    """Where we fail on a model that ONNX's checker does not accept, what the checker says of it, as a ModelError."""
    try:
        yield
    except OnnxFuseError:
        raise
    except Exception as error:
        complaint = _complaint(source)
        if complaint is None:
            raise
        name = "the model" if isinstance(source, onnx.ModelProto) else source
        raise ModelError(f"{name}: is no valid ONNX model: {complaint}. Export it again") from error


def _complaint(source: Source) -> str | None:
    try:
        onnx.checker.check_model(source if isinstance(source, onnx.ModelProto) else str(source), full_check=True)
    except Exception as error:  # noqa: BLE001  # whatever the checker raises is its complaint
        return " ".join(str(error).split()).rstrip(".")
    return None


def _unchanged(proto: onnx.ModelProto, cost: CostModel) -> dict[str, Any]:
    """What a page shows beside the report of a model that was only copied."""
    model = graph.load(proto)
    shapes.infer(model)
    return exhibit(Decider(model, (), Target(), Ranges(model, cost, {}), _silent), (), proto)


def _silent(phase: str, done: int, total: int) -> None:
    return None


def _fused(decision: Decision, node: str) -> Decision:
    reason = decision.reason or (decision.price.reason() if decision.price is not None else "")
    return replace(decision, verdict=Verdict.FUSED, new_node=node, reason=reason)


class _Run:
    """One model on its way through match, decide, rewrite and verify."""

    def __init__(
        self,
        source: Source,
        cost: CostModel,
        device: str,
        level: str,
        target: str,
        sizes: Mapping[str, int],
        range_loss: float,
        rules: Mapping[str, Rule],
        generators: Mapping[str, Generator],
        progress: Progress,
        asked: Sequence[str],
        opset: int | None = None,
    ) -> None:
        self.source, self.device, self.level, self.progress = source, device, level, progress
        self.seconds: dict[str, float] = {}
        self.rules = [r for r in rules.values() if _is_for(r, level, target, asked)]
        self.users = frozenset(rules).difference(all_rules())  # rules of files: their authors are told of every place
        self.given = sizes
        self.target = _target(target, cost)
        with self._timed("load"):
            self.model = graph.load(source)
            self.old_opset = opset_of(self.model.proto)
            if opset is not None:
                self.model = raised(self.model, opset)
            if sizes:
                check_sizes(sizes, size_names(input_shapes(sketch(self.model.proto))))
        with self._timed("shapes"):
            shapes.infer(self.model)
        with self._timed("match"):
            ranges = Ranges(self.model, cost, sizes)
            made = generators if target == OWN else {}
            loss = range_loss / 100
            self.decider = Decider(self.model, self.rules, self.target, ranges, progress, most_loss=loss, generators=made, asked=asked)

    def _timed(self, phase: str) -> _Timer:
        return _Timer(self.seconds, phase)

    def decide(
        self, barred: frozenset[tuple[str, str]] = frozenset(), spoilt: frozenset[Node] = frozenset(), *, every: bool = False
    ) -> tuple[list[Candidate], list[Decision]]:
        """(chosen, how the others ended), leaving out the (rule, value) pairs, and the nodes of regions, that failed validation.

        every: also the matches that were declined where another rule fits.
        """
        with self._timed("select"):
            self.allowed = [c for c in self.decider.found if (c.rule.name, c.root.name) not in barred]
            chosen, ended = self.decider.choose(self.allowed, everything=self.level == "all", barred=spoilt)
        fitting = frozenset() if every else {(c.view.graph.name, c.root.name) for c in self.allowed}
        users = [d for d in (*ended, *self.decider.declined) if d.rule in self.users]
        ended = [d for d in ended if d.rule not in self.users]
        declined = (d for d in self.decider.declined if d.rule not in self.users and (d.scope, d.value) not in fitting)
        return chosen, [*users, *_worth_telling(ended, chosen), *_unsettled(declined, chosen, self.decider.views)]

    def optimize(self, *, verify: bool, inputs: str | Path | None, libraries: Sequence[str | Path], clean: bool = False) -> Result:
        barred: dict[tuple[str, str], Decision] = {}
        spoilt: frozenset[Node] = frozenset()
        validator = Validator(self.progress, libraries) if verify else None
        while True:
            chosen, decisions = self.decide(frozenset(barred), spoilt)
            with self._timed("rewrite"):
                result = rewrite(self.model, chosen)
            failed = self._validate(result, validator)
            if not failed:
                break
            barred |= failed
            spoilt |= {n for c in chosen if c.written is not None and (c.rule.name, c.root.name) in failed for n in c.region}
        done = [_fused(r.candidate.decision, r.node.name) for r in result.rewrites]
        made, changes = self._cleaned(result.proto, clean)
        report = replace(self.report(made, chosen, [*done, *barred.values(), *decisions]), changes=changes)
        if validator is None:
            return Result(made, replace(report, not_verified=("verification was switched off",)))
        with self._timed("verify"):
            checked = verify_whole(
                self.source,
                made,
                inputs=inputs,
                sizes=self.given,
                libraries=libraries,
                changed=bool(done or changes),
                progress=self.progress,
            )
        return Result(
            made,
            replace(report, verified=(*validator.summary(), *checked.ran), not_verified=checked.left_out, seconds=dict(self.seconds)),
        )

    def _cleaned(self, proto: onnx.ModelProto, clean: bool) -> tuple[onnx.ModelProto, tuple[str, ...]]:
        """(the model, less what it does not need if `clean`; what changed beside what was fused)."""
        changes = [f"Opset     {old} -> {new}"] if (old := self.old_opset) != (new := opset_of(proto)) else []
        if clean:
            with self._timed("clean"):
                cleaned = cleaning.clean(graph.index(proto, self.model.folder, self.model.path))
            proto = cleaned.proto
            changes += [f"Cleaned   {cleaned.summary()}"] if cleaned.gone else []
        return proto, tuple(changes)

    def _validate(self, result: Rewritten, validator: Validator | None) -> dict[tuple[str, str], Decision]:
        if validator is None:
            return {}
        with self._timed("validate"):
            failures = validator.validate(result.rewrites)
        return {
            (r.candidate.rule.name, r.candidate.root.name): r.candidate.decision.ended(Verdict.ROLLED_BACK, reason)
            for r, reason in failures
        }

    def _shown_sizes(self) -> Mapping[str, int]:
        """The sizes of the model's own inputs, which people know."""
        named = {n for v in self.model.main.inputs for d in v.shape or () for n in symbols(d)}
        return {n: size for n, size in self.decider.ranges.sizes(self.model.main).items() if n in named}

    def report(self, after: onnx.ModelProto, chosen: Sequence[Candidate], decisions: Sequence[Decision]) -> Report:
        report = _report(self.source, self.model.proto, after, self.device, self.level, decisions, self._shown_sizes())
        with self._timed("explain"):
            told = tuple(self.decider.told(d) if d.verdict in TOLD else d for d in report.decisions)
        return replace(
            report,
            decisions=told,
            seconds=dict(self.seconds),
            target=self.target.name,
            planned=partial(self.decider.plans, chosen, self.allowed),
            gained=partial(self.decider.before_and_after, chosen),
            exhibit=partial(exhibit, self.decider, told, after),
        )


def _is_for(rule: Rule, level: str, target: str, asked: Sequence[str]) -> bool:
    if level == "none" or (level == "elementwise" and rule.kind != ELEMENTWISE) or target not in (rule.targets or (target,)):
        return False
    return level in (rule.levels or (level,)) or rule.name in asked


def _cost(device: str, max_fusion_size: int, range_loss: float) -> CostModel:
    """What prices. Raises UsageError."""
    if not range_loss >= 0:
        raise UsageError(f"range_loss must be a percentage of at least 0; got {range_loss}")
    return CostModel(device, max_nodes=max_fusion_size, kernels=compiled.read(custom_ops.kernel_tables()))


def _target(name: str, cost: CostModel) -> Target:
    """What to write fused ops in. Raises UsageError."""
    if name not in TARGETS:
        raise UsageError(f"target '{name}' is unknown. Use one of {', '.join(TARGETS)}")
    return Target(name, "cpu" if isinstance(cost.device, Cpu) else "cuda", custom_ops.all_forms())


def _unsettled(declined: Iterable[Decision], chosen: Sequence[Candidate], views: Sequence[View]) -> Iterator[Decision]:
    """Declined matches that still need saying, one per rule and root: not those of nodes a fusion took, nor those that
    reach past a fusion of the same rule (a scaled norm, whose norm did fuse)."""
    values = {v.graph.name: v.graph.values for v in views}
    taken = {n for c in chosen for n in c.removed}
    made = {(c.rule.name, c.root) for c in chosen}
    seen: set[tuple[str, str, str]] = set()
    for decision in declined:
        value = values[decision.scope].get(decision.value)
        producer = value.producer if value is not None else None
        key = (decision.rule, decision.scope, decision.value)
        if key in seen or producer in taken or (producer is not None and any((decision.rule, v) in made for v in producer.inputs)):
            continue
        seen.add(key)
        yield decision


def _worth_telling(ended: Sequence[Decision], chosen: Sequence[Candidate]) -> Iterator[Decision]:
    """Losers, less those strictly inside the winner: a norm inside the norm with its residual needs no explanation."""
    inside = {(c.view.graph.name, label) for c in chosen for label in c.decision.nodes if label != c.decision.node}
    roots = {(c.rule.name, c.view.graph.name, c.decision.node) for c in chosen}
    for decision in ended:
        place = decision.scope, decision.node
        if decision.verdict is not Verdict.LOST or (place not in inside and (decision.rule, *place) not in roots):
            yield decision


def _report(
    source: Source,
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    device: str,
    level: str,
    decisions: Sequence[Decision],
    sizes: Mapping[str, int],
) -> Report:
    name = "model in memory" if isinstance(source, onnx.ModelProto) else str(source)
    return Report(name, device, level, tuple(decisions), _count(before.graph), _count(after.graph), dict(sizes))


def _count(body: onnx.GraphProto) -> int:
    inner = (b for n in body.node for a in n.attribute for b in ([a.g] if a.type == onnx.AttributeProto.GRAPH else a.graphs))
    return sum(n.op_type != "Constant" for n in body.node) + sum(map(_count, inner))


class _Timer:
    """Seconds of a phase. The search for garbage cycles waits meanwhile: it walks all that lives, and a phase makes none to speak of."""

    def __init__(self, seconds: dict[str, float], phase: str) -> None:
        self.seconds, self.phase, self.start, self.collects = seconds, phase, 0.0, False

    def __enter__(self) -> None:
        self.start, self.collects = time.perf_counter(), gc.isenabled() and self.phase not in RUNS_MODELS
        if self.collects:
            gc.disable()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.phase] = self.seconds.get(self.phase, 0.0) + time.perf_counter() - self.start
        if self.collects:
            gc.enable()


__all__ = ["Result", "explain", "load_generators", "load_rules", "optimize"]
