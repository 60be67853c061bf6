"""Finds where patterns hold: terms against terms, commutative and associative, with backtracking.

Matching is on the canonical view, so a pattern never meets a spelling. What remains is to say which holes stand
for what: structured parts of a product or sum are placed first, then known holes are taken out, and what is
left over is the last hole's.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from onnxfuse.canonical import View
from onnxfuse.folding import sources
from onnxfuse.pattern import NAMED, Scalar, Var
from onnxfuse.rule import Rule
from onnxfuse.term import LEAF, NUMBER, PRODUCT, SUM, TOLERANCE, VARIABLE, Term, close, product_of, show

Bound = Mapping[str, Any]
Parts = dict[Term, float]
MAX_SPLIT = 5  # a product or sum of at most this many left-over parts is divided among several holes in all ways
NORMS = {"LayerNormalization", "RMSNormalization"}
COMMUTATIVE = {"And", "Or", "Xor", "Equal", "Min", "Max", "Mul", "Add"}


@dataclass
class Trace:
    """How far a pattern got at one root: the share of its operators that matched, and what stopped it."""

    size: int
    matched: int = 0
    expected: str = ""
    found: str = ""
    depth: int = 0

    def enter(self, pattern: Term) -> None:
        self.depth += 1

    def fail(self, pattern: Term, target: Term) -> None:
        if self.depth >= self.matched:
            self.matched, self.expected, self.found = self.depth, show(pattern, 2), show(target, 2)


@dataclass(frozen=True)
class Hit:
    """A pattern that holds for `term`, with its holes filled."""

    rule: Rule
    term: Term
    bound: Bound


@dataclass
class Matcher:
    """Matches patterns in one view."""

    view: View
    trace: Trace | None = field(default=None)

    def match(self, pattern: Term, target: Term, bound: Bound | None = None) -> Iterator[Bound]:
        """All ways to fill the pattern's holes so that it equals `target`."""
        yield from self._match(pattern, target, bound or {})

    def _match(self, pattern: Term, target: Term, bound: Bound) -> Iterator[Bound]:
        if pattern.op == VARIABLE:
            yield from self._hole(pattern.tag, target, bound)
        elif pattern.op == NUMBER:
            if target.op == NUMBER and close(pattern.coefficient, target.coefficient):
                yield bound
        elif pattern.op == NAMED:
            for inner in self._match(pattern.args[0], target, bound):
                yield {**inner, pattern.attributes["name"]: target}
        elif pattern.op == PRODUCT:
            yield from self._product(pattern, target, bound)
        elif pattern.op == SUM:
            yield from self._sum(pattern, target, bound)
        else:
            yield from self._operation(pattern, target, bound)

    def _fail(self, pattern: Term, target: Term) -> None:
        if self.trace is not None:
            self.trace.fail(pattern, target)

    def _hole(self, hole: Var | Scalar, target: Term, bound: Bound) -> Iterator[Bound]:
        if isinstance(hole, Scalar):
            if target.op == NUMBER and (hole.name not in bound or close(bound[hole.name], target.coefficient)):
                yield {**bound, hole.name: bound.get(hole.name, target.coefficient)}
        elif hole.name in bound:
            if bound[hole.name] is target:
                yield bound
        elif not (hole.constant or hole.computed) or self._is_constant(target) == hole.constant:
            yield {**bound, hole.name: target}

    def _is_constant(self, target: Term) -> bool:
        """Whether it is a constant of the graph, or made of such alone."""
        return bool(sources(self.view, target))

    def _operation(self, pattern: Term, target: Term, bound: Bound) -> Iterator[Bound]:
        if pattern.op != target.op or len(pattern.args) != len(target.args):
            self._fail(pattern, target)
            return
        if self.trace is not None:
            self.trace.enter(pattern)
        for args, attributes in self._forms(target):
            with_attributes = _match_attributes(pattern.attributes, attributes, bound)
            if with_attributes is None:
                self._fail(pattern, target)
                continue
            yield from self._all(list(zip(pattern.args, args, strict=True)), with_attributes)
        if self.trace is not None:
            self.trace.depth -= 1

    def _forms(self, target: Term) -> Iterator[tuple[tuple[Term, ...], Mapping[str, Any]]]:
        """The ways to write an operation: operands swapped, or a norm of a multiple of what it is a norm of."""
        if target.op in NORMS:  # norm(x, epsilon) = norm(f x, f^2 epsilon); the algebra keeps f out of x
            for factor in (f for f in self.view.multiples(target.args[0]) if f > 0):  # the norm of -x is another one
                epsilon = target.attributes["epsilon"] * factor * factor
                yield (self.view.algebra.scale(target.args[0], factor),), {**target.attributes, "epsilon": epsilon}
            return
        yield target.args, target.attributes
        if target.op in COMMUTATIVE and len(target.args) == 2:
            yield target.args[::-1], target.attributes

    def _all(self, pairs: Sequence[tuple[Term, Term]], bound: Bound) -> Iterator[Bound]:
        if not pairs:
            yield bound
            return
        # known structure first: it fills the holes that the rest then checks
        first = next((i for i, (p, _) in enumerate(pairs) if p.op != VARIABLE), 0)
        (pattern, target), rest = pairs[first], [*pairs[:first], *pairs[first + 1 :]]
        for inner in self._match(pattern, target, bound):
            yield from self._all(rest, inner)

    # ---- products

    def _product(self, pattern: Term, target: Term, bound: Bound) -> Iterator[Bound]:
        coefficient, parts = product_of(target)
        structured = [(t, e) for t, e in pattern.parts if t.op != VARIABLE]
        holes = [(t.tag, e) for t, e in pattern.parts if t.op == VARIABLE]
        for inner, left in self._place_factors(structured, dict(parts), bound):
            yield from self._product_holes(holes, coefficient / pattern.coefficient, left, inner)

    def _place_factors(self, structured: Sequence[tuple[Term, float]], parts: Parts, bound: Bound) -> Iterator[tuple[Bound, Parts]]:
        if not structured:
            yield bound, parts
            return
        (pattern, exponent), *rest = structured
        candidates = [t for t, e in parts.items() if e == exponent and may_match(pattern, t)]
        if not candidates and parts:
            self._fail(pattern, next(iter(parts)))
        for candidate in candidates:
            left = {t: e for t, e in parts.items() if t is not candidate}
            for inner in self._match(pattern, candidate, bound):
                yield from self._place_factors(rest, left, inner)

    def _product_holes(self, holes: Sequence[tuple[Var | Scalar, float]], coefficient: float, left: Parts, bound: Bound) -> Iterator[Bound]:
        """Share what is left of a product among its holes; `coefficient` is what the number holes must make up."""
        open_holes: list[tuple[Var, float]] = []
        open_scalars: list[tuple[Scalar, float]] = []
        for hole, exponent in holes:
            if hole.name not in bound:
                if isinstance(hole, Scalar):
                    open_scalars.append((hole, exponent))
                else:
                    open_holes.append((hole, exponent))
                continue
            known = bound[hole.name]
            factor, parts = (known, ()) if isinstance(hole, Scalar) else product_of(known)
            coefficient /= factor**exponent
            taken = _take(left, {t: e * exponent for t, e in parts})
            if taken is None:
                return
            left = taken
        yield from self._open_product_holes(open_holes, open_scalars, coefficient, left, bound)

    def _open_product_holes(
        self, holes: list[tuple[Var, float]], scalars: list[tuple[Scalar, float]], coefficient: float, left: Parts, bound: Bound
    ) -> Iterator[Bound]:
        if scalars:
            (scalar, exponent), *more = scalars
            if more or exponent not in (1.0, -1.0):
                return
            bound = {**bound, scalar.name: coefficient**exponent}
            coefficient = 1.0
        if not holes:
            if not left and close(coefficient, 1.0):
                yield bound
            return
        for shares in _divide(left, len(holes)):
            factors = [coefficient] + [1.0] * (len(holes) - 1)
            terms = [self._share(share, e, factor) for share, (_, e), factor in zip(shares, holes, factors, strict=True)]
            if any(t is None for t in terms):
                continue
            yield from self._all([(self._variable(h), t) for (h, _), t in zip(holes, terms, strict=True) if t is not None], bound)

    def _share(self, share: Parts, exponent: float, coefficient: float) -> Term | None:
        """The term whose `exponent`-th power is coefficient * share."""
        if exponent != 1 and (coefficient != 1 or any((e / exponent) != int(e / exponent) for e in share.values())):
            return None
        return self.view.algebra.product(coefficient, [(t, e / exponent) for t, e in share.items()])

    def _variable(self, hole: Var) -> Term:
        return Term(VARIABLE, tag=hole)

    # ---- sums

    def _sum(self, pattern: Term, target: Term, bound: Bound) -> Iterator[Bound]:
        offset, parts = _sum_parts(target)
        if len(parts) < 2 and not offset:
            self._fail(pattern, target)
            return
        structured = sorted(((t, c) for t, c in pattern.parts if t.op != VARIABLE), key=lambda part: -_size(part[0]))
        holes = [(t.tag, c) for t, c in pattern.parts if t.op == VARIABLE]
        for inner, left in self._place_terms(structured, parts, bound):
            yield from self._sum_holes(holes, offset, pattern.coefficient, left, inner)

    def _place_terms(self, structured: Sequence[tuple[Term, float]], parts: Parts, bound: Bound) -> Iterator[tuple[Bound, Parts]]:
        if not structured:
            yield bound, parts
            return
        (pattern, weight), *rest = structured
        candidates = [(t, c) for t, c in parts.items() if may_match(pattern, t)]
        if not candidates and parts:
            self._fail(pattern, next(iter(parts)))
        for candidate, have in candidates:
            ratio = have / weight
            term = candidate if close(ratio, 1.0, 1e-6) else self.view.algebra.scale(candidate, ratio)
            left = {t: c for t, c in parts.items() if t is not candidate}
            for inner in self._match(pattern, term, bound):
                yield from self._place_terms(rest, left, inner)

    def _sum_holes(
        self, holes: Sequence[tuple[Var | Scalar, float]], offset: float, constant: float, left: Parts, bound: Bound
    ) -> Iterator[Bound]:
        open_holes: list[tuple[Var, float]] = []
        open_scalars: list[tuple[Scalar, float]] = []
        wanted = constant  # what the offset must be, of all that is known
        for hole, weight in holes:
            if hole.name not in bound:
                if isinstance(hole, Scalar):
                    open_scalars.append((hole, weight))
                else:
                    open_holes.append((hole, weight))
                continue
            known = bound[hole.name]
            if isinstance(hole, Scalar):
                wanted += weight * known
                continue
            factor, atoms = product_of(known)
            taken = _take(left, {self.view.algebra.product(1.0, atoms): factor * weight}, weights=True)
            if taken is None:  # not one addend: those that it is the sum of
                extra, parts = _sum_parts(known)
                wanted += weight * extra
                taken = _take(left, {t: c * weight for t, c in parts.items()}, weights=True)
            if taken is None:
                return
            left = taken
        missing = 0.0 if close(offset, wanted, 1e-6 if open_holes or open_scalars else TOLERANCE) else offset - wanted
        yield from self._open_sum_holes(open_holes, open_scalars, missing, left, bound)

    def _open_sum_holes(
        self, holes: list[tuple[Var, float]], scalars: list[tuple[Scalar, float]], missing: float, left: Parts, bound: Bound
    ) -> Iterator[Bound]:
        if scalars:
            (scalar, weight), *more = scalars
            if more or not missing:
                return
            bound, missing = {**bound, scalar.name: missing / weight}, 0.0
        if not holes:
            if not left and missing == 0:
                yield bound
            return
        for shares in _divide(left, len(holes)):
            terms = []
            for position, (share, (_, weight)) in enumerate(zip(shares, holes, strict=True)):
                extra = missing / weight if position == 0 else 0.0
                terms.append(self.view.algebra.sum(extra, [(t, c / weight) for t, c in share.items()]))
            yield from self._all([(self._variable(h), t) for (h, _), t in zip(holes, terms, strict=True)], bound)


def _match_attributes(pattern: Mapping[str, Any], target: Mapping[str, Any], bound: Bound) -> Bound | None:
    if pattern.keys() != target.keys():
        return None
    for name, wanted in pattern.items():
        have = target[name]
        if isinstance(wanted, Scalar):
            if wanted.name in bound and bound[wanted.name] != have:
                return None
            bound = {**bound, wanted.name: have}
        elif isinstance(wanted, float) and isinstance(have, float):
            if not close(wanted, have):
                return None
        elif wanted != have:
            return None
    return bound


def _sum_parts(term: Term) -> tuple[float, Parts]:
    """A term as offset and weighted parts; the factor in front of a sum goes to each of them."""
    factor, parts = product_of(term)
    if not parts:
        return factor, {}
    if len(parts) == 1 and parts[0][0].op == SUM and parts[0][1] == 1:
        total = parts[0][0]
        return factor * total.coefficient, {t: c * factor for t, c in total.parts}
    return 0.0, {term: 1.0}


def _take(parts: Parts, wanted: Mapping[Term, float], *, weights: bool = False) -> Parts | None:
    """`parts` less `wanted`; None when something wanted is not there (in full, for weights)."""
    left = dict(parts)
    for term, number in wanted.items():
        have = left.pop(term, 0.0)
        if have == 0 or (weights and not close(have, number, 1e-6)) or have / number < 1 and not weights:
            return None
        if not weights and have != number:
            left[term] = have - number
    return left


def _divide(parts: Parts, count: int) -> Iterator[list[Parts]]:
    """All ways to share parts among `count` holes so that each gets at least one."""
    if count == 1:
        if parts:
            yield [parts]
        return
    if not count <= len(parts) <= MAX_SPLIT:
        return
    terms = list(parts.items())
    for owners in itertools.product(range(count), repeat=len(terms)):
        if len(set(owners)) == count:
            yield [{t: n for (t, n), o in zip(terms, owners, strict=True) if o == hole} for hole in range(count)]


def may_match(pattern: Term, target: Term) -> bool:
    """Whether the outermost operations agree; cheap, to skip most pairs."""
    if pattern.op == NAMED:
        return may_match(pattern.args[0], target)
    if pattern.op == VARIABLE or pattern.op == target.op:
        return True
    if pattern.op == SUM:
        return target.op == PRODUCT and len(target.parts) == 1 and target.parts[0][0].op == SUM
    return pattern.op == PRODUCT and target.op != NUMBER


Test = Callable[[Term], bool]


@cache
def outline(pattern: Term, depth: int = 3) -> Test | None:
    """A test of whether a term's operations agree with the pattern's some levels down; None where every term would pass.

    Only where one order of operands can be meant: it is there to skip most pairs of patterns and terms.
    """
    if pattern.op == NAMED:
        return outline(pattern.args[0], depth)
    if pattern.op == VARIABLE:
        return None
    if depth == 0 or pattern.op in (NUMBER, PRODUCT, SUM) or pattern.op in COMMUTATIVE or pattern.op in NORMS:
        return partial(may_match, pattern)
    wanted, count = pattern.op, len(pattern.args)
    inner = [(i, test) for i, arg in enumerate(pattern.args) if (test := outline(arg, depth - 1)) is not None]

    def agrees(target: Term) -> bool:
        if target.op != wanted or len(target.args) != count:
            return False
        for i, test in inner:  # noqa: SIM110  # all() of a generator takes twice as long, and this runs most of all
            if not test(target.args[i]):
                return False
        return True

    return agrees


# ---- where to look


def anchors(pattern: Term) -> tuple[str, str | None]:
    """(kind of the root, what must be inside: an operation among the parts, or "0:Softmax" for the first operand)."""
    if pattern.op == NAMED:
        return anchors(pattern.args[0])
    if pattern.op in COMMUTATIVE:
        return pattern.op, None
    if pattern.op not in (PRODUCT, SUM):
        structured = ((i, _anchor_of(a)) for i, a in enumerate(pattern.args))
        return pattern.op, next((f"{i}:{op}" for i, op in structured if op not in (VARIABLE, NUMBER, PRODUCT, SUM)), None)
    inner = [_anchor_of(t) for t, _ in pattern.parts if t.op not in (VARIABLE, NUMBER)]
    inner.sort(key=lambda op: op in (SUM, PRODUCT))
    return pattern.op, inner[0] if inner else None


def _anchor_of(term: Term) -> str:
    return _anchor_of(term.args[0]) if term.op == NAMED else term.op


def keys(term: Term) -> Iterator[tuple[str, str | None]]:
    """Every `anchors` value under which a pattern may match this term."""
    yield term.op, None
    for i, arg in enumerate(term.args):
        yield term.op, f"{i}:{arg.op}"
    if term.op in (PRODUCT, SUM):
        for part in {t.op for t, _ in term.parts}:
            yield term.op, part
        if term.op == SUM and any(t.op != PRODUCT for t, _ in term.parts):
            yield SUM, PRODUCT
    elif term.op not in (NUMBER, LEAF):
        yield PRODUCT, term.op
        yield PRODUCT, None
    if term.op == PRODUCT and len(term.parts) == 1 and term.parts[0][0].op == SUM:  # a factor in front of a sum
        yield from keys(term.parts[0][0])


def find(view: View, rules: Sequence[Rule]) -> Iterator[Hit]:
    """All places in a view where a rule's pattern holds. A rule's alternatives are tried most specific first."""
    table: dict[tuple[str, str | None], list[tuple[Rule, int, Term, Test | None]]] = defaultdict(list)
    for rule in rules:
        for position, choice in enumerate(rule.choices):
            table[anchors(choice.term)].append((rule, position, choice.term, outline(choice.term)))
    matcher = Matcher(view)
    for term in [t for t, values in view.values.items() if any(v.producer is not None for v in values)]:
        seen: set[tuple[str, int]] = set()
        for key in keys(term):
            for rule, position, pattern, test in table.get(key, ()):
                if (test is not None and not test(term)) or (rule.name, position) in seen:
                    continue
                seen.add((rule.name, position))
                for bound in matcher.match(pattern, term):
                    yield Hit(rule, term, bound)


def progress(view: View, pattern: Term, target: Term) -> Trace:
    """How far a pattern gets at `target`, for explaining near misses."""
    trace = Trace(size=_size(pattern))
    for _ in Matcher(view, trace).match(pattern, target):
        break
    return trace


@cache
def _size(pattern: Term) -> int:
    own = 0 if pattern.op in (VARIABLE, NUMBER, NAMED) else 1
    return own + sum(map(_size, pattern.args)) + sum(_size(t) for t, _ in pattern.parts)
