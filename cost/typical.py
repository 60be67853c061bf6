"""Sizes that stand for symbolic dims when the caller gives none, by the names that exporters write."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """The smallest, the usual and the largest size that a dim is expected to take."""

    low: int
    typical: int
    high: int


OTHER = Span(1, 128, 2048)

# The first pattern that is found in the name, in lower case, decides.
SPANS: tuple[tuple[str, Span], ...] = (
    (r"batch|^bs$|^n$|^b$", Span(1, 1, 32)),
    (r"beam", Span(1, 4, 8)),
    (r"total|(past|cache).*\+|\+.*(past|cache)|kv_len", Span(2, 256, 4096)),
    (r"past|cache|history", Span(0, 128, 2048)),
    (r"audio|sample|waveform", Span(1600, 16000, 480000)),
    (r"frame|feature|mel", Span(100, 1000, 3000)),
    (r"seq|token|length|^len|text|time|^s$|^t$|^l$", Span(1, 128, 2048)),
    (r"height|width|^h$|^w$|spatial", Span(16, 64, 1024)),
    (r"latent", Span(4, 4, 16)),
    (r"channel|^c$", Span(1, 3, 4)),
    (r"head", Span(1, 12, 64)),
    (r"class|label|choice", Span(2, 10, 1000)),
    (r"vocab", Span(1000, 32000, 256000)),
)


def span(dim_name: str) -> Span:
    """The sizes that a dim of that name is expected to take."""
    name = dim_name.lower()
    return next((known for pattern, known in SPANS if re.search(pattern, name)), OTHER)


def typical(dim_name: str) -> int:
    """The size to decide at: 1 for a batch, 128 for a sequence, 128 for what a cache holds, ..."""
    return span(dim_name).typical
