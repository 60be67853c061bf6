"""Sizes that are not known yet: integer polynomials over named symbols, equal when they are written out equal.

A size is a `Dim`: an int, or an `Expr` when a symbol is in it. An expression is kept written out as a sum of
products, so `(past + seq) * 2` and `seq * 2 + 2 * past` are the same object to `==`, `hash` and `str`. What has no
such form (an inexact division, a maximum) becomes an atom of the sum, equal to another atom of the same make.

Symbols stand for sizes, so they are integers of at least 0. A quotient by a symbol is meant where it is not 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import TypeAlias, TypeVar, Union

from onnxfuse.errors import ShapeError

Dim: TypeAlias = Union[int, "Expr"]
_Monomial: TypeAlias = "tuple[_Atom, ...]"  # sorted by `_Atom.order`, repeated for powers; empty: the constant term
_Terms: TypeAlias = "dict[_Monomial, int]"

T = TypeVar("T")
SIZE_LIMIT = 128  # atoms in one expression; beyond it an unknown stands for the rest, so that all stays linear


class _Atom:
    """A factor that has no parts for arithmetic: a symbol, or an operation on expressions."""

    __slots__ = ("args", "is_nonnegative", "kind", "order", "size", "text", "token")
    size: int

    def __init__(self, kind: str, text: str, args: tuple[Dim, ...], token: object = None, *, is_nonnegative: bool = True) -> None:
        self.kind = kind
        self.text = text
        self.args = args
        self.token = token  # tells fresh symbols apart; kept, or its id could be that of another one
        self.is_nonnegative = is_nonnegative
        self.size = 1 + sum(a.size for a in args if isinstance(a, Expr))
        # the hash breaks ties of text in a way that depends on the make alone
        self.order = (text, kind, hash((kind, text, args, token)), id(token))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Atom) and self.order == other.order and self.args == other.args)

    def __hash__(self) -> int:
        return self.order[2]


class Expr:
    """A size with at least one symbol in it. Made by `symbol`, `fresh` and arithmetic; never changed."""

    __slots__ = ("_hash", "size", "terms")

    def __init__(self, terms: _Terms) -> None:
        self.terms = terms
        self.size = sum(a.size for m in terms for a in m) + len(terms)
        self._hash = hash(frozenset(terms.items()))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Expr) and self._hash == other._hash and self.terms == other.terms)

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Dim) -> Dim:
        terms = dict(self.terms)
        for monomial, factor in _terms(other).items():
            terms[monomial] = terms.get(monomial, 0) + factor
        return _collect(terms)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return Expr({m: -f for m, f in self.terms.items()})

    def __sub__(self, other: Dim) -> Dim:
        return self + -other

    def __rsub__(self, other: Dim) -> Dim:
        return -self + other

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            return _collect({m: f * other for m, f in self.terms.items()})
        terms: _Terms = {}
        if len(self.terms) * len(other.terms) > SIZE_LIMIT:
            return unknown("product")
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                monomial = _times(left, right)
                terms[monomial] = terms.get(monomial, 0) + a * b
        return _collect(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return _floor_divide(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return _floor_divide(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return self - other * (self // other)

    def __rmod__(self, other: Dim) -> Dim:
        return other - self * (other // self)

    def __str__(self) -> str:
        ordered = sorted(self.terms.items(), key=lambda t: (t[1] < 0, -len(t[0]), [a.order for a in t[0]]))
        text = "".join(_term_text(m, f) for m, f in ordered)
        return text.removeprefix("+")

    def __repr__(self) -> str:
        return f"Expr({self})"


def symbol(name: str) -> Expr:
    """The size that is called `name`; the same name is the same size."""
    return _expr(_Atom("symbol", name, ()))


def fresh(hint: str) -> Expr:
    """A size equal to no other, shown as `hint`. `symbols` does not list it and `substitute` leaves it."""
    return _expr(_Atom("fresh", hint, (), object()))


def unknown(hint: str) -> Expr:
    """A number equal to no other, of any sign: no size, but what a run may compute a size from."""
    return _expr(_Atom("fresh", hint, (), object(), is_nonnegative=False))


def product(dims: Iterable[Dim]) -> Dim:
    """How many elements a shape has."""
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result


def divide(a: Dim, b: Dim) -> Dim | None:
    """The quotient a/b if it is provably whole wherever b is not 0, else None."""
    if b == 0:
        return None
    if a == b:
        return 1
    quotient = _exact(_terms(a), _terms(b))
    return None if quotient is None else _collect(quotient)


def maximum(a: Dim, b: Dim) -> Dim:
    """The larger of two; one of them where that is provable."""
    if is_nonnegative(a - b):
        return a
    if is_nonnegative(b - a):
        return b
    return _commutative("max", a, b)


def minimum(a: Dim, b: Dim) -> Dim:
    """The smaller of two; one of them where that is provable."""
    if is_nonnegative(a - b):
        return b
    if is_nonnegative(b - a):
        return a
    return _commutative("min", a, b)


def broadcast(a: Dim, b: Dim) -> Dim:
    """The size of an axis that broadcasts a against b: the other one for a 1, a number above 1, else an atom.

    An axis cut to at most its size, x[:n], counts as whole against the whole: where it is shorter it does not fit
    (unless a single element meets one cut down to none).
    """
    if a == b or b == 1:
        return a
    if a == 1 or (isinstance(b, int) and b > 1):
        return b
    if isinstance(a, int) and a > 1:
        return a
    for one, other in ((a, b), (b, a)):
        if _is_cut(other, one):
            return one
    every = _alternatives(a) | _alternatives(b)
    args = tuple(sorted(every, key=lambda d: (str(d), hash(d))))
    return _atom("broadcast", f"broadcast({', '.join(map(str, args))})", args, is_nonnegative=all(map(is_nonnegative, args)))


def _alternatives(dim: Dim) -> set[Dim]:
    """The sizes that a broadcast size is made of."""
    atom = _sole_atom(dim)
    return set(atom.args) if atom is not None and atom.kind == "broadcast" else {dim}


def tail(dim: Dim, count: Dim) -> Dim:
    """How many elements x[-count:] takes of an axis of size `dim`, for a count of at least 0: all of them for 0."""
    if count == 0 or is_nonnegative(count - dim):
        return dim
    if is_nonnegative(count - 1):
        return minimum(dim, count)
    return _atom("tail", f"tail({dim}, {count})", (dim, count), is_nonnegative=True)


def substitute(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    """The same size with numbers for some symbols.

    Raises ShapeError where these numbers leave no size: a division by 0, or two sizes that do not broadcast.
    """
    if isinstance(dim, int):
        return dim
    result: Dim = 0
    for monomial, factor in dim.terms.items():
        part: Dim = factor
        for atom in monomial:
            part = part * _substitute_atom(atom, sizes)
        result = result + part
    return result


def spelled(dim: Dim, number: Callable[[int], T], symbol: Callable[[str], T], apply: Callable[[str, T, T], T]) -> T | None:
    """The size by steps: numbers and symbols put together by "+", "*", "//" (of nothing negative), "max" and "min".

    None where these do not do.
    """
    if isinstance(dim, int):
        return number(dim)
    total: T | None = None
    for monomial, factor in dim.terms.items():
        part = number(factor) if factor != 1 or not monomial else None
        for atom in monomial:
            made = _spelled_atom(atom, number, symbol, apply)
            if made is None:
                return None
            part = made if part is None else apply("*", part, made)
        assert part is not None
        total = part if total is None else apply("+", total, part)
    return total


def _spelled_atom(atom: _Atom, number: Callable[[int], T], symbol: Callable[[str], T], apply: Callable[[str, T, T], T]) -> T | None:
    if atom.kind == "symbol":
        return symbol(atom.text)
    if atom.kind not in ("max", "min", "//") or (atom.kind == "//" and not atom.is_nonnegative):
        return None
    made = [spelled(arg, number, symbol, apply) for arg in atom.args]
    known = [m for m in made if m is not None]
    return reduce(lambda a, b: apply(atom.kind, a, b), known) if len(known) == len(made) else None


def symbols(dim: Dim) -> set[str]:
    """Names of the symbols in a size, those inside its divisions and maxima too."""
    if isinstance(dim, int):
        return set()
    found: set[str] = set()
    for monomial in dim.terms:
        for atom in monomial:
            if atom.kind == "symbol":
                found.add(atom.text)
            for arg in atom.args:
                found |= symbols(arg)
    return found


def broadcasts(dim: Dim) -> Iterator[tuple[Dim, Dim]]:
    """The pairs of sizes that meet in a broadcast somewhere in `dim`: each pair is alike, or one of it is 1."""
    for monomial in _terms(dim):
        for atom in monomial:
            if atom.kind == "broadcast":
                yield from ((atom.args[0], other) for other in atom.args[1:])
            for arg in atom.args:
                yield from broadcasts(arg)


def is_named(dim: Dim) -> bool:
    """Whether numbers for its `symbols` make a number of it: no fresh symbol is in it."""
    return isinstance(dim, int) or all(a.kind != "fresh" and all(map(is_named, a.args)) for m in dim.terms for a in m)


def is_fresh(dim: Dim) -> bool:
    """Whether a size is one fresh symbol and nothing else."""
    atom = _sole_atom(dim)
    return atom is not None and atom.kind == "fresh"


def is_nonnegative(dim: Dim) -> bool:
    """Whether a size is provably at least 0 whatever its symbols are. False says nothing."""
    return _is_nonnegative_within(dim, depth=4)


def at_most(dim: Dim, bound: Dim, limit: int) -> Dim:
    """The same size, simplified by the knowledge that `bound` is at most `limit`: min(bound, limit) is bound."""
    if isinstance(dim, int):
        return dim
    result: Dim = 0
    for monomial, factor in dim.terms.items():
        part: Dim = factor
        for atom in monomial:
            part = part * _bound_atom(atom, bound, limit)
        result = result + part
    return result


def clamped(dim: Dim) -> tuple[Dim, int] | None:
    """(a, n) if the size is min(a, n) with a number n, else None."""
    atom = _sole_atom(dim)
    if atom is None or atom.kind != "min":
        return None
    a, n = sorted(atom.args, key=lambda d: isinstance(d, int))
    return (a, n) if isinstance(n, int) else None


def _is_cut(dim: Dim, whole: Dim) -> bool:
    """Whether dim is min(whole, n), or the last `whole` elements of at least as many."""
    atom = _sole_atom(dim)
    if atom is None or atom.kind not in ("min", "tail"):
        return False
    if atom.kind == "min":
        return whole in atom.args
    return atom.args[1] == whole and is_nonnegative(atom.args[0] - whole)


def _bound_atom(atom: _Atom, bound: Dim, limit: int) -> Dim:
    if atom.kind in ("symbol", "fresh"):
        return _expr(atom)
    pair = clamped(_expr(atom))
    if pair is not None and pair[1] >= limit and is_nonnegative(bound - pair[0]):
        return pair[0]
    return reduce(_OPERATIONS[atom.kind], (at_most(a, bound, limit) for a in atom.args))


def _is_bounded(dim: Expr, depth: int) -> bool:
    """Prove dim >= 0 by replacing one atom that stands alone in its term by a bound of it."""
    if depth == 0:
        return False
    for monomial, factor in dim.terms.items():
        if len(monomial) == 1 and monomial[0].kind in ("min", "max", "//", "tail"):
            atom = monomial[0]
            if _is_nonnegative_with(atom, factor, dim - factor * _expr(atom), depth - 1):
                return True
    return False


def _is_nonnegative_with(atom: _Atom, factor: int, rest: Dim, depth: int) -> bool:
    """Whether rest + factor * atom >= 0."""
    if atom.kind == "tail":
        return _is_nonnegative_within(rest + (factor * atom.args[0] if factor < 0 else 0), depth)
    if atom.kind == "//":
        top, n = atom.args
        if not isinstance(n, int):
            return False
        # (top - n + 1) / n <= top // n <= top / n
        return _is_nonnegative_within(n * rest + factor * (top - (n - 1 if factor > 0 else 0)), depth)
    # a minimum that counts positively is as small as any argument: all must do; negatively: one of them is enough
    enough = all if (atom.kind == "min") == (factor > 0) else any
    return enough(_is_nonnegative_within(rest + factor * a, depth) for a in atom.args)


def _is_nonnegative_within(dim: Dim, depth: int) -> bool:
    if isinstance(dim, int):
        return dim >= 0
    return all(f >= 0 and all(a.is_nonnegative for a in m) for m, f in dim.terms.items()) or _is_bounded(dim, depth)


def _expr(atom: _Atom) -> Expr:
    return Expr({(atom,): 1})


def _terms(dim: Dim) -> _Terms:
    if isinstance(dim, Expr):
        return dim.terms
    return {(): dim} if dim else {}


def _collect(terms: _Terms) -> Dim:
    kept = {m: f for m, f in terms.items() if f}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    result = Expr(kept)
    return result if result.size <= SIZE_LIMIT else unknown("sum")


def _times(a: _Monomial, b: _Monomial) -> _Monomial:
    if not a or not b:
        return a or b
    return tuple(sorted(a + b, key=lambda atom: atom.order))


def _sole_atom(dim: Dim) -> _Atom | None:
    if isinstance(dim, int) or len(dim.terms) != 1:
        return None
    ((monomial, factor),) = dim.terms.items()
    return monomial[0] if factor == 1 and len(monomial) == 1 else None


def _commutative(kind: str, a: Dim, b: Dim) -> Dim:
    """An atom of two operands whose order does not matter."""
    low, high = sorted((a, b), key=lambda d: (str(d), hash(d)))
    nonnegative = (any if kind == "max" else all)(is_nonnegative(d) for d in (a, b))
    return _atom(kind, f"{kind}({low}, {high})", (low, high), is_nonnegative=nonnegative)


def _atom(kind: str, text: str, args: tuple[Dim, ...], *, is_nonnegative: bool) -> Dim:
    atom = _Atom(kind, text, args, is_nonnegative=is_nonnegative)
    return _expr(atom) if atom.size <= SIZE_LIMIT else unknown(kind)


def _without(monomial: _Monomial, part: _Monomial) -> _Monomial | None:
    """monomial / part, or None where it is not whole."""
    rest = list(monomial)
    for atom in part:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _exact(a: _Terms, b: _Terms) -> _Terms | None:
    """Divide polynomials; None unless the remainder is 0."""
    lead = max(b, key=_degree)
    rest = dict(a)
    quotient: _Terms = {}
    while rest:
        top = max(rest, key=_degree)
        monomial = _without(top, lead)
        factor, remainder = divmod(rest[top], b[lead])
        if monomial is None or remainder or len(quotient) > SIZE_LIMIT:
            return None
        quotient[monomial] = factor
        for part, f in b.items():
            key = _times(monomial, part)
            rest[key] = rest.get(key, 0) - factor * f
            if not rest[key]:
                del rest[key]
    return quotient


def _degree(monomial: _Monomial) -> tuple[int, list[tuple[str, str, int, int]]]:
    return len(monomial), [a.order for a in monomial]


def _floor_divide(a: Dim, b: Dim) -> Dim:
    """Floor of a/b, canonical: whole multiples taken out, common factors gone, nested divisions merged."""
    if b == 0:
        raise ZeroDivisionError("a size is divided by 0")
    exact = divide(a, b)
    if exact is not None:
        return exact
    a, b = _reduce(a, b)
    if not isinstance(b, int):
        return _quotient_atom(a, b)
    if b < 0:
        a, b = -a, -b
    a, b = _merge_nested(a, b)
    whole = _collect({m: f // b for m, f in _terms(a).items()})
    rest, b = _reduce(_collect({m: f % b for m, f in _terms(a).items()}), b)
    return whole + (rest // b if isinstance(rest, int) else _quotient_atom(rest, b))


def _quotient_atom(a: Dim, b: Dim) -> Dim:
    nonnegative = is_nonnegative(a) and is_nonnegative(b)
    return _atom("//", f"{_factor_text(a)}//{_factor_text(b)}", (a, b), is_nonnegative=nonnegative)


def _merge_nested(a: Dim, b: int) -> tuple[Dim, int]:
    """(p//n + c)//b as (p + n*c)//(n*b), for numbers n and b."""
    if isinstance(a, Expr):
        for monomial, factor in a.terms.items():
            if factor == 1 and len(monomial) == 1 and monomial[0].kind == "//":
                inner, n = monomial[0].args
                if isinstance(n, int):
                    return _merge_nested(inner + n * (a - _expr(monomial[0])), n * b)
    return a, b


def _reduce(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """Numerator and denominator without their common number and common atoms."""
    top, bottom = _terms(a), _terms(b)
    if not top:
        return 0, 1
    number = math.gcd(*top.values(), *bottom.values())
    every = [*top, *bottom]
    common: _Monomial = ()
    for atom in min(every, key=len):
        if all(_without(m, (*common, atom)) is not None for m in every):
            common = (*common, atom)
    shared = {common: number}
    return _collect(_exact(top, shared) or {}), _collect(_exact(bottom, shared) or {})


def _substitute_atom(atom: _Atom, sizes: Mapping[str, int]) -> Dim:
    if atom.kind == "symbol":
        return sizes[atom.text] if atom.text in sizes else _expr(atom)
    if atom.kind == "fresh":
        return _expr(atom)
    args = [substitute(arg, sizes) for arg in atom.args]
    numbers = {a for a in args if isinstance(a, int)} - {1}
    if (atom.kind == "//" and args[1] == 0) or (atom.kind == "broadcast" and len(numbers) > 1):
        raise ShapeError(f"{atom.text} has no value for {dict(sizes)}: it becomes {atom.kind} of {args}. Choose other sizes")
    return reduce(_OPERATIONS[atom.kind], args)


def _factor_text(dim: Dim) -> str:
    return f"({dim})" if isinstance(dim, Expr) and _sole_symbol(dim) is None else str(dim)


def _sole_symbol(dim: Expr) -> str | None:
    atom = _sole_atom(dim)
    return atom.text if atom is not None and atom.kind != "//" else None


def _term_text(monomial: _Monomial, factor: int) -> str:
    parts = [f"({a.text})" if a.kind == "//" and (len(monomial) > 1 or factor != 1) else a.text for a in monomial]
    if abs(factor) != 1 or not parts:
        parts.insert(0, str(abs(factor)))
    return ("-" if factor < 0 else "+") + "*".join(parts)


_OPERATIONS: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "//": _floor_divide,
    "max": maximum,
    "min": minimum,
    "broadcast": broadcast,
    "tail": tail,
}
