"""`onnxfuse rules test`: a rule file's own examples, then models made up from its patterns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from onnxfuse import ruletest
from onnxfuse.commands import screen
from onnxfuse.errors import RuleError
from onnxfuse.report.tables import table
from onnxfuse.report.text import counted
from onnxfuse.ruletest import RuleResult


def run(path: Path, *, models: int, seed: int, libraries: Sequence[Path], folder: Path) -> None:
    """Print a row per rule, and for each that fails the smallest counter-example, which is written to `folder` too.

    Raises RuleError if a rule fails.
    """
    results = ruletest.test_rules(path, models=models, seed=seed, libraries=libraries)
    made = table("", "Rule", "Examples", "Made up", "Fused", "Wrong", right=("Made up", "Fused", "Wrong"))
    for result in results:
        examples = f"{result.fired} fire, {result.declined} decline"
        made.add_row(result.rule, examples, str(result.made_up), str(result.fused), str(len(result.failures)))
    screen.out().print(made)
    written = [place for result in results if (place := _show(result, folder)) is not None]
    failed = [result.rule for result in results if result.failures]
    if failed:
        where = f" Counter-examples: {', '.join(map(str, written))}" if written else ""
        raise RuleError(f"{path}: {', '.join(failed)} must keep every number and do what the examples say; see above.{where}")
    idle = [r.rule for r in results if not r.fired and not r.fused]
    if idle:
        raise RuleError(
            f"{path}: {', '.join(idle)} was made nowhere: no model could be made up that its pattern holds in. "
            "Are its operators ONNX's, and is what has a name of its own written by that name, as x * sigmoid(alpha * x) "
            "by op.Swish(x, alpha=...)? docs/rules.md lists those names. Else give it an example in fires_on"
        )
    made_up = counted(sum(r.fused for r in results), "rewrite")
    screen.say(f"Tested    {counted(len(results), 'rule')}, {made_up} of made-up models: every number stayed")


def _show(result: RuleResult, folder: Path) -> Path | None:
    """Say what is wrong with a rule, and write the model that shows it."""
    failure = result.smallest
    if failure is None:
        return None
    screen.say(f"WRONG     {result.rule}: {failure.what}")
    if failure.model is None:
        return None
    screen.say(failure.text)
    path = folder / f"{result.rule}_counterexample.onnx"
    onnx.save(failure.model, path)
    return path
