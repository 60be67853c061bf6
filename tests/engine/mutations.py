"""One thing in a model changed at random, such that a fusion of what it was would be wrong."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

OTHER_OPS = {
    "Add": "Sub",
    "Sub": "Add",
    "Mul": "Div",
    "Div": "Mul",
    "Erf": "Tanh",
    "Tanh": "Erf",
    "Sigmoid": "Tanh",
    "Sqrt": "Exp",
    "Exp": "Softplus",
    "Reciprocal": "Neg",
    "Neg": "Abs",
    "ReduceMean": "ReduceSum",
    "ReduceMax": "ReduceMean",
    "ReduceSumSquare": "ReduceL2",
    "Softmax": "LogSoftmax",
}
Mutation = Callable[[onnx.ModelProto, random.Random], bool]


def mutate(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto | None:
    """A copy with one change, or None where the one drawn does not apply."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy if rng.choice(MUTATIONS)(copy, rng) else None


def _scalars(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    constants = [a.t for n in model.graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"]
    return [t for t in (*model.graph.initializer, *constants) if np.prod(t.dims) == 1]


def _constant(model: onnx.ModelProto, rng: random.Random) -> bool:
    """A number is another one."""
    tensors = _scalars(model)
    if not tensors:
        return False
    tensor = rng.choice(tensors)
    array = numpy_helper.to_array(tensor)
    if array.dtype.kind == "b":
        changed = ~array
    elif array.dtype.kind in "iu":
        changed = array + rng.choice([-1, 1])
    else:
        changed = rng.choice([array * 1.25, -array, array + 0.5, array * 0.9, array * 0, array * 2])
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(changed, array.dtype), tensor.name))
    return True


def _operator(model: onnx.ModelProto, rng: random.Random) -> bool:
    """An operator is another one."""
    nodes = [n for n in model.graph.node if n.op_type in OTHER_OPS]
    if not nodes:
        return False
    node = rng.choice(nodes)
    node.op_type = OTHER_OPS[node.op_type]
    return True


def _order(model: onnx.ModelProto, rng: random.Random) -> bool:
    """Operands change places."""
    nodes = [n for n in model.graph.node if n.op_type in ("Sub", "Div", "Pow", "Where", "MatMul", "Concat") and len(n.input) > 1]
    if not nodes:
        return False
    node = rng.choice(nodes)
    last = [*node.input][::-1] if node.op_type != "Where" else [node.input[0], node.input[2], node.input[1]]
    node.input[:] = last
    return True


def _operand(model: onnx.ModelProto, rng: random.Random) -> bool:
    """A node reads another value that was made before."""
    made: list[str] = [i.name for i in model.graph.input]
    places = []
    for node in model.graph.node:
        places += [(node, i, list(made)) for i, name in enumerate(node.input) if name in made]
        made += node.output
    if not places:
        return False
    node, position, before = rng.choice(places)
    node.input[position] = rng.choice(before)
    return True


def _axis(model: onnx.ModelProto, rng: random.Random) -> bool:
    """An attribute that counts axes is another one."""
    found = [a for n in model.graph.node for a in n.attribute if a.name in ("axis", "axes", "keepdims", "perm")]
    if not found:
        return False
    attribute = rng.choice(found)
    if attribute.type == onnx.AttributeProto.INTS:
        values = [*attribute.ints]
        rng.shuffle(values)
        attribute.ints[:] = [v - 1 if len(values) == 1 else v for v in values]
    else:
        attribute.i = 1 - attribute.i if attribute.name == "keepdims" else rng.choice([-2, 0, 1])
    return True


def _bypassed(model: onnx.ModelProto, rng: random.Random) -> bool:
    """An operator is left out."""
    nodes = [n for n in model.graph.node if n.input and n.op_type != "Identity"]
    if not nodes:
        return False
    node = rng.choice(nodes)
    node.CopyFrom(helper.make_node("Identity", [rng.choice([i for i in node.input if i])], [node.output[0]]))
    return True


def _inserted(model: onnx.ModelProto, rng: random.Random) -> bool:
    """Something stands in between."""
    places = [(k, n, i) for k, n in enumerate(model.graph.node) for i, name in enumerate(n.input) if name and n.op_type != "Constant"]
    if not places:
        return False
    at, node, position = rng.choice(places)
    name = f"in between {at} {position}"
    model.graph.node.insert(at, helper.make_node(rng.choice(["Neg", "Abs", "Round", "Exp", "Relu"]), [node.input[position]], [name]))
    model.graph.node[at + 1].input[position] = name
    return True


def _read_again(model: onnx.ModelProto, rng: random.Random) -> bool:
    """A value inside is an output too."""
    made = [o for n in model.graph.node if n.op_type != "Constant" for o in n.output if o and o not in {v.name for v in model.graph.output}]
    if not made:
        return False
    name = rng.choice(made)
    model.graph.node.append(helper.make_node("Identity", [name], [f"{name} again"]))
    model.graph.output.append(helper.make_value_info(f"{name} again", helper.make_tensor_type_proto(1, None)))
    return True


MUTATIONS: tuple[Mutation, ...] = (_constant, _operator, _order, _operand, _operand, _axis, _bypassed, _inserted, _read_again)
