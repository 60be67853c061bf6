"""Functions that exporters spell out, recognised in the algebra: what they are equal to, once, for every spelling.

Each recogniser reads as its equation. What a product or sum is checked for:

    sigmoid(x)          1 / (1 + exp(-x))            1 + tanh(x) = 2 sigmoid(2x)
    softplus(x)         log(1 + exp(x))
    gelu(x)             x/2 (1 + erf(x / sqrt 2))
    gelu_tanh(x)        x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3))
    swish(x, alpha)     x sigmoid(alpha x)           (SiLU: alpha 1; QuickGELU: alpha 1.702)
    mish(x)             x tanh(softplus(x))
    hardswish(x)        x clip(x/6 + 1/2, 0, 1)
    relu(x)             max(x, 0)                    relu(x)^2 = x relu(x)
    rms_norm(x)         x (mean(x^2) + epsilon)^-1/2
    layer_norm(x)       rms_norm(x - mean(x))        mean(x^2) - mean(x)^2 = mean((x - mean(x))^2)
    group_norm(x), bounded_norm(x)                   see onnxfuse/norms.py
    rotate_half(x), rotate_pairs(x)                  see onnxfuse/rotations.py
    softmax(x)          exp(x - max(x)) / sum(exp(x - max(x)))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnxfuse.layout import Layout
from onnxfuse.norms import bounded_norm, group_norm
from onnxfuse.rotations import rotated
from onnxfuse.term import NUMBER, SUM, VARIABLE, Algebra, Term, close, product_of, snapped

Parts = Mapping[Term, float]
SQRT_HALF = math.sqrt(0.5)
TANH_GELU = 2 * math.sqrt(2 / math.pi)  # the factor once tanh is written as a sigmoid
TANH_GELU_CUBIC = 0.044715
USUAL_ALPHAS = (1.0, 1.702)  # SiLU, QuickGELU
LINEAR = ("Mean", "View", "MatMul", "RotateHalf", "RotatePairs")  # f(c x) = c f(x)


class Canonical(Algebra):
    """The algebra of the canonical view."""

    def recognise_product(self, coefficient: float, parts: Parts) -> Term:
        for recognise in PRODUCTS:
            for part, exponent in parts.items():
                found = recognise(self, part, exponent, parts, coefficient)
                if found is not None:
                    used, replacement = found
                    rest = _minus(parts, used)
                    return self.multiply(self.recognise_product(coefficient, rest), replacement)
        return self.product(coefficient, parts.items())

    def recognise_sum(self, offset: float, parts: Parts) -> Term:
        for recognise in SUMS:
            found = recognise(self, offset, parts)
            if found is not None:
                return found
        return self.sum(offset, parts.items())

    def operation(self, op: str, args: Sequence[Term], attributes: Mapping[str, Any] | None = None) -> Term:
        attributes = dict(attributes or {})
        if op in LINEAR:
            split = [product_of(a) for a in args]
            factor = math.prod(f for f, _ in split)
            if factor not in (0.0, 1.0) and all(parts for _, parts in split):
                bare = [self.product(1.0, parts) for _, parts in split]
                return self.scale(self.operation(op, bare, attributes), factor)
        simplify = IDENTITIES.get(op)
        result = simplify(self, tuple(args), attributes) if simplify else None
        return self.plain(op, args, attributes) if result is None else result


Found = tuple[Parts, Term]  # the parts a function takes out of a product, and the function


def _minus(parts: Parts, used: Parts) -> Parts:
    left = {t: e - used.get(t, 0.0) for t, e in parts.items()}
    return {t: e for t, e in left.items() if e != 0}


def _contains(parts: Parts, wanted: Parts) -> bool:
    return all(parts.get(t, 0.0) >= e > 0 for t, e in wanted.items())


def _near(number: float, coefficient: float) -> float:
    """1, the coefficient of the product, half or double of it, if the number is that up to the rounding of constants.

    The coefficient is that of the function's argument, with whatever of the halves in the formula is in the product yet.
    """
    usual = (math.copysign(u, number) for u in (1.0, coefficient, coefficient / 2, coefficient * 2))
    return next((u for u in usual if close(number, u)), number)


def _gelu(algebra: Algebra, part: Term, exponent: float, parts: Parts, coefficient: float) -> Found | None:
    if part.op != SUM or exponent != 1 or not close(abs(part.coefficient), 1.0) or len(part.parts) != 1:
        return None
    ((erf, weight),) = part.parts
    if erf.op != "Erf" or not close(weight, 1.0):
        return None
    factor, inner = product_of(erf.args[0])
    x = dict(inner)
    if not x or not _contains(parts, x):
        return None
    sign = math.copysign(1.0, part.coefficient)  # erf(x) - 1 = -(1 + erf(-x))
    k = _near(sign * factor / SQRT_HALF, coefficient)
    gelu = algebra.plain("Gelu", (algebra.product(k, inner),), {"approximate": "none"})
    return {part: 1.0, **x}, algebra.scale(gelu, sign * 2.0 / k)


def _swish(algebra: Algebra, part: Term, exponent: float, parts: Parts, coefficient: float) -> Found | None:
    if part.op != "Sigmoid" or exponent != 1:
        return None
    factor, inner = product_of(part.args[0])
    gelu = _tanh_gelu(algebra, factor, dict(inner), parts, coefficient)
    if gelu is not None:
        used, replacement = gelu
        return {part: 1.0, **used}, replacement
    x = dict(inner)
    if not x or not _contains(parts, x):
        return None
    # c x sigmoid(f x) is swish of c x where that has a usual alpha, else of x or -x
    k = coefficient if any(close(factor / coefficient, alpha) for alpha in USUAL_ALPHAS) else math.copysign(1.0, factor)
    swish = algebra.plain("Swish", (algebra.product(k, inner),), {"alpha": snapped(factor / k)})
    return {part: 1.0, **x}, algebra.scale(swish, 1 / k)


def _tanh_gelu(algebra: Algebra, factor: float, inner: Parts, parts: Parts, coefficient: float) -> Found | None:
    """x of sigmoid(factor * x * (1 + cubic * x^2)), if that is what it is."""
    for cubic, exponent in inner.items():
        if exponent != 1 or cubic.op != SUM or len(cubic.parts) != 1 or cubic.coefficient <= 0:
            continue
        ((square, weight),) = cubic.parts
        x = {t: e for t, e in inner.items() if t is not cubic}
        _, squared = product_of(square)
        if not x or dict(squared) != {t: 2 * e for t, e in x.items()}:
            continue
        # in terms of the real input y = k x: factor (c0 x + w x^3), where c0 is the sum's offset
        k = _near(factor * cubic.coefficient / TANH_GELU, coefficient)
        if not close(weight / cubic.coefficient, TANH_GELU_CUBIC * k * k) or not _contains(parts, x):
            continue
        gelu = algebra.plain("Gelu", (algebra.product(k, x.items()),), {"approximate": "tanh"})
        return x, algebra.scale(gelu, 1 / k)
    return None


def _mish(algebra: Algebra, part: Term, exponent: float, parts: Parts, coefficient: float) -> Found | None:
    if part.op != "Tanh" or exponent != 1 or part.args[0].op != "Softplus":
        return None
    x = part.args[0].args[0]
    factor, inner = product_of(x)
    if not inner or not _contains(parts, dict(inner)):
        return None
    return {part: 1.0, **dict(inner)}, algebra.scale(algebra.plain("Mish", (x,)), 1 / factor)


def _hard_swish(algebra: Algebra, part: Term, exponent: float, parts: Parts, coefficient: float) -> Found | None:
    if part.op != "HardSigmoid" or exponent != 1:
        return None
    alpha, beta = part.attributes["alpha"], part.attributes["beta"]
    factor, inner = product_of(part.args[0])
    if not inner or not _contains(parts, dict(inner)) or not close(beta, 0.5) or not alpha:
        return None
    k = _near(6 * alpha * factor, coefficient)
    return {part: 1.0, **dict(inner)}, algebra.scale(algebra.plain("HardSwish", (algebra.product(k, inner),)), 1 / k)


def _squared_relu(algebra: Algebra, part: Term, exponent: float, parts: Parts, coefficient: float) -> Found | None:
    """x relu(x) = relu(x)^2."""
    if part.op != "Relu" or exponent != 1:
        return None
    factor, inner = product_of(part.args[0])
    if not inner or not _contains(parts, dict(inner)):
        return None
    return {part: 1.0, **dict(inner)}, algebra.scale(algebra.power(part, 2.0), 1 / factor)


def _sigmoid(algebra: Algebra, part: Term, exponent: float, parts: Parts, coefficient: float) -> Found | None:
    if part.op != SUM or exponent != -1 or len(part.parts) != 1 or not close(part.coefficient, 1.0, 1e-6):
        return None
    ((exp, weight),) = part.parts
    if exp.op != "Exp" or not close(weight, 1.0, 1e-6):
        return None
    return {part: -1.0}, algebra.operation("Sigmoid", (algebra.negate(exp.args[0]),))


def _norm(algebra: Algebra, part: Term, exponent: float, parts: Parts, coefficient: float) -> Found | None:
    """x * (mean(x^2) + epsilon)^-1/2, for any x that is a product of other parts."""
    if exponent != -0.5:
        return None
    mean, epsilon = _mean_and_epsilon(part)
    if mean is None or not mean.attributes["keepdims"]:
        return None
    _, squares = product_of(mean.args[0])
    x = {t: e / 2 for t, e in squares}
    if not x or not _contains(parts, x):
        return None
    axes = mean.attributes["axes"]
    centred = _centred(x, axes)
    attributes = {"axes": axes, "epsilon": epsilon}
    sign = math.copysign(1.0, coefficient)  # -norm(x) is norm(-x)
    if centred is not None:
        sign *= next(c for t, c in next(iter(x)).parts if t is centred or product_of(t)[1] == product_of(centred)[1])
        sign = math.copysign(1.0, sign)
        norm = algebra.plain("LayerNormalization", (algebra.scale(centred, sign),), attributes)
        return {part: -0.5, **x}, algebra.scale(norm, math.copysign(1.0, coefficient))
    norm = algebra.plain("RMSNormalization", (algebra.product(sign, x.items()),), attributes)
    return {part: -0.5, **x}, algebra.scale(norm, sign)


def _mean_and_epsilon(variance: Term) -> tuple[Term | None, float | Any]:
    """(mean term, epsilon) of mean + epsilon; the epsilon may be a scalar variable of a pattern."""
    if variance.op == "Mean":
        return variance, 0.0
    if variance.op != SUM:
        return None, 0.0
    means = [(t, c) for t, c in variance.parts if t.op == "Mean"]
    others = [(t, c) for t, c in variance.parts if t.op != "Mean"]
    if len(means) != 1 or means[0][1] != 1:
        return None, 0.0
    if not others:
        return (means[0][0], variance.coefficient) if variance.coefficient > 0 else (None, 0.0)
    ((scalar, weight),) = others if len(others) == 1 else ((None, 0.0),)
    if scalar is None or scalar.op != VARIABLE or weight != 1 or variance.coefficient != 0:
        return None, 0.0
    return means[0][0], scalar.tag


def _centred(x: Parts, axes: tuple[int, ...]) -> Term | None:
    """y when x is y - mean(y) over the same axes."""
    if len(x) != 1:
        return None
    ((difference, exponent),) = x.items()
    if exponent != 1 or difference.op != SUM or difference.coefficient != 0 or len(difference.parts) != 2:
        return None
    (a, wa), (b, wb) = difference.parts
    for y, wy, mean, wm in ((a, wa, b, wb), (b, wb, a, wa)):
        if mean.op == "Mean" and wy == -wm and mean.args[0] is y and mean.attributes["axes"] == axes and mean.attributes["keepdims"]:
            return y
    return None


def _bounded_norm(algebra: Algebra, part: Term, exponent: float, parts: Parts, coefficient: float) -> Found | None:
    return bounded_norm(algebra, part, exponent, parts)


def _softmax(algebra: Algebra, part: Term, exponent: float, parts: Parts, coefficient: float) -> Found | None:
    """exp(x - max(x)) / sum(exp(x - max(x))); without the max it overflows where softmax does not, so it must be there."""
    if part.op != "ReduceSum" or exponent != -1 or not part.attributes["keepdims"] or len(part.attributes["axes"]) != 1:
        return None
    exp = part.args[0]
    if exp.op != "Exp" or parts.get(exp, 0.0) < 1:
        return None
    axes = part.attributes["axes"]
    x = _before_its_largest_was_taken_off(algebra, exp.args[0], axes)
    return None if x is None else ({part: -1.0, exp: 1.0}, algebra.plain("Softmax", (x,), {"axis": axes[0]}))


def _before_its_largest_was_taken_off(algebra: Algebra, term: Term, axes: tuple[int, ...]) -> Term | None:
    """x, where the term is x - max(x) along these axes."""
    factor, inner = product_of(term)
    if len(inner) != 1 or inner[0][1] != 1 or inner[0][0].op != SUM or inner[0][0].coefficient != 0:
        return None
    terms = [(t, c * factor) for t, c in inner[0][0].parts]
    for top, weight in terms:
        is_top = top.op == "ReduceMax" and close(weight, -1.0, 1e-6) and top.attributes["axes"] == axes and top.attributes["keepdims"]
        if is_top and algebra.sum(0.0, [(t, c) for t, c in terms if t is not top]) is top.args[0]:
            return top.args[0]
    return None


PRODUCTS: tuple[Callable[[Algebra, Term, float, Parts, float], Found | None], ...] = (
    *(_gelu, _sigmoid, _swish, _mish, _hard_swish, _squared_relu, _norm, _bounded_norm, _softmax),
)


def _one_plus_tanh(algebra: Algebra, offset: float, parts: Parts) -> Term | None:
    """w (1 + tanh x) = 2 w sigmoid(2x), and w (1 - tanh x) = 2 w sigmoid(-2x)."""
    if len(parts) != 1 or not offset:
        return None
    ((tanh, weight),) = parts.items()
    if tanh.op != "Tanh" or not close(abs(weight), abs(offset), 1e-6):
        return None
    inner = algebra.scale(tanh.args[0], math.copysign(2.0, weight * offset))
    return algebra.scale(algebra.operation("Sigmoid", (inner,)), 2 * offset)


def _variance(algebra: Algebra, offset: float, parts: Parts) -> Term | None:
    """mean(x^2) - mean(x)^2 = mean((x - mean(x))^2), beside whatever else is in the sum."""
    for square, weight in parts.items():
        if square.op != "Mean":
            continue
        factor, inner = product_of(square.args[0])
        if factor != 1 or not inner or any(e != 2 for _, e in inner):
            continue
        x = algebra.product(1.0, [(t, 1.0) for t, _ in inner])
        mean = algebra.operation("Mean", (x,), square.attributes)
        other = algebra.power(mean, 2.0)
        if close(parts.get(other, 0.0), -weight, 1e-6):
            rest = {t: c for t, c in parts.items() if t is not square and t is not other}
            centred = algebra.subtract(x, mean, flatten=(False, False))
            variance = algebra.operation("Mean", (algebra.power(centred, 2.0),), square.attributes)
            return algebra.recognise_sum(offset, {**rest, variance: weight})
    return None


SUMS: tuple[Callable[[Algebra, float, Parts], Term | None], ...] = (_one_plus_tanh, _variance)

Args = tuple[Term, ...]
Attributes = Mapping[str, Any]


def _odd(op: str) -> Callable[[Algebra, Args, Attributes], Term | None]:
    def simplify(algebra: Algebra, args: Args, attributes: Attributes) -> Term | None:
        if product_of(args[0])[0] < 0:
            return algebra.negate(algebra.operation(op, (algebra.negate(args[0]),)))
        return None

    return simplify


def _log(algebra: Algebra, args: Args, attributes: Attributes) -> Term | None:
    x = args[0]
    if x.op == SUM and close(x.coefficient, 1.0, 1e-6) and len(x.parts) == 1 and x.parts[0][0].op == "Exp" and x.parts[0][1] == 1:
        return algebra.operation("Softplus", x.parts[0][0].args)
    return None


def _clip(algebra: Algebra, args: Args, attributes: Attributes) -> Term | None:
    """clip(x, 0, top) = top * hard_sigmoid(x / top); clip(x, 0, inf) = relu(x)."""
    low, high = attributes.get("min", -math.inf), attributes.get("max", math.inf)
    if low != 0 or not isinstance(high, (int, float)) or high <= 0:  # a bound may be a hole, in patterns
        return None
    if high == math.inf:
        return algebra.operation("Relu", args)
    inner = algebra.scale(args[0], 1 / high)
    factor, parts = product_of(inner)
    offset = 0.0
    if len(parts) == 1 and parts[0][0].op == SUM and parts[0][1] == 1:
        total = parts[0][0]
        offset = factor * total.coefficient
        inner = algebra.sum(0.0, [(t, c * factor) for t, c in total.parts])
    slope, rest = product_of(inner)
    hard = algebra.plain("HardSigmoid", (algebra.product(1.0, rest),), {"alpha": slope, "beta": offset})
    return algebra.scale(hard, high)


def _max(algebra: Algebra, args: Args, attributes: Attributes) -> Term | None:
    """max(x, 0) = relu(x)."""
    x = _beside_number(args, 0.0)
    return None if x is None else algebra.operation("Relu", (x,))


def _min(algebra: Algebra, args: Args, attributes: Attributes) -> Term | None:
    """min(relu(x), top) = clip(x, 0, top)."""
    top = next((a.coefficient for a in args if a.op == NUMBER), 0.0)
    relu = _beside_number(args, top)
    if relu is None or relu.op != "Relu" or top <= 0:
        return None
    return algebra.operation("Clip", relu.args, {"min": 0.0, "max": top})


def _relu(algebra: Algebra, args: Args, attributes: Attributes) -> Term | None:
    """relu(min(x, top)) = clip(x, 0, top)."""
    top = next((a.coefficient for a in args[0].args if a.op == NUMBER), 0.0)
    x = _beside_number(args[0].args, top) if args[0].op == "Min" and top > 0 else None
    return None if x is None else algebra.operation("Clip", (x,), {"min": 0.0, "max": top})


def _beside_number(args: Args, number: float) -> Term | None:
    """The other one of two operands, of which one is that number."""
    if len(args) != 2:
        return None
    return next((b for a, b in (args, args[::-1]) if a.op == NUMBER and a.coefficient == number and b.op != NUMBER), None)


SOFTPLUS_IS_LINE = 16.0  # from here on log(1 + exp(x)) is x in float32


def _softplus_above(condition: Term, yes: Term, no: Term, algebra: Algebra) -> Term | None:
    """where(s > 20, f s, f softplus(s)) = f softplus(s): PyTorch spells it so that exp cannot overflow."""
    factor, parts = product_of(no)
    if condition.op != "Greater" or len(parts) != 1 or parts[0][1] != 1 or parts[0][0].op != "Softplus":
        return None
    (s,), (above, bound) = parts[0][0].args, condition.args
    if above is s and bound.op == NUMBER and bound.coefficient >= SOFTPLUS_IS_LINE and yes is algebra.scale(s, factor):
        return no
    return None


def _where(algebra: Algebra, args: Args, attributes: Attributes) -> Term | None:
    condition, yes, no = args
    if condition.op == "Not":
        return algebra.operation("Where", (condition.args[0], no, yes))
    if no.op == NUMBER and yes.op == "Where" and yes.args[2] is no:  # masked by one, then by another: by both
        return algebra.operation("Where", (algebra.operation("And", (condition, yes.args[0])), yes.args[1], no))
    if yes.op == NUMBER and no.op == "Where" and no.args[1] is yes:
        return algebra.operation("Where", (algebra.operation("Or", (condition, no.args[0])), yes, no.args[2]))
    if condition.op == "IsNaN" and condition.args[0] is no and yes.op == NUMBER and yes.coefficient == 0:
        return algebra.plain("NanToZero", (no,))
    return _softplus_above(condition, yes, no, algebra)


def _not(algebra: Algebra, args: Args, attributes: Attributes) -> Term | None:
    return args[0].args[0] if args[0].op == "Not" else None


def _view(algebra: Algebra, args: Args, attributes: Attributes) -> Term | None:
    layout = attributes["layout"]
    if not isinstance(layout, Layout):  # a hole, in patterns
        return None
    return args[0] if layout.is_identity else group_norm(algebra, args[0], layout)


def _softmax_of(algebra: Algebra, args: Args, attributes: Attributes) -> Term | None:
    """softmax(x - max(x)) = softmax(x)"""
    x = _before_its_largest_was_taken_off(algebra, args[0], (attributes["axis"],))
    return None if x is None else algebra.plain("Softmax", (x,), attributes)


def _concat(algebra: Algebra, args: Args, attributes: Attributes) -> Term | None:
    return rotated(algebra, args) if attributes["axis"] == -1 else None


IDENTITIES: Mapping[str, Callable[[Algebra, Args, Attributes], Term | None]] = {
    "Erf": _odd("Erf"),
    "Tanh": _odd("Tanh"),
    "Log": _log,
    "Clip": _clip,
    "Max": _max,
    "Min": _min,
    "Relu": _relu,
    "Where": _where,
    "Not": _not,
    "View": _view,
    "Concat": _concat,
    "Softmax": _softmax_of,
}
