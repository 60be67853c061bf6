"""Does the cost model predict what fusing saves on this CPU?

    python benchmarks/cost_accuracy.py [--calibrate] [--seconds 1.0] [--models bert gpt2 llama examples] [--lengths 16 128 512]

For each kind of candidate that the rules find in BERT-, GPT-2- and LLaMA-like models (built here, random weights, float32)
and in examples/: the nodes that it replaces against what replaces them, as small models of their own, one thread. Copies of
each run one after the other, and the time of one is the slope between few and many, so that what a session costs falls out; the best
of many runs counts, so that what else the machine does falls out where it comes and goes. Prints predicted and measured
savings, how often their signs agree, and their rank correlation. Then each whole model with nothing fused, with all that
matches, and with what the cost model chose: the regret is how much longer the chosen one takes than the fastest of the three.
--calibrate measures this CPU first; else its profile is used if there is one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from blueprints import Config, bert, gpt2, llama
from onnx import TensorProto, numpy_helper
from rich.console import Console
from rich.table import Table

import onnxfuse
from onnxfuse import graph, runtime, shapes
from onnxfuse.candidate import Candidate
from onnxfuse.cost.calibrate import measure_cpu
from onnxfuse.cost.devices import this_cpu
from onnxfuse.cost.model import Model as CostModel
from onnxfuse.cost.model import Price
from onnxfuse.decider import Decider
from onnxfuse.errors import OnnxFuseError
from onnxfuse.inputs import Maker
from onnxfuse.inputs.values import Regime
from onnxfuse.library import all_rules
from onnxfuse.ranges import Ranges
from onnxfuse.rewriter import as_models, rewrite
from onnxfuse.target import Target

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FEW = 1  # copies of the small model in the short run
LONG_US = 2000.0  # about what the copies of the long run take together
MOST_COPIES = 40
CLEAR = 0.05  # of the unfused time: measured savings beyond it count as clear


def config(name: str, length: int, **sizes: int) -> Config:
    """A small model that can be run."""
    usual = {"layers": 2, "hidden": 256, "heads": 4, "kv_heads": 4, "inner": 1024, "vocabulary": 512, "length": length, **sizes}
    return Config(name, **usual, dtype=TensorProto.FLOAT, has_data=True)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Subject:
    """A model and the sizes it is looked at."""

    name: str
    model: onnx.ModelProto
    sizes: dict[str, int]


@dataclass(frozen=True)
class Case:
    """One kind of candidate: what was predicted and what was measured, microseconds of one run."""

    subject: str
    rule: str
    target: str
    times: int
    price: Price
    before_us: float
    after_us: float

    @property
    def saved_us(self) -> float:
        return self.before_us - self.after_us

    @property
    def is_clear(self) -> bool:
        return abs(self.saved_us) > CLEAR * self.before_us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calibrate", action="store_true", help="measure this CPU first (15 seconds), and keep nothing of it")
    parser.add_argument("--seconds", type=float, default=1.0, help="to measure each candidate, and each model")
    parser.add_argument("--models", nargs="+", default=["bert", "gpt2", "llama", "examples"])
    parser.add_argument("--lengths", type=int, nargs="+", default=[16, 128, 512])
    options = parser.parse_args()
    cpu = measure_cpu() if options.calibrate else this_cpu()
    cost = CostModel(cpu, threads=1)
    console = Console(width=140)
    print(f"{cpu.name}, profile {cpu.key} ({cpu.confidence}), ONNX Runtime {runtime.require_onnxruntime().__version__}, 1 thread")
    cases: list[Case] = []
    regrets: list[float] = []
    for subject in subjects(options.models, options.lengths):
        cases += measured(subject, cost, options.seconds)
        regrets.append(regret(subject, cost, options.seconds))
        print(f"{subject.name}: {len(cases)} candidates so far, regret {regrets[-1]:.1%}", flush=True)
    console.print(table(cases))
    print(*summary(cases, regrets), sep="\n")


def subjects(names: Sequence[str], lengths: Sequence[int]) -> Iterator[Subject]:
    """The models, one after the other."""
    built = {"bert": bert, "gpt2": gpt2}
    for length in lengths:
        sizes = {"batch": 1, "seq": length}
        for name, build in built.items():
            if name in names:
                yield Subject(f"{name} {length}", build(config(name, length)), sizes)
        if "llama" in names:
            yield Subject(f"llama {length}", llama(config("llama", length, kv_heads=2, inner=688)), sizes)
    for path in sorted(EXAMPLES.glob("*.onnx")) if "examples" in names else ():
        yield Subject(path.stem, onnx.load(path), {})


def decider(model: onnx.ModelProto, cost: CostModel, sizes: dict[str, int], rules: Sequence[str] = ()) -> Decider:
    """What the rules find in the model, priced."""
    loaded = graph.load(model)
    shapes.infer(loaded)
    wanted = [rule for name, rule in all_rules().items() if not rules or name in rules]
    return Decider(loaded, wanted, Target(), Ranges(loaded, cost, sizes), lambda *_: None)


def measured(subject: Subject, cost: CostModel, seconds: float) -> Iterator[Case]:
    """One case for each kind of candidate that can be cut out of the model and run."""
    found = decider(subject.model, cost, subject.sizes)
    kinds: dict[Any, list[Candidate]] = {}
    for candidate in found.found:
        kinds.setdefault((candidate.view.graph, found.recipes.of(candidate)), []).append(candidate)
    for (scope, _), members in kinds.items():
        (made,) = rewrite(found.model, members[:1]).rewrites
        try:
            before, after = as_models(made, found.ranges.sizes(scope))
            price = alone(before, members[0], cost)
            if price is None:
                continue
            times = both_us(before, after, seconds, price.unfused_us)
        except OnnxFuseError as error:
            print(f"{subject.name}: {members[0].rule.name} left out: {error}")
            continue
        yield Case(subject.name, members[0].rule.name, members[0].call.label, len(members), price, *times)


def alone(before: onnx.ModelProto, candidate: Candidate, cost: CostModel) -> Price | None:
    """The price of the candidate in the small model that is measured; None if it takes another form there."""
    outputs = {value.name for value in candidate.outputs if value is not None}
    for other in decider(before, cost, {}, [candidate.rule.name]).found:
        same = {value.name for value in other.outputs if value is not None} == outputs
        if same and other.call.label == candidate.call.label and isinstance(other.price, Price):
            return other.price
    return None


def both_us(before: onnx.ModelProto, after: onnx.ModelProto, seconds: float, guess_us: float) -> tuple[float, float]:
    """Microseconds of one run of each, measured in turns."""
    many = FEW + max(2, min(MOST_COPIES, int(LONG_US / max(guess_us, 1.0))))
    maker = Maker(before, {})
    feed = maker.feed(maker.assignments()[0], Regime("nothing masked", masks="ones"), 0)
    runs = [Run(copies(model, count), feed) for model in (before, after) for count in (FEW, many)]
    end = time.perf_counter() + seconds
    for run in runs:
        run.once()
    while any(run.count < 5 for run in runs) or time.perf_counter() < end:
        for run in runs:
            run.once()
    best = [run.best_us for run in runs]
    return (best[1] - best[0]) / (many - FEW), (best[3] - best[2]) / (many - FEW)


class Run:
    """A session, its inputs, and the best time so far."""

    def __init__(self, model: onnx.ModelProto, feed: Any) -> None:
        self.session = runtime.session(model, ["CPUExecutionProvider"], threads=1)
        self.feed = {i.name: feed[i.name] for i in self.session.get_inputs()}
        self.best_us, self.count = float("inf"), -1  # the first run warms up

    def once(self) -> None:
        start = time.perf_counter()
        self.session.run(None, self.feed)
        self.count += 1
        if self.count > 0:
            self.best_us = min(self.best_us, (time.perf_counter() - start) * 1e6)


def copies(model: onnx.ModelProto, count: int) -> onnx.ModelProto:
    """So many copies of a model one after the other, with the same inputs; each but the first reads a number of the one before.

    Results are reduced to one number each: they stay in memory that is used again, as between the layers of a model, and
    nothing is merged because it leaves the model or stands there twice.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:], made.graph.output[:], made.graph.value_info[:]
    (first,) = [i.name for i in model.graph.input if i.type.tensor_type.elem_type == TensorProto.FLOAT][:1] or [""]
    made.graph.initializer.extend([numpy_helper.from_array(np.float32(0), name) for name in ("nought", "zero.0")])
    shared = {t.name for t in made.graph.initializer} | {i.name for i in model.graph.input} - {first}
    for k in range(count):
        made.graph.node.append(onnx.helper.make_node("Add", [first, f"zero.{k}"], [f"{first}.{k}"], name=f"in.{k}"))
        for node in model.graph.node:
            copy = made.graph.node.add()
            copy.CopyFrom(node)
            copy.name = f"{node.name}.{k}"
            for side in (copy.input, copy.output):
                side[:] = [n if not n or n in shared else f"{n}.{k}" for n in side]
        made.graph.node.extend(_reduced([o.name for o in model.graph.output], k))
    made.graph.output.append(onnx.helper.make_tensor_value_info(f"zero.{count}", TensorProto.FLOAT, []))
    return made


def _reduced(outputs: Sequence[str], k: int) -> list[onnx.NodeProto]:
    """zero.(k+1) = 0 * (the largest number of each output of copy k): 0, and not known before copy k is done."""
    make = onnx.helper.make_node
    nodes = [make("ReduceMax", [f"{o}.{k}"], [f"{o}.{k}.max"], name=f"{o}.{k}.max", keepdims=0) for o in outputs]
    total = f"{outputs[0]}.{k}.max"
    for o in outputs[1:]:
        nodes.append(make("Add", [total, f"{o}.{k}.max"], [f"{o}.{k}.total"], name=f"{o}.{k}.total"))
        total = f"{o}.{k}.total"
    return [*nodes, make("Mul", [total, "nought"], [f"zero.{k + 1}"], name=f"zero.{k + 1}")]


def regret(subject: Subject, cost: CostModel, seconds: float) -> float:
    """How much longer the chosen form of the model takes than the fastest of none, all and chosen."""
    found = decider(subject.model, cost, subject.sizes)
    chosen, all_ = (rewrite(found.model, found.choose(everything=everything)[0]).proto for everything in (False, True))
    ratios = [1.0]
    for model in (all_, chosen):
        runs = max(5, int(seconds * 1e5 / 2 / max(1.0, found.planner.plan("none", []).time_us)))
        ratios.append(1 / (onnxfuse.bench(subject.model, model, shapes=subject.sizes, runs=min(runs, 200)).ratio or 1.0))
    return ratios[2] / min(ratios) - 1


def table(cases: Sequence[Case]) -> Table:
    made = Table("model", "rule", "times", "predicted us", "saves", "measured us", "saves", "sign")
    for case in cases:
        agrees = (case.price.saved_us > 0) == (case.saved_us > 0)
        predicted = f"{case.price.unfused_us:.2f} -> {case.price.fused_us:.2f}", f"{case.price.saved_us:.2f}"
        seen = f"{case.before_us:.2f} -> {case.after_us:.2f}", f"{case.saved_us:.2f}"
        made.add_row(
            case.subject, case.rule, str(case.times), *predicted, *seen, "" if agrees else "WRONG" if case.is_clear else "wrong, unclear"
        )
    return made


def summary(cases: Sequence[Case], regrets: Sequence[float]) -> list[str]:
    """Signs, rank correlation, regret."""
    agree = [(c.price.saved_us > 0) == (c.saved_us > 0) for c in cases]
    clear = [a for a, c in zip(agree, cases, strict=True) if c.is_clear]
    predicted, seen = ranks([c.price.saved_us for c in cases]), ranks([c.saved_us for c in cases])
    sure = f"{np.mean(clear):.1%} of the {len(clear)} that are clear (over {CLEAR:.0%} of the unfused time)"
    return [
        f"candidates        {len(cases)}",
        f"sign right        {np.mean(agree):.1%}; {sure}",
        f"rank correlation  {np.corrcoef(predicted, seen)[0, 1]:.3f}",
        f"regret            {max(regrets):.1%} at most, {np.mean(regrets):.1%} on average over {len(regrets)} models",
    ]


def ranks(values: Sequence[float]) -> list[float]:
    """Places in order; equal values share the middle of theirs."""
    array = np.asarray(values)
    return [float(np.sum(array < v) + (np.sum(array == v) - 1) / 2) for v in array]


if __name__ == "__main__":
    main()
