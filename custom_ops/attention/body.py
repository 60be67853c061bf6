"""What Attention means, in standard ONNX ops. All of it in float, rounded once at the end."""

from __future__ import annotations

import math

from onnxfuse.op import Instance
from onnxfuse.reference import Reference

BATCH, HEADS, SEQ, SIZE = range(4)  # the axes of [batch, heads, seq, size]
DEFAULT_SCALE = math.inf  # no softmax means anything with it, where 0 would be a real scale
DIAGONALS = ("none", "top-left", "bottom-right")  # by the value of `causal`


def reference(instance: Instance) -> str:
    body = _Body(instance)
    q, k, v = body.operands()
    scores = body.scores(q, k)
    y = body.times_values(body.softmax(scores), scores, v)
    body.give("y", body.laid_out(y))
    return body.text


class _Body(Reference):
    """Statements by [batch, heads, seq, size] whatever the layouts are."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        self._shapes: dict[str, str] = {}  # of values whose shape was asked for

    def attribute(self, name: str) -> float:
        return float(self.instance.attributes[name])

    def int_of(self, name: str) -> int:
        return int(self.instance.attributes[name])

    def layout(self, name: str) -> str:
        return str(self.instance.attributes[f"{name}_layout"])

    def sizes(self, x: str, first: int, last: int | None = None) -> str:
        """The sizes of axes first to last of `x`, or of the first alone: an int64 vector, for Concat to make shapes of."""
        if x not in self._shapes:
            self._shapes[x] = self.op("Shape", x)
        return self.op("Slice", self._shapes[x], self.ints(first), self.ints((first if last is None else last) + 1))

    def reshape(self, x: str, *sizes: str) -> str:
        """Sizes of 0 are meant, where the opset can say so."""
        shape = self.op("Concat", *sizes, axis=0)
        return self.op("Reshape", x, shape, allowzero=1) if self.instance.opset >= 14 else self.op("Reshape", x, shape)

    def transpose(self, x: str, *order: int) -> str:
        return self.let(f"Transpose <perm = {list(order)}> ({x})")

    def minus_infinity(self) -> str:
        """ONNX text has no word for it."""
        return self.op("Log", self.number(0.0))

    def scalar_of(self, size: str) -> str:
        """A size as an int64 of rank 0."""
        return self.op("Reshape", size, self.let("Constant <value = int64[0] {}> ()"))

    def operands(self) -> tuple[str, str, str]:
        """q, k and v as [batch, heads, seq, size] in float, past and current keys joined; gives the presents."""
        is_packed = bool(self.instance.attributes["packed"])
        given = self._unpacked() if is_packed else ("q", "k", "v")
        heads = self.int_of("q_num_heads"), *[self.int_of("kv_num_heads") or self.int_of("q_num_heads")] * 2
        by_head = [self._by_head(x, "BSHD" if is_packed else self.layout(n), h) for n, x, h in zip("qkv", given, heads, strict=True)]
        keys, values = (self._joined(*pair) for pair in zip(("key", "value"), by_head[1:], strict=True))
        return self.widened(by_head[0]), self.widened(keys), self.widened(values)

    def widened(self, x: str) -> str:
        return x if self.type == self.sum_type else self.cast(x, self.sum_type)

    def _unpacked(self) -> tuple[str, str, str]:
        """q, k, v as [batch, seq, heads, size] from one [batch, seq, (q_heads + 2 kv_heads) size]."""
        q_heads = self.int_of("q_num_heads")
        kv_heads = self.int_of("kv_num_heads") or q_heads
        x = self._split_heads("q", q_heads + 2 * kv_heads)
        ends = (0, q_heads, q_heads + kv_heads, q_heads + 2 * kv_heads)
        q, k, v = (self.op("Slice", x, self.ints(a), self.ints(b), self.ints(2)) for a, b in zip(ends, ends[1:], strict=False))
        return q, k, v

    def _split_heads(self, x: str, heads: int) -> str:
        return self.reshape(x, self.sizes(x, 0, 1), self.ints(heads), self.op("Div", self.sizes(x, 2), self.ints(heads)))

    def _by_head(self, x: str, layout: str, heads: int) -> str:
        if layout == "BSE":
            return self.transpose(self._split_heads(x, heads), 0, 2, 1, 3)
        return x if layout == "BHSD" else self.transpose(x, 0, 2, 1, 3) if layout == "BSHD" else self.transpose(x, 0, 1, 3, 2)

    def _joined(self, name: str, current: str) -> str:
        past, present = f"past_{name}", f"present_{name}"
        whole = self.op("Concat", past, current, axis=SEQ) if self.has(past) else current
        if present in self.instance.outputs:
            self.let_output(present, whole)
        return whole

    def let_output(self, output: str, value: str) -> None:
        self._statements.append((output, f"Identity ({value})"))

    def scores(self, q: str, k: str) -> str:
        """[batch, q_heads, queries, keys]: scaled, capped, masked."""
        products = self.op("MatMul", self._grouped(q, k), self.transpose(k, 0, 1, 3, 2))
        s = products if self._is_ungrouped() else self.reshape(products, self.sizes(q, BATCH, SEQ), self.sizes(k, SEQ))
        s = self.op("Mul", s, self._scale(q))
        if cap := self.attribute("softcap"):
            s = self.op("Mul", self.op("Tanh", self.op("Div", s, self.number(cap))), self.number(cap))
        return self._within_bounds(self._masked(s))

    def _is_ungrouped(self) -> bool:
        q_heads, kv_heads = self.int_of("q_num_heads"), self.int_of("kv_num_heads")
        return q_heads > 0 and kv_heads in (0, q_heads)

    def _grouped(self, x: str, k: str) -> str:
        """The queries, or probabilities, of heads that share keys as more rows of one: [batch, kv_heads, rows, size]."""
        if self._is_ungrouped():
            return x
        kv_heads, rows = self.sizes(k, HEADS), self.op("Mul", self.sizes(x, HEADS), self.sizes(x, SEQ))
        # No heads at all make no rows either, so what divides may be 1 then.
        divisor = self.op("Add", kv_heads, self.cast(self.op("Equal", kv_heads, self.ints(0)), "int64"))
        return self.reshape(x, self.sizes(x, BATCH), kv_heads, self.op("Div", rows, divisor), self.sizes(x, SIZE))

    def _scale(self, q: str) -> str:
        if self.attribute("scale") != DEFAULT_SCALE:
            return self.number(self.attribute("scale"))
        return self.op("Div", self.number(1.0), self.op("Sqrt", self.cast(self.sizes(q, SIZE), self.sum_type)))

    def _masked(self, s: str) -> str:
        if not self.has("mask"):
            return s
        if self.instance.types["M"] == "bool":
            replacement = self.attribute("mask_value")
            return self.op("Where", "mask", s, self.number(replacement) if math.isfinite(replacement) else self.minus_infinity())
        return self.op("Add", s, "mask" if self.instance.types["M"] == self.sum_type else self.cast("mask", self.sum_type))

    def _within_bounds(self, s: str) -> str:
        """-inf where the key lies past the diagonal (causal), or further from it than the window."""
        causal, left, right = self.int_of("causal"), self.int_of("window_left"), self.int_of("window_right")
        right = 0 if causal else right
        if left < 0 and right < 0:
            return s
        queries, keys = self.sizes(s, SEQ), self.sizes(s, SIZE)
        zero, one = self.let("Constant <value = int64 {0}> ()"), self.let("Constant <value = int64 {1}> ()")
        rows = self.unsqueeze_last(self.op("Range", zero, self.scalar_of(queries), one))
        columns = self.op("Range", zero, self.scalar_of(keys), one)
        beyond = self.op("Sub", columns, rows)  # how far right of the top-left diagonal
        if DIAGONALS[causal] == "bottom-right":
            beyond = self.op("Sub", beyond, self.op("Sub", keys, queries))
        conditions = [self.op("Less", beyond, self.ints(right + 1))] if right >= 0 else []
        conditions += [self.op("Less", self.ints(-left - 1), beyond)] if left >= 0 else []
        seen = conditions[0] if len(conditions) == 1 else self.op("And", *conditions)
        return self.op("Where", seen, s, self.minus_infinity())

    def softmax(self, s: str) -> str:
        p = self._sunk(s) if self.has("sink") else self.op("Softmax", s, axis=-1)
        return self.op("Where", self.op("IsNaN", p), self.number(0.0), p) if self.int_of("zero_masked_rows") else p

    def _sunk(self, s: str) -> str:
        """The softmax of a row and its head's sink, less the sink's part."""
        by_head = self.reshape(self.widened("sink"), self.ints(1), self.sizes(s, HEADS), self.ints(1, 1))
        sinks = self.op("Expand", by_head, self.op("Concat", self.sizes(s, BATCH, SEQ), self.ints(1), axis=0))
        p = self.op("Softmax", self.op("Concat", s, sinks, axis=-1), axis=-1)
        return self.op("Slice", p, self.ints(0), self.sizes(s, SIZE), self.ints(SIZE))

    def times_values(self, p: str, scores: str, v: str) -> str:
        """[batch, q_heads, queries, value size]."""
        y = self.op("MatMul", self._grouped(p, v), v)
        return y if self._is_ungrouped() else self.reshape(y, self.sizes(scores, BATCH, SEQ), self.sizes(v, SIZE))

    def laid_out(self, y: str) -> str:
        layout = self.layout("y")
        if layout == "BHSD":
            return y
        y = self.transpose(y, 0, 2, 1, 3)
        if layout == "BSHD":
            return y
        return self.reshape(y, self.sizes(y, 0, 1), self.op("Mul", self.sizes(y, 2), self.sizes(y, 3)))
