"""Does the cost model predict what fusing saves on this CPU?

    onnxfuse calibrate
    python benchmarks/cost_accuracy.py --results FILE.json [--seconds 0.5] [--models bert vit ...] [--lengths 16 64 256]
    python benchmarks/cost_accuracy.py --results FILE.json --print

For each kind of candidate that the rules find in small models of encoders, decoders, image models and in examples/: the
nodes that it replaces against what replaces them, as small models of their own, one thread, float32. Copies of each run one
after the other, and the time of one is the slope between few and many, so that what a session costs falls out; the best of
many runs counts, so that what else the machine does falls out where it comes and goes. Then each whole model with nothing
fused, with all that matches, and with what the cost model chose: the regret is how much longer the chosen one takes than
the fastest of the three.

What is measured is kept in FILE, so that it may be measured in pieces, each below two minutes; --print measures nothing, and
prints predictions of the profile that is there now beside what was measured: how often the signs agree, the rank
correlation of predicted and measured savings, and the regret.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from runnable import MODELS, Subject, subject
from timing import Results, Session, in_turns, large_pages, machine, markdown, ratio

from onnxfuse import graph, runtime, shapes
from onnxfuse.candidate import Candidate
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
LENGTHS = (16, 64, 256)
FEW = 1  # copies of the small model in the short run
LONG_US = 2000.0  # about what the copies of the long run take together
MOST_COPIES = 40
LOADS = 5  # of each form of a whole model
CLEAR = 0.05  # of the unfused time: measured savings beyond it count as clear


@dataclass(frozen=True)
class Case:
    """One kind of candidate in one model: its price alone, and as models what it replaces and what replaces it."""

    key: str
    rule: str
    times: int
    price: Price
    before: onnx.ModelProto
    after: onnx.ModelProto


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="the file that keeps what is measured")
    parser.add_argument("--print", action="store_true", help="measure nothing")
    parser.add_argument("--again", action="store_true", help="measure what is in the file already, too")
    parser.add_argument("--seconds", type=float, default=0.5, help="to measure each candidate; each model takes ten times that")
    parser.add_argument("--models", nargs="+", default=[*MODELS, "examples"])
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    options = parser.parse_args()
    large_pages()
    results = Results(options.results)
    cost = CostModel(this_cpu(), threads=1)
    print(f"{machine()}\nprofile {cost.device.key} ({cost.device.confidence}: {cost.device.sources[0]}), 1 thread\n")
    rows: list[tuple[Case, dict[str, Any]]] = []
    regrets: dict[str, tuple[float, float, float]] = {}
    for it in subjects(options.models, options.lengths):
        for case in cases(it, cost):
            if not options.print and (options.again or case.key not in results.rows):
                results.put(case.key, measured(case, options.seconds))
            if case.key in results.rows:
                rows.append((case, results.rows[case.key]))
        key, chosen, every = plans(it, cost)
        if not options.print and (options.again or key not in results.rows):
            results.put(key, plans_measured(it, chosen, every, 10 * options.seconds))
        if key in results.rows:
            regrets[it.name] = tuple(results.rows[key][name] for name in ("none", "all", "chosen"))  # type: ignore[assignment]
        print(f"{it.name}: {len(rows)} candidates so far", file=sys.stderr, flush=True)
    print(table(rows), "", regret_table(regrets), "", *summary(rows, regrets), sep="\n")


def subjects(names: Sequence[str], lengths: Sequence[int]) -> Iterator[Subject]:
    """The models, one after the other."""
    for name in (name for name in MODELS if name in names):
        yield from (subject(name, length) for length in lengths)
    for path in sorted(EXAMPLES.glob("*.onnx")) if "examples" in names else ():
        yield Subject(path.stem, onnx.load(path), {})


def decider(model: onnx.ModelProto, cost: CostModel, sizes: Any, rules: Sequence[str] = ()) -> Decider:
    """What the rules find in the model, priced."""
    loaded = graph.load(model)
    shapes.infer(loaded)
    wanted = [rule for name, rule in all_rules().items() if not rules or name in rules]
    return Decider(loaded, wanted, Target(), Ranges(loaded, cost, sizes), lambda *_: None)


def cases(it: Subject, cost: CostModel) -> Iterator[Case]:
    """One for each kind of candidate that can be cut out of the model and run."""
    found = decider(it.model, cost, it.sizes)
    kinds: dict[Any, list[Candidate]] = {}
    for candidate in found.found:
        kinds.setdefault((candidate.view.graph, found.recipes.of(candidate)), []).append(candidate)
    for (scope, _), members in kinds.items():
        first = members[0]
        (made,) = rewrite(found.model, [first]).rewrites
        before, after = as_models(made, found.ranges.sizes(scope))
        price = alone(before, first, cost)
        if price is not None:
            key = f"{it.name}: {first.rule.name} at {first.decision.node} ({len(first.removed)} nodes to {first.call.label})"
            yield Case(key, first.rule.name, len(members), price, before, after)


def alone(before: onnx.ModelProto, candidate: Candidate, cost: CostModel) -> Price | None:
    """The price of the candidate in the small model that is measured; None if it takes another form there."""
    outputs = {value.name for value in candidate.outputs if value is not None}
    for other in decider(before, cost, {}, [candidate.rule.name]).found:
        same = {value.name for value in other.outputs if value is not None} == outputs
        if same and other.call.label == candidate.call.label and isinstance(other.price, Price):
            return other.price
    return None


def measured(case: Case, seconds: float) -> dict[str, Any]:
    """Microseconds of one run of both, measured in turns; why not, where the small models do not run."""
    try:
        many = FEW + max(2, min(MOST_COPIES, int(LONG_US / max(case.price.unfused_us, 1.0))))
        maker = Maker(case.before, {})
        feed = maker.feed(maker.assignments()[0], Regime("nothing masked", masks="ones"), 0)
        runs = [Run(copies(model, count), feed) for model in (case.before, case.after) for count in (FEW, many)]
    except OnnxFuseError as error:
        print(f"{case.key}: left out: {error}", file=sys.stderr)
        return {"left_out": str(error)}
    end = time.perf_counter() + seconds
    while any(run.count < 5 for run in runs) or time.perf_counter() < end:
        for run in runs:
            run.once()
    best = [run.best_us for run in runs]
    return {"before_us": (best[1] - best[0]) / (many - FEW), "after_us": (best[3] - best[2]) / (many - FEW)}


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
    types = {i.name: i.type.tensor_type.elem_type for i in model.graph.input}
    first = next((name for name, type_ in types.items() if type_ == TensorProto.FLOAT), next(iter(types)))
    made.graph.initializer.extend([numpy_helper.from_array(np.float32(0), name) for name in ("nought", "zero.0")])
    shared = {t.name for t in made.graph.initializer} | set(types) - {first}
    for k in range(count):
        made.graph.node.extend(_moved(first, types[first], k))
        for node in model.graph.node:
            copy = made.graph.node.add()
            copy.CopyFrom(node)
            copy.name = f"{node.name}.{k}"
            for side in (copy.input, copy.output):
                side[:] = [n if not n or n in shared else f"copy.{k}.{n}" for n in side]
        made.graph.node.extend(_reduced([f"copy.{k}.{o.name}" for o in model.graph.output], k))
    made.graph.output.append(onnx.helper.make_tensor_value_info(f"zero.{count}", TensorProto.FLOAT, []))
    return made


def _moved(first: str, type_: int, k: int) -> list[onnx.NodeProto]:
    """copy.k.first = first + zero.k, in the type of first."""
    make = onnx.helper.make_node
    cast = [make("Cast", [f"zero.{k}"], [f"zero.{k}.cast"], name=f"cast.{k}", to=type_)] if type_ != TensorProto.FLOAT else []
    return [*cast, make("Add", [first, f"zero.{k}.cast" if cast else f"zero.{k}"], [f"copy.{k}.{first}"], name=f"in.{k}")]


def _reduced(outputs: Sequence[str], k: int) -> list[onnx.NodeProto]:
    """zero.(k+1) = 0 * (the largest number of each output of copy k): 0, and not known before copy k is done."""
    make = onnx.helper.make_node
    nodes = [make("ReduceMax", [o], [f"{o}.max"], name=f"{o}.max", keepdims=0) for o in outputs]
    total = f"{outputs[0]}.max"
    for o in outputs[1:]:
        nodes.append(make("Add", [total, f"{o}.max"], [f"{o}.total"], name=f"{o}.total"))
        total = f"{o}.total"
    return [*nodes, make("Mul", [total, "nought"], [f"zero.{k + 1}"], name=f"zero.{k + 1}")]


def plans(it: Subject, cost: CostModel) -> tuple[str, onnx.ModelProto, onnx.ModelProto]:
    """(what names the choice, the model with what the cost model chose, with all that matches)."""
    found = decider(it.model, cost, it.sizes)
    chosen = found.choose()[0]
    made, every = (rewrite(found.model, some).proto for some in (chosen, found.choose(everything=True)[0]))
    names = sorted(f"{c.rule.name}@{c.decision.node}" for c in chosen)
    return f"{it.name}: whole model with {len(chosen)} fusions {hash_of(names)}", made, every


def hash_of(names: Sequence[str]) -> str:
    """A short name for a set of names."""
    return f"{sum((i + 1) * sum(map(ord, name)) for i, name in enumerate(names)) % 16**6:06x}"


def plans_measured(it: Subject, chosen: onnx.ModelProto, every: onnx.ModelProto, seconds: float) -> dict[str, Any]:
    """How long each form takes, the model as it is taken as 1: the median over loads of medians over rounds in turns.

    Where the memory of a session comes to lie moves its time by some percent, so each form is loaded more than once.
    """
    maker = Maker(it.model, it.sizes)
    sizes = {**maker.assignments()[0], **it.sizes}
    feed = maker.feed(sizes, Regime("nothing masked", masks="ones"), 0)
    loads: list[tuple[float, float, float]] = []
    for _ in range(LOADS):
        none, all_, made = sessions = [Session(model, feed, 1) for model in (it.model, every, chosen)]
        in_turns(sessions, seconds / LOADS, least=15)
        loads.append((1 / ratio(none, all_), 1 / ratio(none, made), none.median * 1e3))
    slower, taken, ms = (statistics.median(values) for values in zip(*loads, strict=True))
    return {"none": 1.0, "all": slower, "chosen": taken, "ms": ms}


def table(rows: Sequence[tuple[Case, dict[str, Any]]]) -> str:
    """Predicted and measured, a line for each candidate."""
    lines = []
    for case, row in rows:
        if "left_out" in row:
            continue
        saved, price = row["before_us"] - row["after_us"], case.price
        agrees = (price.saved_us > 0) == (saved > 0)
        word = "" if agrees else "WRONG" if _is_clear(row) else "wrong, unclear"
        predicted = f"{price.unfused_us:.2f} -> {price.fused_us:.2f}", f"{price.saved_us:.2f}"
        seen = f"{row['before_us']:.2f} -> {row['after_us']:.2f}", f"{saved:.2f}"
        lines.append((case.key, str(case.times), *predicted, *seen, word))
    return markdown(("candidate", "times", "predicted us", "saves", "measured us", "saves", "sign"), lines)


def regret_table(regrets: dict[str, tuple[float, float, float]]) -> str:
    """Times of each form, and what the chosen one is behind the best."""
    lines = [(name, *(f"{time:.3f}" for time in times), f"{_regret(times):.1%}") for name, times in regrets.items()]
    return markdown(("model", "none", "all", "chosen", "regret"), lines)


def _regret(times: tuple[float, float, float]) -> float:
    return times[2] / min(times) - 1


def _is_clear(row: dict[str, Any]) -> bool:
    return abs(row["before_us"] - row["after_us"]) > CLEAR * row["before_us"]


def summary(rows: Sequence[tuple[Case, dict[str, Any]]], regrets: dict[str, tuple[float, float, float]]) -> list[str]:
    """Signs, rank correlation, regret."""
    known = [(case.price.saved_us, row["before_us"] - row["after_us"], _is_clear(row)) for case, row in rows if "left_out" not in row]
    agree = [(predicted > 0) == (seen > 0) for predicted, seen, _ in known]
    clear = [a for a, (_, _, is_clear) in zip(agree, known, strict=True) if is_clear]
    places = [ranks([each[side] for each in known]) for side in (0, 1)]
    worst = max(map(_regret, regrets.values()), default=0.0)
    return [
        f"candidates        {len(known)}",
        f"sign right        {np.mean(agree):.1%} of all",
        f"                  {np.mean(clear):.1%} of the {len(clear)} that save or lose more than {CLEAR:.0%} of the unfused time",
        f"rank correlation  {np.corrcoef(*places)[0, 1]:.3f}",
        f"regret            {worst:.1%} at most, over {len(regrets)} models",
    ]


def ranks(values: Sequence[float]) -> list[float]:
    """Places in order; equal values share the middle of theirs."""
    array = np.asarray(values)
    return [float(np.sum(array < v) + (np.sum(array == v) - 1) / 2) for v in array]


if __name__ == "__main__":
    main()
