"""Models as text, the engine without its safety net, and numbers before and after.

Rewrites are made without validation here: what is wrong must show, not be rolled back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from onnxfuse import graph, runtime, shapes
from onnxfuse.candidate import Candidate, candidates, replaces_enough
from onnxfuse.canonical import View
from onnxfuse.cost.model import Model as CostModel
from onnxfuse.decider import MOST_LOSS, Decider, covered
from onnxfuse.decision import Decision
from onnxfuse.library import all_rules
from onnxfuse.op import DOMAIN
from onnxfuse.ranges import Ranges
from onnxfuse.rewriter import rewrite
from onnxfuse.rule import Rule
from onnxfuse.ruletest import parse
from onnxfuse.select import select
from onnxfuse.target import Target
from onnxfuse.verify.compare import REWRITE_BUDGETS, difference

Arrays = dict[str, Any]
ROOT_HALF, ONE, HALF = "float root_half = {0.70710678}", "float one = {1.0}", "float half = {0.5}"
GELU_CONSTANTS = f"<{ROOT_HALF}, {ONE}, {HALF}>"


def gelu(x: str, y: str, tag: str = "g") -> str:
    """The text of five nodes that make y = gelu(x); needs GELU_CONSTANTS."""
    return f"{tag}1 = Mul({x}, root_half) {tag}2 = Erf({tag}1) {tag}3 = Add({tag}2, one) {tag}4 = Mul({x}, {tag}3) {y} = Mul({tag}4, half)"


@dataclass(frozen=True)
class Fused:
    """A model after the engine, what was made, and what was not and why."""

    model: onnx.ModelProto
    chosen: list[Candidate]
    decisions: list[Decision]

    @property
    def ops(self) -> list[str]:
        """Operator types of the main graph, constants left out."""
        return [n.op_type for n in self.model.graph.node if n.op_type != "Constant"]

    @property
    def own(self) -> list[str]:
        """Fused ops of ours anywhere in the model."""
        return [n.op_type for n in runtime.all_nodes(self.model) if n.domain == DOMAIN]

    @property
    def reasons(self) -> str:
        return "\n".join(d.reason for d in self.decisions)


@cache
def shipped() -> dict[str, Rule]:
    return all_rules()


def views(model: onnx.ModelProto) -> list[View]:
    """The canonical view of every graph, shapes inferred."""
    loaded = graph.load(model)
    shapes.infer(loaded)
    return [View(g) for g in loaded.graphs()]


def view(text: str, **options: Any) -> View:
    return views(parse(text, **options))[0]


def fuse(model: onnx.ModelProto, *rules: Rule | str) -> Fused:
    """All that these rules (by default: all that ship) find, the largest first, with nothing validated."""
    wanted = [r if isinstance(r, Rule) else shipped()[r] for r in rules] or [r for r in shipped().values() if not r.levels]
    loaded = graph.load(model)
    shapes.infer(loaded)
    own = {body for f in loaded.functions if f.function is not None and f.function.domain == DOMAIN for body in f.walk()}
    found = [item for g in loaded.graphs() if g not in own for item in candidates(View(g), wanted)]
    able = [item for item in found if isinstance(item, Candidate) and replaces_enough(item)]
    chosen, ended = select(able, covered)
    declined = [item for item in found if isinstance(item, Decision)]
    return Fused(rewrite(loaded, chosen).proto, chosen, [*declined, *ended])


def decider(source: Path | onnx.ModelProto, device: str = "cpu-generic", *, most_loss: float = MOST_LOSS) -> Decider:
    """What all shipped rules find in a model, priced."""
    loaded = graph.load(source)
    shapes.infer(loaded)
    ranges = Ranges(loaded, CostModel(device), {})
    return Decider(loaded, list(shipped().values()), Target(), ranges, lambda *_: None, most_loss=most_loss)


def feed(model: onnx.ModelProto, seed: int = 0, **sizes: int) -> Arrays:
    """Inputs by name: normal floats, small integers, mixed bools. Symbols without a size get 2, 3, 5, 7 in turn."""
    rng, known = np.random.default_rng(seed), dict(sizes)
    defaults = {t.name for t in model.graph.initializer}
    made: Arrays = {}
    for value in model.graph.input:
        if value.name in defaults:
            continue
        tensor = value.type.tensor_type
        shape = [_size(d, known) for d in tensor.shape.dim]
        made[value.name] = _array(rng, helper.tensor_dtype_to_np_dtype(tensor.elem_type), shape)
    return made


def _size(dim: onnx.TensorShapeProto.Dimension, known: dict[str, int]) -> int:
    if not dim.dim_param:
        return int(dim.dim_value)
    return known.setdefault(dim.dim_param, (2, 3, 5, 7)[len(known) % 4])


def _array(rng: np.random.Generator, dtype: Any, shape: Sequence[int]) -> Any:
    if dtype == np.bool_:
        return np.asarray(rng.random(shape) < 0.6)
    if np.issubdtype(dtype, np.integer):
        return np.asarray(rng.integers(0, 4, shape), dtype)
    return np.asarray(rng.standard_normal(shape), dtype)


def run(model: onnx.ModelProto, values: Mapping[str, Any], *, register: bool = True) -> list[Any]:
    """The outputs of the model on the CPU with all optimisations off."""
    made = runtime.session(model, ["CPUExecutionProvider"], optimizations=False, threads=1, register=register)
    return runtime.run(made, values)


def declare_outputs(model: onnx.ModelProto, results: Sequence[Any]) -> None:
    """Give the outputs of a model the types and ranks that a run of it had."""
    for info, result in zip(model.graph.output, results, strict=True):
        info.CopyFrom(helper.make_tensor_value_info(info.name, helper.np_dtype_to_tensor_dtype(result.dtype), [None] * result.ndim))


def assert_same_numbers(before: onnx.ModelProto, after: onnx.ModelProto, *feeds: Mapping[str, Any]) -> None:
    """Both models are valid and give the same outputs, with our library and without."""
    onnx.checker.check_model(after, full_check=True)
    assert [o.name for o in before.graph.output] == [o.name for o in after.graph.output]
    for values in feeds or (feed(before, 1), feed(before, 2)):
        want = run(before, values)
        for register in (True, False):
            got = run(after, values, register=register)
            for name, one, other in zip([o.name for o in after.graph.output], got, want, strict=True):
                found = difference(one, other, REWRITE_BUDGETS)
                assert found is None, f"{name}, register={register}: {found}\n{onnx.printer.to_text(after)}"


def assert_fuses(text: str | onnx.ModelProto, *rules: Rule | str, into: Sequence[str], **options: Any) -> Fused:
    """The rules make these ops of it, one after the other, and keep its numbers."""
    model = parse(text, **options) if isinstance(text, str) else text
    done = fuse(model, *rules)
    assert done.own == list(into), f"{done.own}\n{done.reasons}\n{onnx.printer.to_text(model)}"
    assert_same_numbers(model, done.model)
    return done


def assert_kept(text: str | onnx.ModelProto, *rules: Rule | str, because: str = "", **options: Any) -> Fused:
    """The rules change nothing, byte for byte, and the reason given holds these words."""
    model = parse(text, **options) if isinstance(text, str) else text
    done = fuse(model, *rules)
    assert done.chosen == [], f"fused {[c.rule.name for c in done.chosen]}\n{onnx.printer.to_text(model)}"
    assert done.model.SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)
    assert because in done.reasons, done.reasons
    return done
