"""Small models as ONNX text, one computation each, in the spelling of exporters."""

from __future__ import annotations

import numpy as np

from tests.engine.harness import GELU_CONSTANTS, gelu

LOWEST = float(np.finfo(np.float32).min)
ONES = "float root_half = {0.70710678}, float one = {1.0}, float half = {0.5}"

GELU = f"g (float[n,8] x) => (float[n,8] y) {GELU_CONSTANTS} {{ h = Sin(x) {gelu('h', 'y')} }}"
BIAS_GELU = f"""g (float[n,8] x) => (float[n,8] y) <float[8] b = {{1, 2, 3, 4, 5, 6, 7, 8}}, {ONES}> {{
  h = Add(x, b) {gelu("h", "y")}
}}"""
TANH_GELU = """g (float[n,8] x) => (float[n,8] y)
<float c = {0.044715}, float s = {0.7978845608}, float one = {1.0}, float half = {0.5}, float three = {3.0}> {
  a = Pow(x, three) b = Mul(a, c) d = Add(x, b) e = Mul(d, s) t = Tanh(e) u = Add(t, one) v = Mul(x, half) y = Mul(v, u)
}"""
SILU = "g (float[n,8] x) => (float[n,8] y) { s = Sigmoid(x) y = Mul(x, s) }"
SWIGLU = "g (float[n,8] x, float[n,8] u) => (float[n,8] y) { s = Sigmoid(x) a = Mul(x, s) y = Mul(a, u) }"
RMS = """g (float[n,8] x, float[8] w) => (float[n,8] y) <int64[1] l = {-1}, float e = {1e-5}> {
  q = Mul(x, x) m = ReduceMean(q, l) a = Add(m, e) r = Sqrt(a) d = Div(x, r) y = Mul(d, w)
}"""
BARE_RMS = """g (float[n,8] x) => (float[n,8] y) <int64[1] l = {-1}, float e = {1e-5}> {
  q = Mul(x, x) m = ReduceMean(q, l) a = Add(m, e) r = Sqrt(a) y = Div(x, r)
}"""
SKIP_NORM = """g (float[b,n,8] x, float[b,n,8] s, float[8] w, float[8] c) => (float[b,n,8] y, float[b,n,8] t) {
  t = Add(x, s) y = LayerNormalization(t, w, c)
}"""


def attention(
    score: str = "z = Identity(s)", inputs: str = "", constants: str = "", end: str = "y = MatMul(p, v)", y: str = "b,3,n,4"
) -> str:
    """softmax(q k' / 2) v over [batch, heads, seq, size]; `score` makes z of s, the scaled scores; `end` makes y of p and v."""
    return f"""g (float[b,3,n,4] q, float[b,3,m,4] k, float[b,3,m,4] v{inputs}) => (float[{y}] y) <float scale = {{0.5}}{constants}> {{
  kt = Transpose<perm = [0,1,3,2]>(k) c = MatMul(q, kt) s = Mul(c, scale) {score} p = Softmax<axis = -1>(z) {end}
}}"""


def masked(shape: str, constants: str = "", end: str = "y = MatMul(p, v)") -> str:
    """Attention with a mask that is added."""
    return attention("z = Add(s, m)", f", float[{shape}] m", constants, end)


def chosen(dropped: float) -> str:
    """Attention with scores of a number where the mask does not hold."""
    return attention("z = Where(keep, s, low)", ", bool[b,1,n,m] keep", f", float low = {{{dropped}}}")


ATTENTION = attention()
ROWS = attention(
    constants=", int64[3] row = {0, 0, 12}", y="b,n,12", end="o = MatMul(p, v) t = Transpose<perm = [0,2,1,3]>(o) y = Reshape(t, row)"
)
CLEARED = masked("1,1,n,m", ", float zero = {0.0}", "i = IsNaN(p) g0 = Where(i, zero, p) y = MatMul(g0, v)")
CAP = ", float cap = {2.0}"
CAPPED = attention("d = Div(s, cap) t = Tanh(d) z = Mul(t, cap)", constants=CAP)
CAPPED_MASK = attention("d = Div(s, cap) t = Tanh(d) u = Mul(t, cap) z = Add(u, m)", ", float[1,1,n,m] m", CAP)
TWICE_CHOSEN = f"""g (float[b,3,n,4] q, float[b,3,m,4] k, float[b,3,m,4] v, bool[b,1,n,m] keep) => (float[b,3,n,4] y, float[b,3,n,4] y2)
<float scale = {{0.5}}, float two = {{2.0}}, float low = {{{LOWEST}}}> {{
  kt = Transpose<perm = [0,1,3,2]>(k)
  c = MatMul(q, kt) s = Mul(c, scale) z = Where(keep, s, low) p = Softmax<axis = -1>(z) y = MatMul(p, v)
  c2 = MatMul(q, kt) s2 = Mul(c2, two) z2 = Where(keep, s2, low) p2 = Softmax<axis = -1>(z2) y2 = MatMul(p2, v)
}}"""
GROUPED = """g (float[b,4,n,8] q, float[b,2,m,8] k0, float[b,2,m,8] v0) => (float[b,4,n,8] y)
<float scale = {0.5}, int64[1] two = {2}, int64[5] times = {1, 1, 2, 1, 1}, int64[4] all = {0, 4, -1, 8}> {
  ku = Unsqueeze(k0, two) ke = Expand(ku, times) k = Reshape(ke, all)
  vu = Unsqueeze(v0, two) ve = Expand(vu, times) v = Reshape(ve, all)
  kt = Transpose<perm = [0,1,3,2]>(k) c = MatMul(q, kt) s = Mul(c, scale) p = Softmax<axis = -1>(s) y = MatMul(p, v)
}"""


PAST = """g (float[b,3,n,4] q, float[b,3,n,4] k0, float[b,3,n,4] v0, float[b,3,p,4] pk, float[b,3,p,4] pv) => (float[b,3,n,4] y)
<float scale = {0.5}> {
  k = Concat<axis = -2>(pk, k0) v = Concat<axis = -2>(pv, v0)
  kt = Transpose<perm = [0,1,3,2]>(k) c = MatMul(q, kt) s = Mul(c, scale) p = Softmax<axis = -1>(s) y = MatMul(p, v)
}"""
PAST_AND_PRESENT = PAST.replace("y)", "y, float[b,3,t,4] k, float[b,3,t,4] v)", 1)


def rotary(angles: str = "float[b,n,4] f", doubled: str = "ff = Concat<axis = -1>(f, f)") -> str:
    """x cos + rotate_half(x) sin, with tables of the angles `ff`."""
    return f"""g (float[b,3,n,8] x, {angles}) => (float[b,3,n,8] y)
<int64[1] one = {{1}}, int64[1] zero = {{0}}, int64[1] half = {{4}}, int64[1] end = {{8}}, int64[1] last = {{-1}}> {{
  {doubled} c = Cos(ff) s = Sin(ff) cos = Unsqueeze(c, one) sin = Unsqueeze(s, one)
  a = Slice(x, zero, half, last) d = Slice(x, half, end, last) e = Neg(d) r = Concat<axis = -1>(e, a)
  u = Mul(x, cos) w = Mul(r, sin) y = Add(u, w)
}}"""


def of_half_type(text: str) -> str:
    """The same in float16."""
    return text.replace("float[", "float16[").replace("float ", "float16 ")
