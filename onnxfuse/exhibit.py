"""What a page shows beside a report: the graph before and after, and the kernels of each decision at several sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from typing import Any

import onnx

from onnxfuse import graph
from onnxfuse.cost import budgets, cpu, gemm, model, occupancy, registers, roofline, scalar, types
from onnxfuse.cost.device import PEAKS, Cpu, Device
from onnxfuse.cost.devices import devices
from onnxfuse.cost.dynamic import probe_sizes
from onnxfuse.cost.work import VECTOR_BYTES, Compiled, Work
from onnxfuse.decider import Decider
from onnxfuse.decision import Decision
from onnxfuse.graph import Graph, Node, Value
from onnxfuse.op import DOMAIN
from onnxfuse.ranges import USUAL, At
from onnxfuse.recipe import Recipe
from onnxfuse.symbolic import symbols

SIZES = 10  # of a symbolic dim, between the smallest and the largest that is expected
MOST_DIMS = 4  # that can be moved


def exhibit(decider: Decider, decisions: Sequence[Decision], after: onnx.ModelProto) -> dict[str, Any]:
    """Plain dicts, lists, strings and numbers. decisions: in the order of the report, whose places name them."""
    works = _Works()
    cases, of = _cases(decider, decisions, works)
    known = {scope.name: scope for scope in decider.model.graphs()}
    return {
        "device": device_record(decider.cost.device),
        "devices": [device_record(device) for device in devices().values()],
        "tables": tables(),
        "dims": {dim: {"at": decider.ranges.sizes(decider.model.main)[dim], "sizes": sizes} for dim, sizes in _dims(decider).items()},
        "works": works.records,
        "cases": cases,
        "case_of": of,
        "before": [_drawn(scope, scope) for scope in decider.model.graphs() if scope.nodes],
        "after": [_drawn(scope, known.get(scope.name)) for scope in graph.load(after).graphs() if scope.nodes and not _is_body(scope)],
    }


def tables() -> dict[str, Any]:
    """The constants and tables of the cost model, for whoever computes with its formulas elsewhere."""
    constants = {
        **_upper(roofline, "OVERLAP LATENCY_NS LOADS_IN_FLIGHT TRANSACTION SM_BYTES_PER_CLOCK L2_KEEPS"),
        **_upper(gemm, "TILE_ROWS TILE_COLUMNS SHARED_TILE SPLIT LOCKSTEP FULL_RATE"),
        **_upper(
            cpu,
            "THREAD_BYTES THREAD_FLOPS CROWDED RATED_BYTES EXPOSED EXPOSED_FUSED UNKNOWN_NS HALF_TYPES",
        ),
        **_upper(cpu, "FEW_ROWS NARROW LAID_OUT RATED_COLUMNS"),
        **_upper(occupancy, "MAX_REGISTERS TWO_BARRIER_SETS"),
        **_upper(budgets, "MAX_NODES MAX_OPERANDS"),
        "MARGIN": model.MARGIN,
        "VECTOR_BYTES": VECTOR_BYTES,
        "REGISTER_BASE": registers.BASE,
        "REGISTERS_PER_WORD": registers.PER_LIVE_WORD,
        "REGISTER_FLOOR": registers.FLOOR,
        "GEMM_KERNEL": asdict(roofline.GEMM_KERNEL),
        "ATTENTION_KERNEL": asdict(roofline.ATTENTION_KERNEL),
        "POINTWISE_KERNEL": asdict(Compiled(registers.FLOOR)),
    }
    costs = {op: asdict(scalar.scalar(op)) for op in ("", *scalar.SCALARS)}
    named = {"steps": scalar.STEPS, "plain": cpu.PLAIN, "work": _DEFAULTS}
    return {**named, "constants": constants, "scalars": costs, "bits": types.BITS, "peaks": PEAKS}


def device_record(device: Device) -> dict[str, Any]:
    """A device as a dict, with its kind."""
    return {"kind": "cpu" if isinstance(device, Cpu) else "gpu", **asdict(device)}


def work_record(work: Work) -> dict[str, Any]:
    """A kernel as a dict, without what has its default value."""
    record = asdict(work)
    return {name: value for name, value in record.items() if name not in _DEFAULTS or value != _DEFAULTS[name]}


_DEFAULTS = {f.name: f.default for f in fields(Work) if f.default is not MISSING}


def _upper(module: Any, names: str) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names.split()}


class _Works:
    """Kernels by place; equal ones have one."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self._places: dict[Work, int] = {}

    def places(self, works: Sequence[Work]) -> list[int]:
        for work in works:
            if work not in self._places:
                self._places[work] = len(self.records)
                self.records.append(work_record(work))
        return [self._places[work] for work in works]


def _cases(decider: Decider, decisions: Sequence[Decision], works: _Works) -> tuple[list[dict[str, Any]], list[int | None]]:
    """(the kernels of each kind of candidate at usual sizes and at others, for each decision the place of its kind)."""
    places: dict[tuple[Graph, Recipe], int] = {}
    cases: list[dict[str, Any]] = []
    of: list[int | None] = []
    for decision in decisions:
        kind = decider.kind_of(decision) if decision.price is not None else None
        if kind is not None and kind not in places:
            places[kind] = len(cases)
            cases.append(_case(decider, *kind, works))
        of.append(None if kind is None else places[kind])
    return cases, of


def _case(decider: Decider, scope: Graph, recipe: Recipe, works: _Works) -> dict[str, Any]:
    def at(place: At) -> dict[str, list[int]]:
        pricer = decider.ranges.pricer(scope, place)
        before, left = (decider.cost.as_run(pricer.works(kernels)) for kernels in (recipe.before, recipe.left))
        return {"before": works.places(before), "left": works.places(left), "after": works.places(pricer.after(recipe))}

    dims = {dim: {str(size): at((dim, size)) for size in sizes} for dim, sizes in _dims(decider).items()}
    return {"usual": at(USUAL), "dims": dims}


def _dims(decider: Decider) -> Mapping[str, list[int]]:
    """Symbolic dims of the model's inputs, and the sizes of each that kernels are counted at."""
    main = decider.model.main
    names = dict.fromkeys(name for v in main.inputs for d in v.shape or () for name in sorted(symbols(d)))
    spans = {name: decider.ranges.span(name) for name in [*names][:MOST_DIMS]}
    return {name: sorted({*probe_sizes(s.low, s.high, SIZES), s.typical}) for name, s in spans.items()}


def _is_body(scope: Graph) -> bool:
    """Whether the graph is the body of one of our operators."""
    while scope.outer is not None:
        scope = scope.outer
    return scope.function is not None and scope.function.domain == DOMAIN


def _drawn(scope: Graph, known: Graph | None) -> dict[str, Any]:
    """One graph: nodes in order, those that only hold constants left out, and the values between them.

    known: the graph whose shapes are inferred, for values of the same name.
    """
    shown = [node for node in scope.nodes if not (node.op == "Constant" and not node.domain)]
    values = _Values({node: place for place, node in enumerate(shown)}, known)
    return {
        "name": scope.name,
        "nodes": [_node(node, values) for node in shown],
        "inputs": [values.number(v) for v in scope.inputs if v.name not in scope.initializers],
        "outputs": [values.number(v) for v in scope.outputs],
        "values": values.records,
    }


class _Values:
    """Values by number, with their shapes, and the place of the node that makes each."""

    def __init__(self, places: Mapping[Node, int], known: Graph | None) -> None:
        self.places, self.known = places, known
        self.records: list[dict[str, Any]] = []
        self._numbers: dict[Value, int] = {}

    def number(self, value: Value) -> int:
        if value not in self._numbers:
            self._numbers[value] = len(self.records)
            made = self.places.get(value.producer) if value.producer is not None else None
            self.records.append({"name": value.name, "type": _type(self.inferred(value)), "from": made})
        return self._numbers[value]

    def inferred(self, value: Value) -> Value:
        """The value of that name whose shape is inferred."""
        return (self.known.lookup(value.name) if self.known is not None else None) or value


def _node(node: Node, values: _Values) -> dict[str, Any]:
    operands, made = ([v for v in side if v is not None] for side in (node.inputs, node.outputs))
    return {
        "op": node.op,
        "domain": node.domain,
        "label": node.label,
        "reads": [values.number(v) for v in operands if not v.is_constant],
        "constants": [f"{v.name} {_type(values.inferred(v))}" for v in operands if v.is_constant],
        "makes": [values.number(v) for v in made],
        "sizes": bool(made) and all(_is_size(values.inferred(v)) for v in made),
    }


def _is_size(value: Value) -> bool:
    """Whether the value only says how large others are, or where in them something lies."""
    return value.elements is not None or (value.rank in (0, 1) and value.dtype in (onnx.TensorProto.INT64, onnx.TensorProto.INT32))


def _type(value: Value) -> str:
    name = onnx.TensorProto.DataType.Name(value.dtype).lower() if value.dtype else ""
    return name + ("" if value.shape is None else "[" + ",".join(map(str, value.shape)) + "]")
