"""Attention as exporters of less common models write it: fused, and every number kept."""

from __future__ import annotations

import pytest

from onnxfuse.ruletest import parse
from tests.engine.harness import assert_same_numbers, feed, fuse

QKV = "float[b,4,s,8] q, float[b,4,s,8] k, float[b,4,s,8] v"
TURNED, SCALED = "t = Transpose <perm = [0, 1, 3, 2]> (k)", "float sc = {0.35}"
END = "p = Softmax <axis = -1> (e)  y = MatMul(p, v)"
SPELLED = {
    "einsum by head": f"""g ({QKV}) => (float[b,4,s,8] y) {{
        d = Einsum <equation = "bhid,bhjd->bhij"> (q, k)  p = Softmax <axis = -1> (d)  y = Einsum <equation = "bhij, bhjd -> bhid"> (p, v)
    }}""",
    "einsum by row": """g (float[b,s,4,8] q, float[b,t,4,8] k, float[b,t,4,8] v) => (float[b,s,4,8] y) {
        d = Einsum <equation = "nqhd,nkhd->nhqk"> (q, k)  p = Softmax <axis = -1> (d)  y = Einsum <equation = "nhqk,nkhd->nqhd"> (p, v)
    }""",
    "einsum with the keys first": """g (float[b,s,4,8] q, float[b,t,4,8] k, float[b,t,4,8] v) => (float[b,s,4,8] y) {
        d = Einsum <equation = "nkhd,nqhd->nhqk"> (k, q)  p = Softmax <axis = -1> (d)  y = Einsum <equation = "nkhd,nhqk->nqhd"> (v, p)
    }""",
    "einsum of channels first": """g (float[b,8,s] q, float[b,8,t] k, float[b,8,t] v) => (float[b,8,s] y) {
        d = Einsum <equation = "bct,bcs->bts"> (q, k)  p = Softmax <axis = -1> (d)  y = Einsum <equation = "bts,bcs->bct"> (p, v)
    }""",
    "einsum of sequence first": """g (float[s,b,4,8] q, float[t,b,4,8] k, float[t,b,4,8] v) => (float[s,b,4,8] y) {
        d = Einsum <equation = "ibnd,jbnd->bnij"> (q, k)  p = Softmax <axis = -1> (d)  y = Einsum <equation = "bnij,jbnd->ibnd"> (p, v)
    }""",
    "scaled queries that are read again": f"""g ({QKV}, float[1,4,8,s] r) => (float[b,4,s,8] y) <{SCALED}> {{
        qs = Mul(q, sc)  {TURNED}  d = MatMul(qs, t)  c = MatMul(qs, r)  e = Add(d, c)  {END}
    }}""",
    "batch and heads in one axis, with a mask": """<opset_import: ["" : 18]>
    g (float[b,4,s,8] q4, float[b,4,s,8] k4, float[b,4,s,8] v4, float[b,1,1,s] m) => (float[b,4,s,8] y)
    <int64[1] four = {4}, int64[1] eight = {8}, float sc = {0.35}> {
        b = Shape <start = 0, end = 1> (q4)  s = Shape <start = 2, end = 3> (q4)  rows = Mul(b, four)
        to = Concat <axis = 0> (rows, s, eight)
        q = Reshape(q4, to)  k = Reshape(k4, to)  v = Reshape(v4, to)  t = Transpose <perm = [0, 2, 1]> (k)  d = MatMul(q, t)
        ds = Mul(d, sc)  full = Concat <axis = 0> (b, four, s, s)  m1 = Expand(m, full)  flat = Concat <axis = 0> (rows, s, s)
        m2 = Reshape(m1, flat)
        e = Add(m2, ds)  p = Softmax <axis = -1> (e)  z = MatMul(p, v)  back = Concat <axis = 0> (b, four, s, eight)  y = Reshape(z, back)
    }""",
    "a bias, then a mask that is worked out": f"""g ({QKV}, float[1,4,s,s] r, float[b,1,1,s] m) => (float[b,4,s,8] y)
    <{SCALED}, float c = {{-10000.0}}, float o = {{1.0}}> {{
        {TURNED}  d = MatMul(q, t)  ds = Mul(d, sc)  i = Sub(o, m)  j = Mul(i, c)  f = Add(ds, r)  e = Add(f, j)  {END}
    }}""",
    "masked by one, then by another": f"""g ({QKV}, bool[s,s] c, bool[b,1,1,s] m) => (float[b,4,s,8] y) <{SCALED}, float lo = {{-inf}}> {{
        {TURNED}  d = MatMul(q, t)  ds = Mul(d, sc)  w = Where(c, ds, lo)  e = Where(m, w, lo)  {END}
    }}""",
    "masked by either of two": f"""g ({QKV}, bool[s,s] c, bool[b,1,1,s] m) => (float[b,4,s,8] y) <{SCALED}, float lo = {{-10000.0}}> {{
        {TURNED}  d = MatMul(q, t)  ds = Mul(d, sc)  w = Where(c, lo, ds)  e = Where(m, lo, w)  {END}
    }}""",
    "transposed product": """g (float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,4] v) => (float[2,3,4,5] y) {
        t = Transpose <perm = [0, 1, 3, 2]> (k)  d = MatMul(q, t)  p = Softmax <axis = 3> (d)
        pt = Transpose <perm = [0, 1, 3, 2]> (p)  vt = Transpose <perm = [0, 1, 3, 2]> (v)  y = MatMul(vt, pt)
    }""",
}
KEPT = {
    "keys for one of a batch, repeated": (
        """g (float[b,4,s,8] q, float[1,4,t,8] k, float[1,4,t,8] v) => (float[b,4,s,8] y) {
            u = Transpose <perm = [0, 1, 3, 2]> (k)  d = MatMul(q, u)  p = Softmax <axis = -1> (d)  y = MatMul(p, v)
        }""",
        "q, k and v must have the same batch, none of them repeated; they have b, 1 and 1",
    ),
    "einsum that sums what the scores keep": (
        """g (float[2,4,5,8] q, float[2,4,7,8] k, float[2,4,7,8] v) => (float[2,5,8] y) {
            d = Einsum <equation = "bhid,bhjd->bhij"> (q, k)  p = Softmax <axis = -1> (d)  y = Einsum <equation = "bhij,bhjd->bid"> (p, v)
        }""",
        "",
    ),
}


@pytest.mark.parametrize("text", SPELLED.values(), ids=SPELLED)
def test_is_fused_and_keeps_its_numbers(text: str) -> None:
    model = parse(text)
    done = fuse(model, "attention")
    assert done.own == ["Attention"], done.reasons
    assert_same_numbers(model, done.model, feed(model, 1), *([] if "[2,3" in text else [feed(model, 2, s=3, b=3)]))


@pytest.mark.parametrize(("text", "why"), KEPT.values(), ids=KEPT)
def test_is_left(text: str, why: str) -> None:
    done = fuse(parse(text), "attention")
    assert done.own == [] and why in done.reasons


def test_reduction_to_one_number_is_reshaped() -> None:
    text = "g (float[b,s] x) => (float[1] y) <int64[1] one = {1}> { r = ReduceMax <keepdims = 0> (x)  y = Reshape(r, one) }"
    assert fuse(parse(text)).own == []
