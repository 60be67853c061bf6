"""Models of one node of ours, what they must give, and runs of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from onnxfuse import runtime as session
from onnxfuse.case import Case, Refusal
from onnxfuse.errors import ShapeError
from onnxfuse.op import DOMAIN, ONNX_TYPES, VERSION, Instance, Op, Param

OPSET = 17
GENERATED_OPSET = 20  # has an operator for each primitive
NARROW = ("float16", "bfloat16")  # these enter and leave a model as float, so that any runtime can feed them
OUTSIDE = "_outside"  # what the names of those inputs and outputs end with
EXACT = "double"


def usual_opset(op: Op) -> int:
    """The opset of a body where nothing depends on it."""
    return OPSET if "T" in op.types else GENERATED_OPSET


def kinds(op: Op, allowed: Sequence[str]) -> list[str]:
    """Those of the types that T may be; where the op has no T, the first."""
    return [kind for kind in allowed if kind in op.types.get("T", allowed[:1])]


def tolerance(op: Op, case: Case, kind: str) -> float:
    """The error allowed where T = kind; an op without T has the types that its case says."""
    types = [p.type for p in op.params(case.attributes)[1]]
    return op.tolerance[kind] if "T" in op.types else max(op.tolerance.get(t, 0.0) for t in types)


def instance(op: Op, case: Case, kind: str, opset: int = OPSET) -> Instance:
    """The use of `op` that `case` makes, for T = kind."""
    outputs = case.outputs or tuple(p.name for p in op.params(case.attributes)[1])
    return Instance({**op.attributes, **case.attributes}, frozenset(case.shapes), frozenset(outputs), {"T": kind, **case.types}, opset)


def node_model(
    op: Op,
    case: Case | Refusal,
    kind: str,
    *,
    opset: int | None = None,
    body: bool = False,
    symbolic: bool = False,
    value_info: bool = False,
) -> onnx.ModelProto:
    """A model of one node of `op`; with its body as a local function if `body` holds, else without."""
    opset = opset or usual_opset(op)
    inputs, outputs = op.params(case.attributes)
    operands = [p.name if p.name in case.shapes else "" for p in inputs]
    while operands and not operands[-1]:
        operands.pop()
    wanted = case.outputs if isinstance(case, Case) and case.outputs else tuple(p.name for p in outputs)
    node = helper.make_node(
        op.name, operands, [p.name if p.name in wanted else "" for p in outputs], name="tested", domain=op.domain, **case.attributes
    )
    while node.output and not node.output[-1]:
        node.output.pop()
    functions = [op.body(instance(op, case, kind, opset))] if body and isinstance(case, Case) else []
    model = _model([node], op, case, kind, wanted, opset, functions, symbolic=symbolic)
    if (value_info or op.formals is not None) and isinstance(case, Case):  # nothing but the model says the types of what is generated
        model.graph.value_info.extend(_infos(op, case, kind, [p for p in outputs if p.name in wanted]))
    return model


def with_copies(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model, but float inputs go to the node by way of a Mul by 1, and float outputs leave by another, others by an Identity."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    node = next(n for n in copy.graph.node if n.domain == DOMAIN)
    casts = [n for n in copy.graph.node if n.domain != DOMAIN]  # of an input of another type than float
    one = helper.make_node("Constant", [], ["one"], value=helper.make_tensor("one", TensorProto.FLOAT, [], [1.0]))
    floats = {i.name for i in copy.graph.input if i.type.tensor_type.elem_type == TensorProto.FLOAT}
    before = [helper.make_node("Mul", [name, "one"], [f"{name}_copy"]) for name in node.input if name in floats]
    made = {i.name for i in (*copy.graph.output, *copy.graph.value_info) if i.type.tensor_type.elem_type == TensorProto.FLOAT}
    after = [
        helper.make_node(*(("Mul", [f"{n}_copy", "one"]) if n in made else ("Identity", [f"{n}_copy"])), [n]) for n in node.output if n
    ]
    infos = [i for i in (*copy.graph.input, *copy.graph.value_info) if i.name in floats or i.name in node.output]
    for info in infos:
        copy.graph.value_info.add().CopyFrom(info)
        copy.graph.value_info[-1].name += "_copy"
    node.input[:] = [f"{name}_copy" if name in floats else name for name in node.input]
    node.output[:] = [f"{name}_copy" if name else "" for name in node.output]
    nodes = [one, *casts, *before, node, *after]
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def body_model(op: Op, case: Case, kind: str, opset: int = OPSET) -> onnx.ModelProto:
    """The nodes of the body as a model of their own."""
    used = instance(op, case, kind, opset)
    return _model(
        list(op.body(used).node), op, case, kind, tuple(p.name for p in op.params(case.attributes)[1] if p.name in used.outputs), opset, []
    )


def feeds(op: Op, case: Case | Refusal, kind: str) -> dict[str, Any]:
    """Inputs by name, the same for every run: float arrays that hold values of `kind`, bool and integer ones as they are."""
    rng = np.random.default_rng(7)
    special = case.values(rng, case.shapes) if isinstance(case, Case) and case.values else {}
    found = {}
    for param in op.params(case.attributes)[0]:
        if param.name not in case.shapes:
            continue
        type_name = _type(param, case, kind)
        value = special.get(param.name, _plain(rng, type_name, case.shapes[param.name]))
        dtype = helper.tensor_dtype_to_np_dtype(ONNX_TYPES[type_name])
        rounded = np.asarray(value).astype(dtype)
        found[param.name] = rounded.astype(np.float32) if type_name in NARROW else rounded
    return found


_EXACT: dict[tuple[int, str], tuple[Case, dict[str, Any]]] = {}


def exact(op: Op, case: Case, kind: str) -> dict[str, Any]:
    """What the body gives in float64 for the values that `feeds` makes for `kind`; in its own types where the op has no T."""
    key = (id(case), kind)  # of a case that is kept, so that no other gets its number
    if key not in _EXACT:
        _EXACT[key] = case, _exact(op, case, kind)
    return _EXACT[key][1]


def _exact(op: Op, case: Case, kind: str) -> dict[str, Any]:
    if "T" not in op.types:
        given = run(body_model(op, case, kind, GENERATED_OPSET), feeds(op, case, kind), register=False, optimizations=False)
        return {name: np.asarray(value) for name, value in given.items()}
    model = body_model(op, case, EXACT)
    values = {name: value.astype(np.float64) if value.dtype == np.float32 else value for name, value in feeds(op, case, kind).items()}
    with warnings.catch_warnings():  # NaN and infinities are for `assert_close` to judge
        warnings.simplefilter("ignore", RuntimeWarning)
        results = ReferenceEvaluator(model).run(None, {i.name: values[i.name.removesuffix(OUTSIDE)] for i in model.graph.input})
    return {output.name: np.asarray(value) for output, value in zip(model.graph.output, results, strict=True)}


def run(
    model: onnx.ModelProto, values: Mapping[str, Any], *, register: bool, optimizations: bool = True, threads: int = 1
) -> dict[str, Any]:
    """The outputs by name, as ONNX Runtime on the CPU gives them."""
    return run_session(
        session.session(model, ["CPUExecutionProvider"], optimizations=optimizations, threads=threads, register=register), values
    )


def run_session(made: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of a session by formal name, from inputs by formal name."""
    results = made.run(None, {i.name: values[i.name.removesuffix(OUTSIDE)] for i in made.get_inputs()})
    return {output.name.removesuffix(OUTSIDE): value for output, value in zip(made.get_outputs(), results, strict=True)}


def assert_close(got: Mapping[str, Any], want: Mapping[str, Any], tolerance: float) -> None:
    """Same names, shapes, NaN and infinities; elsewhere an error of at most `tolerance` relative to max(1, |want|)."""
    assert got.keys() == want.keys()
    for name, expected in want.items():
        value = np.asarray(got[name], np.float64)
        assert value.shape == expected.shape, name
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(value[~finite], np.asarray(expected, np.float64)[~finite], name)
        error = np.abs(value[finite] - expected[finite]) / np.maximum(1.0, np.abs(expected[finite]))
        assert error.max(initial=0.0) <= tolerance, f"{name}: error {error.max():.3g} is over {tolerance:g}"


def _plain(rng: np.random.Generator, type_name: str, shape: Sequence[int]) -> Any:
    if type_name == "bool":
        return rng.random(shape) < 0.5
    return rng.standard_normal(shape) if type_name in (*NARROW, "float", "double") else np.zeros(shape)


def _type(param: Param, case: Case | Refusal, kind: str) -> str:
    return {"T": kind, **case.types}.get(param.type, param.type)


def _model(
    nodes: list[onnx.NodeProto],
    op: Op,
    case: Case | Refusal,
    kind: str,
    wanted: Sequence[str],
    opset: int,
    functions: list[onnx.FunctionProto],
    *,
    symbolic: bool = False,
) -> onnx.ModelProto:
    """A graph around the nodes: narrow types are cast to from float inputs, and from to float outputs."""
    types = {p.name: _type(p, case, kind) for side in op.params(case.attributes) for p in side}
    outer = {name: "float" if type_name in NARROW else type_name for name, type_name in types.items()}
    renamed = {name: name + OUTSIDE for name in types if outer[name] != types[name]}
    ins = [name for name in case.shapes if name in renamed]
    outs = [name for name in wanted if name in renamed]
    casts_in = [helper.make_node("Cast", [renamed[n]], [n], to=ONNX_TYPES[types[n]]) for n in ins]
    casts_out = [helper.make_node("Cast", [n], [renamed[n]], to=TensorProto.FLOAT) for n in outs]
    inputs = [_info(renamed.get(n, n), outer[n], _free(s) if symbolic else s) for n, s in case.shapes.items()]
    outputs = [_info(renamed.get(n, n), outer[n], _unknown(op, case, n)) for n in wanted]
    body = helper.make_graph([*casts_in, *nodes, *casts_out], "tested", inputs, outputs)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, VERSION)]
    return helper.make_model(body, opset_imports=imports, ir_version=8, functions=functions)


def _infos(op: Op, case: Case, kind: str, outputs: Sequence[Param]) -> list[onnx.ValueInfoProto]:
    shapes = op.infer(case.shapes, {**op.attributes, **case.attributes})
    return [_info(p.name, _type(p, case, kind), shapes[p.name]) for p in outputs]


def _unknown(op: Op, case: Case | Refusal, output: str) -> list[None] | None:
    """The rank of an output and no more, where it can be told."""
    try:
        return [None] * len(op.infer(case.shapes, {**op.attributes, **case.attributes})[output])
    except (ShapeError, TypeError, ValueError):  # a use that is refused
        return None


def _info(name: str, type_name: str, shape: Sequence[Any] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, ONNX_TYPES[type_name], shape)


def _free(shape: Sequence[int]) -> list[str | None]:
    """Every size as a symbol that tells it, so that equal ones are one symbol; the first without a name, but for `x[n]`."""
    return [f"size_{size}" if axis or len(shape) == 1 else None for axis, size in enumerate(shape)]
