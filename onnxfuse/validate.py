"""Nothing is fused on trust: each rewrite against what it replaced, then the whole model against the original."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from onnxfuse.errors import ModelError, OnnxFuseError, VerificationError
from onnxfuse.fitting import assignments
from onnxfuse.rewriter import Rewrite, as_models
from onnxfuse.runtime import unregistered
from onnxfuse.verify import fingerprint, verify, verify_rewrite

Progress = Callable[[str, int, int], None]


@dataclass
class Validator:
    """Validates rewrites; equal ones (same op, attributes, shapes and types) only once.

    libraries: custom-op libraries that the model, or what a rule makes of it, needs besides ours.
    """

    progress: Progress
    libraries: Sequence[str | Path] = ()
    known: dict[str, str | None] = field(default_factory=dict)  # fingerprint -> what is wrong
    rewrites: int = 0

    def validate(self, rewrites: Sequence[Rewrite]) -> list[tuple[Rewrite, str]]:
        """The rewrites that do not give the numbers of what they replaced, with the difference."""
        failed: list[tuple[Rewrite, str]] = []
        self.rewrites = len(rewrites)
        for done, rewrite in enumerate(rewrites):
            self.progress("validate", done, len(rewrites))
            wrong = self._check(rewrite)
            if wrong is not None:
                failed.append((rewrite, wrong))
        return failed

    def summary(self) -> tuple[str, ...]:
        if not self.rewrites:
            return ()
        if self.rewrites == 1:
            return ("1 rewrite, against what it replaced",)
        return (f"{self.rewrites} rewrites, each against what it replaced ({len(self.known)} different ones were run)",)

    def _check(self, rewrite: Rewrite) -> str | None:
        candidate = rewrite.candidate
        for seed, sizes in enumerate(assignments((*candidate.call.context, *candidate.region), candidate.inputs)):
            try:
                before, after = as_models(rewrite, sizes)
                key = fingerprint(after) + fingerprint(before)
                if key not in self.known:
                    difference = verify_rewrite(before, after, seed=seed, libraries=self.libraries)
                    self.known[key] = None if difference is None else str(difference)
            except OnnxFuseError as error:
                return f"it cannot be run: {error}"
            if self.known[key] is not None:
                return self.known[key]
        return None


@dataclass(frozen=True)
class Checked:
    """Lines for the report: what ran, and what was left out and why."""

    ran: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def verify_whole(
    source: str | Path | onnx.ModelProto,
    after: onnx.ModelProto,
    *,
    inputs: str | Path | None,
    sizes: Mapping[str, int],
    libraries: Sequence[str | Path],
    changed: bool,
    progress: Progress,
) -> Checked:
    """The optimised model against the original with optimisations off. Raises VerificationError when they differ."""
    name = "the model" if isinstance(source, onnx.ModelProto) else source
    missing = unregistered(after, libraries)
    if missing:
        names = "; ".join(f"{domain}: {', '.join(ops)}" for domain, ops in missing.items())
        raise ModelError(
            f"{name}: cannot be verified, ONNX Runtime knows no operators {names}. "
            "Give their library with --library, or switch verification off with --no-verify"
        )
    if not changed and inputs is None:
        return Checked(("nothing was changed",))
    progress("verify", 0, 1)
    result = verify(source, after, inputs=inputs, shapes=sizes, libraries=libraries)
    if result.differences:
        raise VerificationError(f"{name}: the optimised model gives other numbers: {result.summary()}. Nothing was written")
    return Checked((result.same,) if result.feeds else (), tuple(result.not_run))
