"""Models that spell an equation in one of the many ways that exporters and people do, at random but by a seed.

A `Draft` grows by `Tensor`s. `apply` writes a canonical operator (those that patterns are written in) as any of its
spellings; `total` and `times` write sums and products in any order and grouping. Numbers come as initializers or
Constant nodes, of rank 0 or with axes of size 1; Identities, no-op Casts and Reshapes stand in between.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]
TYPES = {"float": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "double": TensorProto.DOUBLE, "bool": TensorProto.BOOL,
         "int64": TensorProto.INT64}  # fmt: skip
FUNCTIONS_IR = 8
FIRST_OPSET = {"LayerNormalization": 17, "RMSNormalization": 23, "Gelu": 20, "Mish": 18, "HardSwish": 14}


class Unsuitable(Exception):
    """The equation cannot be written with these shapes; others may do."""


@dataclass(frozen=True)
class Tensor:
    """A value of the draft: its name, its sizes in numbers, and its type."""

    name: str
    shape: Shape
    kind: str

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass
class Draft:
    """A model under construction. noise: how probable a no-op is after each operator."""

    rng: random.Random
    opset: int = 17
    noise: float = 0.1
    is_static: bool = True  # sizes may be written into Reshapes
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    made: list[Tensor] = field(default_factory=list)  # what operators gave, in order

    def fresh(self, stem: str = "t") -> str:
        return f"{stem}{len(self.nodes)}_{len(self.weights)}"

    def input(self, name: str, shape: Shape, kind: str = "float", symbols: Sequence[str | None] = ()) -> Tensor:
        """A graph input; a symbol stands for the size at its place."""
        dims = [s or d for s, d in zip([*symbols, *[None] * len(shape)], shape, strict=False)]
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[kind], dims))
        return Tensor(name, shape, kind)

    def weight(self, array: np.ndarray[Any, Any], kind: str, name: str = "") -> Tensor:
        """An initializer, or a Constant node."""
        name = name or self.fresh("w")
        with np.errstate(over="ignore"):  # the lowest number of float32 is -inf in float16
            tensor = numpy_helper.from_array(np.asarray(array, helper.tensor_dtype_to_np_dtype(TYPES[kind])), name)
        if self.rng.random() < 0.5:
            self.weights.append(tensor)
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        return Tensor(name, tuple(tensor.dims), kind)

    def ints(self, values: Sequence[int]) -> Tensor:
        return self.weight(np.array(values, np.int64), "int64")

    def number(self, value: float, like: Tensor) -> Tensor:
        """A constant to go with `like`: its type, and a rank that does not change the shape of a result."""
        shape = (1,) * self.rng.choice([0, 0, 0, min(1, like.rank), like.rank])
        if like.kind == "float" and self.rng.random() < 0.15:
            return self.node("Cast", [self.weight(np.full(shape, value), "double")], shape, "float", to=TYPES["float"])
        made = self.weight(np.full(shape, value), like.kind)
        return self.node("Identity", [made]) if self.rng.random() < 0.1 else made

    def node(
        self, op: str, inputs: Sequence[Tensor], shape: Shape | None = None, kind: str = "", domain: str = "", **attributes: Any
    ) -> Tensor:
        """One operator as it stands. The shape is that of broadcasting if none is given."""
        result = Tensor(self.fresh(), broadcast(*inputs) if shape is None else shape, kind or inputs[0].kind)
        self.nodes.append(helper.make_node(op, [i.name for i in inputs], [result.name], domain=domain, **attributes))
        self.made.append(result)
        return result

    def model(self, outputs: Sequence[Tensor], names: Sequence[str] = ()) -> onnx.ModelProto:
        """The model that gives these values, under these names."""
        infos = []
        for tensor, name in zip(outputs, [*names, *[f"y{i}" for i in range(len(outputs))]], strict=False):
            self.nodes.append(helper.make_node("Identity", [tensor.name], [name]))
            infos.append(helper.make_tensor_value_info(name, TYPES[tensor.kind], [None] * tensor.rank))
        body = helper.make_graph(self.nodes, "spelled", self.inputs, infos, self.weights)
        imports = [helper.make_opsetid("", self.opset)]
        imports += [helper.make_opsetid(d, 1) for d in sorted({n.domain for n in self.nodes} - {""})]
        return helper.make_model(body, opset_imports=imports, ir_version=FUNCTIONS_IR)

    # ---- spelled

    def apply(self, op: str, args: Sequence[Tensor], attributes: Mapping[str, Any] | None = None) -> Tensor:
        """A canonical operator in one of its spellings; one without any is written as it stands."""
        attributes = dict(attributes or {})
        if op in ISLANDS and args[0].kind == "float16" and self.rng.random() < 0.4:
            return self.cast(self.apply(op, [self.cast(a, "float") for a in args], attributes), "float16")
        if any(not -args[0].rank <= axis < 0 for axis in attributes.get("axes", ())):
            raise Unsuitable(f"{args[0].shape} has no axes {attributes['axes']}")
        ways = SPELLINGS.get(op)
        made = self.rng.choice(ways)(self, list(args), attributes) if ways else self.node(op, args, **attributes)
        return self.disturbed(made)

    def cast(self, value: Tensor, kind: str) -> Tensor:
        return self.node("Cast", [value], value.shape, kind, to=TYPES[kind])

    def reshape(self, value: Tensor, shape: Shape) -> Tensor:
        return self.node("Reshape", [value, self.ints(shape)], shape)

    def transpose(self, value: Tensor, order: Sequence[int]) -> Tensor:
        return self.node("Transpose", [value], tuple(value.shape[i] for i in order), perm=list(order))

    def squeeze(self, value: Tensor, axes: Sequence[int], shape: Shape, op: str = "Squeeze") -> Tensor:
        if self.opset < 13:
            return self.node(op, [value], shape, axes=list(axes))
        return self.node(op, [value, self.ints(axes)], shape)

    def disturbed(self, value: Tensor) -> Tensor:
        """The value, sometimes behind an operator that does nothing to it."""
        return self.rng.choice(DISTURBANCES)(self, value) if self.rng.random() < self.noise else value

    def total(self, terms: Sequence[tuple[int, Tensor]]) -> Tensor:
        """A sum of signed terms in some order and grouping."""
        left = list(terms)
        while len(left) > 1:
            (s, a), (t, b) = (left.pop(self.rng.randrange(len(left))) for _ in range(2))
            left.append((s, self.node("Add", [a, b])) if s == t else (s, self.node("Sub", [a, b])))
        sign, value = left[0]
        return value if sign > 0 else self.apply("Neg", [value])

    def times(self, factors: Sequence[tuple[int, Tensor]], coefficient: float = 1.0) -> Tensor:
        """A product of factors to the power of 1 or -1, and a number, in some order and grouping."""
        if not factors:
            raise Unsuitable("a product of numbers only")
        left = [*factors, *self._split(coefficient, max((f for _, f in factors), key=lambda f: f.rank))]
        while len(left) > 1:
            (s, a), (t, b) = (left.pop(self.rng.randrange(len(left))) for _ in range(2))
            left.append((s, self.node("Mul", [a, b])) if s == t else (s, self.node("Div", [a, b])))
        power, value = left[0]
        return value if power > 0 else self.apply("Reciprocal", [value])

    def _split(self, coefficient: float, like: Tensor) -> list[tuple[int, Tensor]]:
        if coefficient == 1:
            return []
        if self.rng.random() < 0.2:
            part = self.rng.choice([0.5, 2.0, 0.25])
            return [*self._split(part, like), *self._split(coefficient / part, like)]
        power = self.rng.choice([1, -1])
        return [(power, self.number(coefficient**power, like))]


def broadcast(*tensors: Tensor) -> Shape:
    try:
        return tuple(np.broadcast_shapes(*(t.shape for t in tensors)))
    except ValueError as error:
        raise Unsuitable(str(error)) from None


Args = list[Tensor]
Attributes = dict[str, Any]
Way = Callable[[Draft, Args, Attributes], Tensor]
ISLANDS = ("LayerNormalization", "RMSNormalization", "Softmax", "Gelu", "Swish")  # computed in float32 where the model is float16


def _same_type_cast(draft: Draft, x: Tensor) -> Tensor:
    return draft.cast(x, x.kind)


def _same_shape(draft: Draft, x: Tensor) -> Tensor:
    return draft.reshape(x, x.shape) if draft.is_static and math.prod(x.shape) > 0 else draft.node("Identity", [x])


def _there_and_back(draft: Draft, x: Tensor) -> Tensor:
    return draft.squeeze(draft.squeeze(x, [0], (1, *x.shape), "Unsqueeze"), [0], x.shape)


def _times_one(draft: Draft, x: Tensor) -> Tensor:
    return draft.node(draft.rng.choice(["Mul", "Div"]), [x, draft.number(1.0, x)])


def _plus_zero(draft: Draft, x: Tensor) -> Tensor:
    return draft.node(draft.rng.choice(["Add", "Sub"]), [x, draft.number(0.0, x)])


DISTURBANCES: tuple[Callable[[Draft, Tensor], Tensor], ...] = (
    lambda draft, x: draft.node("Identity", [x]),
    lambda draft, x: draft.node("Dropout", [x]),
    _same_type_cast,
    _same_shape,
    _there_and_back,
    _times_one,
    _plus_zero,
)


def plain(op: str) -> Way:
    """The operator of that name."""
    return lambda draft, args, attributes: draft.node(op, args, **attributes)


def swapped(op: str) -> Way:
    return lambda draft, args, attributes: draft.node(op, args[::-1])


def _subtract(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    return draft.node("Add", [args[0], draft.apply("Neg", args[1:])])


def _zero_minus(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    return draft.node("Sub", [draft.number(0.0, args[0]), args[0]])


def _by_minus_one(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    return draft.node(draft.rng.choice(["Mul", "Div"]), [args[0], draft.number(-1.0, args[0])])


def _by_reciprocal(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    return draft.node("Mul", [args[0], draft.apply("Reciprocal", args[1:])])


def _one_over(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    return draft.node("Div", [draft.number(1.0, args[0]), args[0]])


def _by_power(exponent: float) -> Way:
    return lambda draft, args, attributes: draft.node("Pow", [args[0], draft.number(exponent, args[0])])


def _to_the(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    """x ** exponent: by Pow, by Mul, by Sqrt."""
    (x, *_), exponent = args, attributes["exponent"]
    ways: list[Callable[[], Tensor]] = [lambda: draft.node("Pow", [x, draft.number(exponent, x)])]
    if exponent == int(exponent) and draft.opset >= 12:
        ways.append(
            lambda: draft.node("Pow", [x, draft.ints([int(exponent)])]) if x.rank else draft.node("Pow", [x, draft.number(exponent, x)])
        )
    if exponent in (2.0, 3.0, 4.0):
        ways += [lambda: draft.times([(1, x)] * int(exponent))] * 2
    if exponent in (0.5, -0.5, -1.0):
        root = {0.5: ["Sqrt"], -0.5: ["Sqrt", "Reciprocal"], -1.0: ["Reciprocal"]}[exponent]
        ways += [lambda: _chain(draft, x, root)] * 2
    return draft.rng.choice(ways)()


def _chain(draft: Draft, x: Tensor, ops: Sequence[str]) -> Tensor:
    for op in ops:
        x = draft.apply(op, [x])
    return x


def _one_plus(draft: Draft, x: Tensor) -> Tensor:
    return draft.total([(1, x), (1, draft.number(1.0, x))])


def _sigmoid_by_exp(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    return draft.apply("Reciprocal", [_one_plus(draft, draft.apply("Exp", [draft.apply("Neg", args)]))])


def _sigmoid_by_tanh(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    return draft.times([(1, _one_plus(draft, draft.node("Tanh", [draft.times([(1, args[0])], 0.5)])))], 0.5)


def _softplus_by_log(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    return draft.node("Log", [_one_plus(draft, draft.node("Exp", args))])


def _gelu(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    (x,) = args
    if attributes["approximate"] == "none":
        bent = _one_plus(draft, draft.node("Erf", [draft.times([(1, x)], math.sqrt(0.5))]))
        return draft.times([(1, x), (1, bent)], 0.5)
    inner = _gelu_polynomial(draft, x)
    if draft.rng.random() < 0.3:
        return draft.times([(1, x), (1, draft.apply("Sigmoid", [draft.times([(1, inner)], 2.0)]))])
    return draft.times([(1, x), (1, _one_plus(draft, draft.node("Tanh", [inner])))], 0.5)


def _gelu_polynomial(draft: Draft, x: Tensor) -> Tensor:
    """sqrt(2/pi) (x + 0.044715 x^3), or with x in front, or multiplied out."""
    k, c = math.sqrt(2 / math.pi), 0.044715
    form = draft.rng.randrange(3)
    if form == 0:
        cubic = draft.times([(1, _to_the(draft, [x], {"exponent": 3.0}))], c)
        return draft.times([(1, draft.total([(1, x), (1, cubic)]))], k)
    if form == 1:
        square = draft.times([(1, _to_the(draft, [x], {"exponent": 2.0}))], c)
        return draft.times([(1, x), (1, _one_plus(draft, square))], k)
    cubic = draft.times([(1, _to_the(draft, [x], {"exponent": 3.0}))], k * c)
    return draft.total([(1, draft.times([(1, x)], k)), (1, cubic)])


def _native(op: str, fallback: Way) -> Way:
    """The operator itself from the opset on that has it."""

    def write(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
        return draft.node(op, args, **attributes) if draft.opset >= FIRST_OPSET[op] else fallback(draft, args, attributes)

    return write


def _swish(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    (x,) = args
    return draft.times([(1, x), (1, draft.apply("Sigmoid", [draft.times([(1, x)], attributes["alpha"])]))])


def _mish(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    return draft.times([(1, args[0]), (1, draft.node("Tanh", [draft.apply("Softplus", args)]))])


def _hard_swish(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    (x,) = args
    if draft.rng.random() < 0.5:
        return draft.times([(1, x), (1, draft.node("HardSigmoid", [x], alpha=1 / 6, beta=0.5))])
    shifted = draft.total([(1, x), (1, draft.number(3.0, x))])
    return draft.times([(1, x), (1, draft.apply("Clip", [shifted], {"min": 0.0, "max": 6.0}))], 1 / 6)


def _clip(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    bounds = [draft.weight(np.array(attributes[k]), args[0].kind) for k in ("min", "max")]
    return draft.node("Clip", [args[0], *bounds], args[0].shape)


def _reduce(op: str, first_with_input: int) -> Way:
    """A reduction, its axes positive or negative, an attribute or an input."""

    def write(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
        (x,), axes, kept = args, attributes["axes"], bool(attributes.get("keepdims", True))
        given = [a + x.rank if draft.rng.random() < 0.5 else a for a in axes]
        gone = {a % x.rank for a in axes}
        shape = tuple(1 if i in gone else d for i, d in enumerate(x.shape) if kept or i not in gone)
        if draft.opset >= first_with_input:
            return draft.node(op, [x, draft.ints(given)], shape, keepdims=int(kept))
        return draft.node(op, [x], shape, axes=given, keepdims=int(kept))

    return write


REDUCE_MEAN, REDUCE_SUM, REDUCE_MAX = _reduce("ReduceMean", 18), _reduce("ReduceSum", 13), _reduce("ReduceMax", 18)
REDUCE_SQUARES, REDUCE_L2 = _reduce("ReduceSumSquare", 18), _reduce("ReduceL2", 18)


def _count(x: Tensor, axes: Sequence[int]) -> float:
    return float(math.prod(x.shape[a] for a in axes))


def _mean_by_sum(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    return draft.times([(1, REDUCE_SUM(draft, args, attributes))], 1 / (_count(args[0], attributes["axes"]) or 1))


def _mean_put_back(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    """Reduced without keepdims, then Unsqueezed."""
    if not attributes.get("keepdims", True):
        return REDUCE_MEAN(draft, args, attributes)
    flat = REDUCE_MEAN(draft, args, {**attributes, "keepdims": False})
    axes = [a % args[0].rank for a in attributes["axes"]]
    shape = tuple(1 if i in axes else d for i, d in enumerate(args[0].shape))
    return draft.squeeze(flat, axes, shape, "Unsqueeze")


def _mean_of_squares(draft: Draft, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    form, size = draft.rng.randrange(4), _count(x, axes) or 1
    if form == 0:
        return draft.times([(1, REDUCE_SQUARES(draft, [x], {"axes": axes}))], 1 / size)
    if form == 1 and x.kind == "float":  # a square of a root overflows float16 easily
        return draft.times([(1, _to_the(draft, [REDUCE_L2(draft, [x], {"axes": axes})], {"exponent": 2.0}))], 1 / size)
    return draft.apply("Mean", [_to_the(draft, [x], {"exponent": 2.0})], {"axes": axes, "keepdims": True})


def _over_root(draft: Draft, x: Tensor, variance: Tensor, epsilon: float) -> Tensor:
    """x / sqrt(variance + epsilon)"""
    inside = draft.total([(1, variance), (1, draft.number(epsilon, variance))])
    if draft.rng.random() < 0.5:
        return draft.times([(-1, _to_the(draft, [inside], {"exponent": 0.5})), (1, x)])
    return draft.times([(1, x), (1, _to_the(draft, [inside], {"exponent": -0.5}))])


def _rms_norm(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    (x,) = args
    return _over_root(draft, x, _mean_of_squares(draft, x, attributes["axes"]), attributes["epsilon"])


def _layer_norm(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    (x,), axes = args, attributes["axes"]
    reduction = {"axes": axes, "keepdims": True}
    mean = draft.apply("Mean", [x], reduction)
    centred = draft.total([(1, x), (-1, mean)])
    if draft.rng.random() < 0.2 and x.kind == "float":
        square = draft.apply("Mean", [_to_the(draft, [x], {"exponent": 2.0})], reduction)
        variance = draft.total([(1, square), (-1, _to_the(draft, [mean], {"exponent": 2.0}))])
    else:
        again = draft.total([(1, x), (-1, mean)]) if draft.rng.random() < 0.3 else centred
        variance = _mean_of_squares(draft, again, axes)
    return _over_root(draft, centred, variance, attributes["epsilon"])


def _norm_operator(op: str, spelled: Way) -> Way:
    """The operator, with a scale of ones that it cannot do without, where the axes are the last ones."""

    def write(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
        (x,), axes = args, tuple(sorted(attributes["axes"]))
        if draft.opset < FIRST_OPSET[op] or axes != tuple(range(-len(axes), 0)):
            return spelled(draft, args, attributes)
        ones = draft.weight(np.ones(x.shape[axes[0] :]), x.kind)
        return draft.node(op, [x, ones], x.shape, axis=axes[0], epsilon=attributes["epsilon"])

    return write


def _softmax_operator(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    (x,), axis = args, attributes["axis"]
    if draft.opset < 13 and axis != -1:
        return _softmax(draft, args, attributes)
    return draft.node("Softmax", [x], axis=axis + x.rank if draft.rng.random() < 0.3 else axis)


def _softmax(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    (x,), reduction = args, {"axes": (attributes["axis"],), "keepdims": True}
    raised = draft.node("Exp", [draft.total([(1, x), (-1, REDUCE_MAX(draft, [x], reduction))])])
    return draft.times([(1, raised), (-1, REDUCE_SUM(draft, [raised], reduction))])


def _where_not(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    condition, yes, no = args
    return draft.node("Where", [draft.node("Not", [condition]), no, yes], broadcast(*args), yes.kind)


def _where(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    return draft.node("Where", args, broadcast(*args), args[1].kind)


def _nan_to_zero(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    (x,) = args
    return draft.node("Where", [draft.node("IsNaN", [x], kind="bool"), draft.number(0.0, x), x], x.shape, x.kind)


def _matmul(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    a, b = args
    if min(a.rank, b.rank) < 2 or a.shape[-1] != b.shape[-2]:
        raise Unsuitable(f"no product of {a.shape} and {b.shape}")
    outer = broadcast(Tensor("", a.shape[:-2], a.kind), Tensor("", b.shape[:-2], b.kind))
    return draft.node("MatMul", [a, b], (*outer, a.shape[-2], b.shape[-1]))


def _rotate_half(draft: Draft, args: Args, attributes: Attributes) -> Tensor:
    (x,) = args
    half = x.shape[-1] // 2
    if x.shape[-1] != 2 * half or half == 0:
        raise Unsuitable(f"{x.shape} has no halves")
    first, second = (slice_of(draft, x, -1, *ends) for ends in ((0, half), (half, 2**31 - 1 if draft.rng.random() < 0.5 else 2 * half)))
    return draft.node("Concat", [draft.apply("Neg", [second]), first], x.shape, axis=draft.rng.choice([-1, x.rank - 1]))


def slice_of(draft: Draft, x: Tensor, axis: int, start: int, end: int) -> Tensor:
    """Elements start to end of one axis."""
    shape = list(x.shape)
    shape[axis] = len(range(*slice(start, end).indices(shape[axis])))
    return draft.node(
        "Slice", [x, draft.ints([start]), draft.ints([end]), draft.ints([draft.rng.choice([axis, axis % x.rank])])], tuple(shape)
    )


SPELLINGS: Mapping[str, tuple[Way, ...]] = {
    "Add": (plain("Add"), swapped("Add"), plain("Sum")),
    "Sub": (plain("Sub"), _subtract),
    "Mul": (plain("Mul"), swapped("Mul")),
    "Div": (plain("Div"), _by_reciprocal),
    "Neg": (plain("Neg"), plain("Neg"), _by_minus_one, _zero_minus),
    "Pow": (_to_the,),
    "Sqrt": (plain("Sqrt"), _by_power(0.5)),
    "Reciprocal": (plain("Reciprocal"), _one_over, _by_power(-1.0)),
    "Sigmoid": (plain("Sigmoid"), plain("Sigmoid"), _sigmoid_by_exp, _sigmoid_by_tanh),
    "Softplus": (plain("Softplus"), _softplus_by_log),
    "Gelu": (_gelu, _gelu, _native("Gelu", _gelu)),
    "Swish": (_swish,),
    "Mish": (_mish, _native("Mish", _mish)),
    "HardSwish": (_hard_swish, _native("HardSwish", _hard_swish)),
    "Clip": (_clip,),
    "Mean": (REDUCE_MEAN, REDUCE_MEAN, _mean_by_sum, _mean_put_back),
    "ReduceSum": (REDUCE_SUM,),
    "ReduceMax": (REDUCE_MAX,),
    "LayerNormalization": (_layer_norm, _layer_norm, _norm_operator("LayerNormalization", _layer_norm)),
    "RMSNormalization": (_rms_norm, _rms_norm, _norm_operator("RMSNormalization", _rms_norm)),
    "Softmax": (_softmax_operator, _softmax_operator, _softmax),
    "Where": (_where, _where_not),
    "NanToZero": (_nan_to_zero,),
    "MatMul": (_matmul,),
    "RotateHalf": (_rotate_half,),
}
