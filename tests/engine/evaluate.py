"""What a term is worth: its numbers from those of its leaves, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxfuse.term import LEAF, NUMBER, PRODUCT, SUM, VARIABLE, Term

Array = np.ndarray[Any, Any]
_erf = np.vectorize(math.erf, otypes=[np.float64])


def evaluate(term: Term, leaves: Mapping[Any, Any]) -> Array:
    """The value of `term` where its leaves (by tag) have these values."""
    if term.op == NUMBER:
        return np.asarray(term.coefficient, np.float64)
    if term.op in (LEAF, VARIABLE):
        return np.asarray(leaves[term.tag], np.float64)
    with np.errstate(all="ignore"):
        if term.op == PRODUCT:
            return np.asarray(math.prod((evaluate(t, leaves) ** e for t, e in term.parts), start=term.coefficient))
        if term.op == SUM:
            return np.asarray(sum((evaluate(t, leaves) * c for t, c in term.parts), start=term.coefficient))
        return np.asarray(OPERATIONS[term.op](term.attributes, *(evaluate(a, leaves) for a in term.args)))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def gelu(x: Array, approximate: str) -> Array:
    if approximate == "tanh":
        return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x / 2 * (1 + _erf(x / math.sqrt(2)))


def _mean(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    return np.asarray(x.mean(axis=axes, keepdims=keepdims))


def rms_norm(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    return np.asarray(x / np.sqrt(_mean(x**2, axes, True) + epsilon))


def softmax(x: Array, axis: int) -> Array:
    raised = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(raised / raised.sum(axis=axis, keepdims=True))


Attributes = Mapping[str, Any]
OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "Group": lambda a, x: x,
    "Add": lambda a, x, y: x + y,
    "Mul": lambda a, x, y: x * y,
    "Div": lambda a, x, y: x / y,
    "Pow": lambda a, x, y: x**y,
    "Erf": lambda a, x: _erf(x),
    "Exp": lambda a, x: np.exp(x),
    "Log": lambda a, x: np.log(x),
    "Tanh": lambda a, x: np.tanh(x),
    "Sigmoid": lambda a, x: sigmoid(x),
    "Softplus": lambda a, x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0),
    "Relu": lambda a, x: np.maximum(x, 0),
    "Clip": lambda a, x: np.clip(x, a["min"], a["max"]),
    "HardSigmoid": lambda a, x: np.clip(a["alpha"] * x + a["beta"], 0, 1),
    "Gelu": lambda a, x: gelu(x, a["approximate"]),
    "Swish": lambda a, x: x * sigmoid(a["alpha"] * x),
    "Mish": lambda a, x: x * np.tanh(np.log1p(np.exp(x))),
    "HardSwish": lambda a, x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Mean": lambda a, x: _mean(x, a["axes"], a["keepdims"]),
    "ReduceSum": lambda a, x: x.sum(axis=a["axes"], keepdims=a["keepdims"]),
    "ReduceMax": lambda a, x: x.max(axis=a["axes"], keepdims=a["keepdims"]),
    "RMSNormalization": lambda a, x: rms_norm(x, a["axes"], a["epsilon"]),
    "LayerNormalization": lambda a, x: rms_norm(x - _mean(x, a["axes"], True), a["axes"], a["epsilon"]),
    "Softmax": lambda a, x: softmax(x, a["axis"]),
    "Where": lambda a, c, x, y: np.where(c != 0, x, y),
    "Not": lambda a, x: (x == 0).astype(np.float64),
    "NanToZero": lambda a, x: np.where(np.isnan(x), 0.0, x),
}
