"""The algebra that graphs and patterns are both written in, so that spelling does not matter.

A `Term` says *what* a value is, not how it was computed: products are a coefficient times atoms with
exponents, sums are an offset plus weighted terms, both flat, commutative and with common factors taken out;
well-known functions (sigmoid, GELU, norms, softmax) are recognised whatever they were spelled with. Equal terms
are the same object within one `Algebra`. Only identities that hold for all real numbers are used: nothing is
cancelled (x/x, x-x), no root of a square is taken, and small constants stay.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

MAX_PARTS = 12  # a longer product or sum is not flattened further: keeps the view linear in the graph's size
MAX_EXPONENT = 1e6  # a power beyond it is left as it is written: sums of exponents are exact far below
TOLERANCE = 5e-4  # of constants: half a step of float16, the coarsest type exporters round them to

NUMBER, LEAF, VARIABLE, PRODUCT, SUM = "#number", "#leaf", "#variable", "#product", "#sum"


class Term:
    """One node of the canonical view. `op` is one of the five kinds above or the name of an operation.

    number: `coefficient`. product: `coefficient` times each part's term to the power of its number.
    sum: `coefficient` (the offset) plus each part's term times its number. Others: `args` and `attributes`.
    """

    __slots__ = ("args", "attributes", "coefficient", "id", "op", "parts", "tag")

    def __init__(
        self,
        op: str,
        args: tuple[Term, ...] = (),
        attributes: Mapping[str, Any] | None = None,
        coefficient: float = 1.0,
        parts: tuple[tuple[Term, float], ...] = (),
        tag: Any = None,
    ) -> None:
        self.op = op
        self.args = args
        self.attributes: Mapping[str, Any] = attributes or {}
        self.coefficient = coefficient
        self.parts = parts
        self.tag = tag  # what a leaf or variable stands for
        self.id = -1

    def __repr__(self) -> str:
        return show(self)


def show(term: Term, depth: int = 6) -> str:
    """A term as an equation, cut off below `depth` levels."""
    if term.op == NUMBER:
        return f"{term.coefficient:.6g}"
    if term.op in (LEAF, VARIABLE):
        return str(getattr(term.tag, "name", term.tag))
    if depth == 0:
        return "..."
    if term.op == PRODUCT:
        head = [] if term.coefficient == 1 else [f"{term.coefficient:.6g}"]
        return "*".join(head + [show(t, depth - 1) + ("" if e == 1 else f"^{e:g}") for t, e in term.parts])
    if term.op == SUM:
        head = [] if term.coefficient == 0 else [f"{term.coefficient:.6g}"]
        return "(" + " + ".join(head + [("" if c == 1 else f"{c:.6g}*") + show(t, depth - 1) for t, c in term.parts]) + ")"
    attributes = [f"{k}={_shown(v)}" for k, v in term.attributes.items()]
    return f"{term.op}({', '.join([show(a, depth - 1) for a in term.args] + attributes)})"


def _shown(attribute: Any) -> str:
    """A layout as the shape that it gives."""
    shape = getattr(attribute, "shape", None)
    return str(attribute) if shape is None else f"[{','.join(map(str, shape))}]"


def close(a: float, b: float, tolerance: float = TOLERANCE) -> bool:
    """Whether two constants are the same number as exporters write it."""
    return a == b or abs(a - b) <= tolerance * max(abs(a), abs(b))


def snapped(value: float) -> float:
    """1.0 for what is 1 up to the rounding of constants, else the value."""
    return 1.0 if close(value, 1.0) else value


def product_of(term: Term) -> tuple[float, tuple[tuple[Term, float], ...]]:
    """A term as coefficient and (atom, exponent) pairs."""
    if term.op == NUMBER:
        return term.coefficient, ()
    if term.op == PRODUCT:
        return term.coefficient, term.parts
    return 1.0, ((term, 1.0),)


class Algebra:
    """Makes terms; equal ones come back as the same object.

    The three `recognise_*` hooks are where a subclass knows more functions than arithmetic.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Term] = {}

    def _intern(self, key: Hashable, term: Term) -> Term:
        found = self._known.get(key)
        if found is None:
            term.id = len(self._known)
            self._known[key] = found = term
        return found

    # ---- atoms

    def number(self, value: float) -> Term:
        return self._intern((NUMBER, _key(value)), Term(NUMBER, coefficient=value))

    def leaf(self, tag: Hashable) -> Term:
        """A value with no further meaning (a graph input, a weight); equal tags are the same leaf."""
        return self._intern((LEAF, tag), Term(LEAF, tag=tag))

    def variable(self, tag: Hashable) -> Term:
        """A hole in a pattern."""
        return self._intern((VARIABLE, tag), Term(VARIABLE, tag=tag))

    def plain(self, op: str, args: Sequence[Term], attributes: Mapping[str, Any] | None = None) -> Term:
        """An operation as it stands: no identity is applied to it."""
        attributes = dict(sorted((attributes or {}).items()))
        key = (op, tuple(a.id for a in args), tuple((k, _attribute_key(v)) for k, v in attributes.items()))
        return self._intern(key, Term(op, tuple(args), attributes))

    # ---- products

    def product(self, coefficient: float, parts: Iterable[tuple[Term, float]]) -> Term:
        """coefficient * prod(atom ** exponent), as it stands."""
        ordered = tuple(sorted(parts, key=lambda part: part[0].id))
        if not ordered:
            return self.number(coefficient)
        if _key(coefficient) == 1 and len(ordered) == 1 and ordered[0][1] == 1:
            return ordered[0][0]
        key = (PRODUCT, _key(coefficient), tuple((t.id, e) for t, e in ordered))
        return self._intern(key, Term(PRODUCT, coefficient=coefficient, parts=ordered))

    def multiply(self, a: Term, b: Term) -> Term:
        (ca, pa), (cb, pb) = product_of(a), product_of(b)
        coefficient = ca * cb
        if not pa and not pb and math.isfinite(coefficient):
            return self.number(coefficient)
        if not _usable(coefficient):
            return self.plain("Mul", sorted((a, b), key=lambda t: t.id))
        if len(pa) + len(pb) > MAX_PARTS:
            pa, pb = self._as_atom(pa), self._as_atom(pb)
        exponents = {t.id: (t, e) for t, e in pa}
        for term, exponent in pb:
            before = exponents.get(term.id, (term, 0.0))[1]
            if not _may_add(term, before, exponent) or abs(before + exponent) > MAX_EXPONENT:
                return self.plain("Mul", sorted((a, b), key=lambda t: t.id))
            exponents[term.id] = (term, before + exponent)
        return self.recognise_product(coefficient, dict(exponents.values()))

    def _as_atom(self, parts: tuple[tuple[Term, float], ...]) -> tuple[tuple[Term, float], ...]:
        if len(parts) <= 1:
            return parts
        return ((self.plain("Group", (self.product(1.0, parts),)), 1.0),)

    def scale(self, term: Term, factor: float) -> Term:
        coefficient, parts = product_of(term)
        return self.product(coefficient * factor, parts)

    def negate(self, term: Term) -> Term:
        return self.scale(term, -1.0)

    def power(self, base: Term, exponent: float) -> Term:
        """base ** exponent for a constant exponent, keeping to identities that hold for negative bases too."""
        coefficient, parts = product_of(base)
        raised = _raised(coefficient, exponent)
        if exponent == 1:
            return base
        if raised is None or any(abs(e * exponent) > MAX_EXPONENT for _, e in parts):
            return self.plain("Pow", (base, self.number(exponent)))
        if all(_may_multiply(t, e, exponent) for t, e in parts) and (len(parts) < 2 or _is_whole(exponent)):
            return self.recognise_product(raised, _ungrouped({t: e * exponent for t, e in parts}))
        return self.recognise_product(raised, {self.plain("Group", (self.product(1.0, parts),)): exponent})

    def divide(self, a: Term, b: Term) -> Term:
        if b.op == NUMBER and b.coefficient == 0:
            return self.plain("Div", (a, b))
        return self.multiply(a, self.power(b, -1.0))

    # ---- sums

    def sum(self, offset: float, parts: Iterable[tuple[Term, float]]) -> Term:
        """offset + sum(weight * term), its content and common factors taken out."""
        ordered = sorted(parts, key=lambda part: part[0].id)
        if not ordered:
            return self.number(offset)
        if len(ordered) == 1 and offset == 0:
            return self.scale(ordered[0][0], ordered[0][1])
        content = ordered[0][1]
        if content != 1:
            ordered = [(t, c / content) for t, c in ordered]
            offset /= content
        return self.scale(self._primitive_sum(offset, ordered), content)

    def _primitive_sum(self, offset: float, ordered: list[tuple[Term, float]]) -> Term:
        common = _common_factors([t for t, _ in ordered]) if offset == 0 else {}
        if common:
            rest = [(self._without(t, common), c) for t, c in ordered]
            inner = self._gather(0.0, rest)
            if inner is not None:
                return self.multiply(self.product(1.0, common.items()), inner)
        key = (SUM, _key(offset), tuple((t.id, _key(c)) for t, c in ordered))
        return self._intern(key, Term(SUM, coefficient=offset, parts=tuple(ordered)))

    def _without(self, term: Term, common: Mapping[Term, float]) -> Term:
        coefficient, parts = product_of(term)
        left = [(t, e - common.get(t, 0.0)) for t, e in parts]
        return self.product(coefficient, [(t, e) for t, e in left if e != 0])

    def _gather(self, offset: float, weighted: Iterable[tuple[Term, float]]) -> Term | None:
        """A sum of terms that may be numbers or alike; None where something would cancel out."""
        weights: dict[int, tuple[Term, float]] = {}
        for term, weight in weighted:
            coefficient, parts = product_of(term)
            if not parts:
                offset += weight * coefficient
                continue
            atom = self.product(1.0, parts)
            total = weights.get(atom.id, (atom, 0.0))[1] + weight * coefficient
            weights[atom.id] = (atom, total)
        if any(not _usable(w) for _, w in weights.values()) or not math.isfinite(offset):
            return None
        return self.recognise_sum(offset, dict(weights.values()))

    def add(self, a: Term, b: Term, *, flatten: tuple[bool, bool] = (True, True)) -> Term:
        """a + b. `flatten` says which operands may be opened when they are sums themselves."""
        (oa, pa), (ob, pb) = (self._sum_parts(t, opened) for t, opened in zip((a, b), flatten, strict=True))
        if len(pa) + len(pb) > MAX_PARTS:
            (oa, pa), (ob, pb) = self._sum_parts(a, opened=False), self._sum_parts(b, opened=False)
        total = self._gather(oa + ob, [*pa, *pb])
        return total if total is not None else self.plain("Add", sorted((a, b), key=lambda t: t.id))

    def _sum_parts(self, term: Term, opened: bool) -> tuple[float, list[tuple[Term, float]]]:
        coefficient, parts = product_of(term)
        if not parts:
            return coefficient, []
        (atom, exponent), *more = parts
        if opened and not more and exponent == 1 and atom.op == SUM:
            return coefficient * atom.coefficient, [(t, c * coefficient) for t, c in atom.parts]
        return 0.0, [(self.product(1.0, parts), coefficient)]

    def subtract(self, a: Term, b: Term, *, flatten: tuple[bool, bool] = (True, True)) -> Term:
        return self.add(a, self.negate(b), flatten=flatten)

    # ---- hooks

    def recognise_product(self, coefficient: float, parts: Mapping[Term, float]) -> Term:
        """The product, with whatever function it spells out in place of its spelling."""
        return self.product(coefficient, parts.items())

    def recognise_sum(self, offset: float, parts: Mapping[Term, float]) -> Term:
        """The sum, with whatever function it spells out in place of its spelling."""
        return self.sum(offset, parts.items())

    def operation(self, op: str, args: Sequence[Term], attributes: Mapping[str, Any] | None = None) -> Term:
        """Any other operation, with the identities that are known for it."""
        return self.plain(op, args, attributes)


def _key(value: float) -> float:
    """Constants that differ only beyond what float32 can say are one; whole numbers (they may count things) are exact."""
    return value if not math.isfinite(value) or _is_whole(value) else float(f"{value:.6g}")


def _attribute_key(value: Any) -> Hashable:
    return _key(value) if isinstance(value, float) else value


def _raised(coefficient: float, exponent: float) -> float | None:
    """coefficient ** exponent, where that is a number other than 0 and may stand in front of the other factors' power."""
    if coefficient == 0 or exponent == 0 or abs(exponent) > MAX_EXPONENT or (coefficient < 0 and not _is_whole(exponent)):
        return None
    try:
        raised = coefficient**exponent
    except OverflowError:
        return None
    return raised if _usable(raised) else None


def _is_whole(number: float) -> bool:
    return math.isfinite(number) and number == int(number)


def _may_add(term: Term, a: float, b: float) -> bool:
    """Whether t**a * t**b is t**(a+b): t/t is 1 only where t is not 0, and no product of roots is a number below 0."""
    return a * b >= 0 and (_is_whole(a) or _is_whole(b) or not _is_whole(a + b) or is_never_negative(term))


def _may_multiply(term: Term, a: float, b: float) -> bool:
    """Whether (t**a)**b is t**(a*b): a root of a square is no more the number than the square of a root is."""
    if is_never_negative(term) or a in (1, -1):
        return True
    return _is_whole(b) and (_is_whole(a) or not _is_whole(a * b))


def _ungrouped(parts: Mapping[Term, float]) -> dict[Term, float]:
    """A single group to the power of 1 as the factors in it: the square of a root."""
    (group, exponent), *more = parts.items() if parts else [(None, 0.0)]
    if group is None or more or group.op != "Group" or exponent != 1:
        return dict(parts)
    return dict(product_of(group.args[0])[1])


def is_never_negative(term: Term, depth: int = 6) -> bool:
    """Whether the term is provably at least 0, or NaN, whatever its leaves are. False says nothing."""
    if depth == 0:
        return False
    if term.op == NUMBER:
        return term.coefficient >= 0
    if term.op == PRODUCT:
        return term.coefficient > 0 and all(e % 2 == 0 or not _is_whole(e) or is_never_negative(t, depth - 1) for t, e in term.parts)
    if term.op == SUM:
        return term.coefficient >= 0 and all(c > 0 and is_never_negative(t, depth - 1) for t, c in term.parts)
    return term.op == "Exp" or (term.op in ("Mean", "ReduceSum", "Group") and is_never_negative(term.args[0], depth - 1))


def _usable(weight: float) -> bool:
    return weight != 0 and math.isfinite(weight)


def _common_factors(terms: Sequence[Term]) -> dict[Term, float]:
    """Atoms (with a positive exponent) that every one of the products has."""
    first = {t: e for t, e in product_of(terms[0])[1] if e > 0}
    for term in terms[1:]:
        parts = dict(product_of(term)[1])
        first = {t: min(e, parts[t]) for t, e in first.items() if parts.get(t, 0.0) > 0}
    return first
