"""Calibration of this machine with our own kernels: those that `custom_ops` says are worth timing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from onnxfuse import custom_ops, runtime
from onnxfuse.case import Case
from onnxfuse.cost import calibrate as room
from onnxfuse.cost.body import body_work
from onnxfuse.cost.calibrate import KernelProbe, Kernels
from onnxfuse.cost.chains import OPSET, Probe
from onnxfuse.cost.count import work
from onnxfuse.cost.cpu import kernel_name
from onnxfuse.cost.device import Cpu
from onnxfuse.cost.scalar import scalar
from onnxfuse.cost.work import Work
from onnxfuse.op import Instance, Op, Param

KIND = "float"  # what T stands for
DTYPES = {"float": np.float32, "int64": np.int64, "int32": np.int32, "bool": np.bool_}


def calibrate(folder: Path | None = None, *, seconds: float = room.SECONDS) -> Cpu:
    """Measure this CPU and write its profile, which `auto` then means. folder: where to (default: the user's own).

    Raises RuntimeMissingError without ONNX Runtime, or without our library.
    """
    return room.calibrate(folder, seconds=seconds, kernels=Kernels(runtime.library_path(), kernel_probes()))


def kernel_probes() -> list[KernelProbe]:
    """Every use of an op of ours that is to be timed."""
    return [_probe(op, case) for op, case in custom_ops.all_timed()]


def _probe(op: Op, case: Case) -> KernelProbe:
    made = op.infer(case.shapes, {**op.attributes, **case.attributes})
    wanted = case.outputs or tuple(made)
    shapes: list[Any] = [*case.shapes.values(), *(made[name] for name in wanted)]
    elements, count = max(map(prod, shapes)), len(shapes)
    timed = _timed(op, case, wanted, made[wanted[0]])
    counted = _counted(op, case, made[wanted[0]])
    if counted.gemm_flops:
        return KernelProbe(op.name, timed, count, elements, counted.gemm_flops, counted.rows)
    body = _body(op, case, wanted)
    if body.gemm:
        return KernelProbe(op.name, timed, count, elements, gemm=body.gemm)
    slots = sum(scalar(part).vector_slots * applied for part, applied in body.parts) / elements if op.formals is not None else 0.0
    return KernelProbe(kernel_name(op.name, body.special), timed, count, elements, slots=slots)


def _timed(op: Op, case: Case, outputs: Sequence[str], y: Any) -> Probe:
    """What is run: x is the first input, the others are constants."""
    inputs, feeds = _inputs(op, case), _feeds(op, case)
    last = max(i for i, param in enumerate(inputs) if param.name in case.shapes)
    x = feeds[inputs[0].name]
    return Probe(
        op.name,
        x.shape,
        tuple(feeds.get(param.name) for param in inputs[1 : last + 1]),
        case.attributes,
        chained=y == x.shape and x.dtype == np.float32,
        outputs=len(outputs),
        domain=op.domain,
        x=x,
    )


def _feeds(op: Op, case: Case) -> Mapping[str, Any]:
    """An array for each input that is given: numbers between 0.2 and 0.9 where the case has none."""
    rng = np.random.default_rng(7)
    special = case.values(rng, case.shapes) if case.values else {}
    given = [param for param in _inputs(op, case) if param.name in case.shapes]
    return {
        p.name: np.asarray(special.get(p.name, rng.uniform(0.2, 0.9, case.shapes[p.name]))).astype(DTYPES[_kind(p, case)]) for p in given
    }


def _inputs(op: Op, case: Case) -> tuple[Param, ...]:
    return op.params(case.attributes)[0]


def _counted(op: Op, case: Case, y: Any) -> Work:
    """The op as the cost model counts it by itself, which it can for attention."""
    shapes = [case.shapes.get(p.name) for p in _inputs(op, case)]
    return work(op.name, shapes, [y], KIND, {**op.attributes, **case.attributes}, domain=op.domain)


def _body(op: Op, case: Case, outputs: Sequence[str]) -> Work:
    """What the op's body takes as one kernel."""
    used = Instance({**op.attributes, **case.attributes}, frozenset(case.shapes), frozenset(outputs), {"T": KIND, **case.types}, OPSET)
    shapes = [case.shapes.get(p.name) for p in _inputs(op, case)]
    types = [None if p.name not in case.shapes else _kind(p, case) for p in _inputs(op, case)]
    return body_work(op.body(used), shapes, types, dict(case.attributes))


def _kind(param: Param, case: Case) -> str:
    return KIND if param.type == "T" else case.types.get(param.type, param.type)
