"""Tests the rules of a file: their own examples, then models made up from their patterns.

An example of `fires_on` must fuse once, keep its numbers and leave nothing to do; one of `declines` must stay as it is, for
the reason that is its key. The models that are made up vary in shape, type, spelling and in who reads what is inside; a
rule may decline any of them, but what it makes of one must be a valid model with the same numbers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx.parser

from onnxfuse import api, runtime
from onnxfuse.decision import Decision, Verdict
from onnxfuse.errors import RuleError, RuntimeMissingError, VerificationError
from onnxfuse.inputs import feeds
from onnxfuse.library import rules_in
from onnxfuse.pattern_models import make_up
from onnxfuse.rule import Rule
from onnxfuse.spelling import Unsuitable
from onnxfuse.verify import verify_rewrite

DEFAULT_OPSET = 17
MODELS = 60  # made up for each rule, less those whose random sizes do not fit together
CPU = ("CPUExecutionProvider",)


@dataclass(frozen=True)
class Failure:
    """What is wrong, and the model that shows it."""

    what: str
    model: onnx.ModelProto | None = None

    @property
    def text(self) -> str:
        """The model as ONNX text; empty if there is none."""
        return "" if self.model is None else str(onnx.printer.to_text(self.model))


@dataclass(frozen=True)
class RuleResult:
    """How a rule did: examples that fired and declined as they should, models made up, and how many of them were fused."""

    rule: str
    fired: int
    declined: int
    made_up: int
    fused: int
    failures: tuple[Failure, ...]

    @property
    def smallest(self) -> Failure | None:
        """The failure whose model has the fewest nodes."""
        return min(self.failures, key=lambda f: len(f.model.graph.node) if f.model is not None else 0, default=None)


def parse(text: str, opset: int = DEFAULT_OPSET, ir_version: int = 8) -> onnx.ModelProto:
    """A worked example as a model: ONNX text, its header `<opset_import: ["" : 20]>` optional. Raises RuleError."""
    head = "" if text.lstrip().startswith("<") else f'<opset_import: ["" : {opset}]>\n'
    try:
        model = onnx.parser.parse_model(head + text)
    except onnx.parser.ParseError as error:
        raise RuleError(f"an example must be ONNX text; {error.args[0].decode(errors='replace').strip()}") from None
    model.ir_version = model.ir_version or ir_version
    return model


def test_rules(path: str | Path, *, models: int = MODELS, seed: int = 0, libraries: Sequence[str | Path] = ()) -> list[RuleResult]:
    """Test every rule of a file; the same models are made up each time for a seed.

    libraries: custom-op libraries that the ops of the rules need. Raises RuleError when the file cannot be loaded or an
    example is no ONNX text, RuntimeMissingError when ONNX Runtime or our library is missing.
    """
    path = Path(path)
    return [_Tester(path, rule, libraries).test(models, seed) for rule in rules_in(path).values()]


@dataclass(frozen=True)
class _Tester:
    path: Path
    rule: Rule
    libraries: Sequence[str | Path]

    def test(self, models: int, seed: int) -> RuleResult:
        failures = [*self._firing(), *self._declining()]
        made_up, fused = 0, 0
        for number in range(models):
            model = self._made_up(seed, number)
            if model is None:
                continue
            made_up += 1
            after, decisions = self._optimized(model)
            fused += any(d.verdict is Verdict.FUSED for d in decisions)
            wrong = self._wrong(model, after, decisions)
            if wrong is not None:
                failures.append(Failure(f"made up from the pattern: {wrong}", model))
        return RuleResult(self.rule.name, len(self.rule.fires_on), len(self.rule.declines), made_up, fused, tuple(failures))

    # ---- the rule's own examples

    def _firing(self) -> Iterator[Failure]:
        for number, text in enumerate(self.rule.fires_on, start=1):
            model, where = parse(text), f"example {number} of fires_on"
            after, decisions = self._optimized(model)
            count = sum(d.verdict is Verdict.FUSED for d in decisions)
            wrong = self._wrong(model, after, decisions)
            if count != 1:
                yield Failure(f"{where} must be fused once; it was fused {count} times. {_reasons(decisions)}", model)
            elif wrong is not None:
                yield Failure(f"{where}: {wrong}", model)
            elif any(d.verdict is Verdict.FUSED for d in self._optimized(after)[1]):
                yield Failure(f"{where} must leave nothing to fuse; what came of it was fused again", model)

    def _declining(self) -> Iterator[Failure]:
        for reason, text in self.rule.declines.items():
            model = parse(text)
            _, decisions = self._optimized(model)
            if any(d.verdict is Verdict.FUSED for d in decisions):
                yield Failure(f"an example of declines was fused; it must decline: {reason}", model)
            elif not any(reason in d.reason for d in decisions):
                yield Failure(f"an example of declines must decline: {reason}. {_reasons(decisions)}", model)

    # ---- any model

    def _optimized(self, model: onnx.ModelProto) -> tuple[onnx.ModelProto, Sequence[Decision]]:
        result = api.optimize(model, level="all", rules=[self.path], only=[self.rule.name], verify=False)
        return result.model, result.report.decisions

    def _wrong(self, model: onnx.ModelProto, after: onnx.ModelProto, decisions: Sequence[Decision]) -> str | None:
        """What is wrong with a rewritten model; None if nothing is, or nothing was rewritten."""
        raised = next((d.reason for d in decisions if d.reason.startswith("the rule raised")), None)
        if raised is not None:
            return raised
        if not any(d.verdict is Verdict.FUSED for d in decisions):
            return None
        try:
            onnx.checker.check_model(after)
            difference = verify_rewrite(model, after, seed=0, libraries=self.libraries)
        except (RuntimeMissingError, RuleError):
            raise
        except (onnx.checker.ValidationError, VerificationError) as error:
            return str(error)
        return None if difference is None else f"the rewrite changes a number: {difference}"

    def _made_up(self, seed: int, number: int) -> onnx.ModelProto | None:
        """A model that runs; None where the random sizes do not fit together."""
        try:
            model = make_up(self.rule.before, random.Random(f"{self.rule.name} {seed} {number}")).model
        except Unsuitable:
            return None
        try:
            session = runtime.session(model, CPU, optimizations=False, threads=1)
            runtime.run(session, feeds(model, seed=0)[0])
        except Exception:  # noqa: BLE001  # ONNX Runtime's own exceptions share no base but this
            return None
        return model


def _reasons(decisions: Sequence[Decision]) -> str:
    """What the report says of it."""
    told = list(dict.fromkeys(d.reason for d in decisions if d.reason))
    return f"The report says: {'; '.join(told)}" if told else "The pattern does not match: `onnxfuse explain` tells how far it gets"
