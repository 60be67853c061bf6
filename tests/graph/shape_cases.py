"""Graphs that use every op with a shape rule, in ONNX text. Names in the shapes of inputs are sizes; outputs have no types."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """`text` is a graph without its name: (inputs) => (outputs) <constants> { nodes }."""

    text: str
    opset: int = 20
    is_open: bool = False  # some sizes depend on data, so they cannot be known


_UNARY = """
    Abs Acos Acosh Asin Asinh Atan Atanh Bernoulli Ceil Celu Cos Cosh Elu Erf Exp EyeLike Floor Gelu HardSigmoid HardSwish Hardmax
    Identity IsInf IsNaN LeakyRelu Log LogSoftmax LpNormalization Mish Neg RandomNormalLike RandomUniformLike Reciprocal Relu Round Selu
    Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Tan Tanh ThresholdedRelu
"""
_BINARY = "Add Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mul Pow Sub Sum"
_REDUCING = "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"

_REDUCTION = """
(float[b,s,8] x) => (y, z, v, u) <int64[2] axes = {1, -1}> {
    y = OP (x, axes)
    z = OP <keepdims = 0> (x, axes)
    v = OP (x)
    u = OP <noop_with_empty_axes = 1> (x)
}"""

POINTWISE = {
    **{op: Case(f"(float[b,s] x) => (y) {{ q = Abs (x) y = {op} (q) }}") for op in _UNARY.split()},
    **{op: Case(f"(float[b,1,8] x, float[s,1] z) => (y, v) {{ y = {op} (x, z) v = {op} (z, x) }}") for op in _BINARY.split()},
    **{op: Case(f"(bool[b,1,8] x, bool[s,1] z) => (y) {{ y = {op} (x, z) }}") for op in ("And", "Or", "Xor")},
    **{op: Case(f"(int32[b,8] x, int32[s,1,1] z) => (y) {{ y = {op} (x, z) }}") for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "Mod")},
    **{op: Case(_REDUCTION.replace("OP", op)) for op in _REDUCING.split()},
    "reductions by attribute": Case("""
        (float[b,s,8] x) => (y, z) {
            y = ReduceSum <axes = [1]> (x)
            z = ReduceMean <axes = [-1], keepdims = 0> (x)
        }""", 11),
    "reduction over axes of the run": Case("(float[b,s,8] x, int64[1] a) => (y) { y = ReduceSum (x, a) }", is_open=True),
    "Not": Case("(bool[b,s] x, int32[b,s] z) => (y, v) { y = Not (x) v = BitwiseNot (z) }"),
    "BitShift": Case("(uint8[b,s] x, uint8[s] z) => (y) { y = BitShift <direction = \"LEFT\"> (x, z) }"),
    "Clip": Case("(float[b,s] x) => (y) <float low = {0}> { y = Clip (x, low) }"),
    "PRelu": Case("(float[b,s,8] x, float[8] slope) => (y) { y = PRelu (x, slope) }"),
    "Where": Case("(bool[b,1,1] c, float[s,1] x, float[8] z) => (y) { y = Where (c, x, z) }"),
    "Cast": Case("(float[b,s] x, float16[1] t) => (y, z) { y = Cast <to = 7> (x) z = CastLike (x, t) }"),
    "Dropout": Case("(float[b,s] x) => (y, m) { y, m = Dropout (x) }"),
    "Dropout of old": Case("(float[b,s] x) => (y, m) { y, m = Dropout (x) }", 7),
    "RandomNormal": Case("() => (y, z) { y = RandomNormal <shape = [2, 3]> () z = RandomUniform <shape = [4], dtype = 11> () }"),
    "CumSum": Case("(float[b,s] x) => (y) <int64 axis = {1}> { y = CumSum (x, axis) }"),
    "Trilu": Case("(float[b,s,s] x) => (y) { y = Trilu (x) }"),
    "ReverseSequence": Case("(float[1,3,8] x) => (y) <int64[3] lengths = {1, 1, 1}> { y = ReverseSequence (x, lengths) }"),
    "StringConcat": Case("(float[b,1] x, float[s] z) => (y) { a = Cast <to = 8> (x) c = Cast <to = 8> (z) y = StringConcat (a, c) }"),
    "norms": Case("""
        (float[b,8,h,w] x, float[8] scale, float[w] row) => (y, z, v, u, l, m, i, t) {
            y = InstanceNormalization (x, scale, scale)
            q = Abs (scale)
            z = BatchNormalization (x, scale, scale, scale, q)
            v = LRN <size = 3> (x)
            u = MeanVarianceNormalization (x)
            l, m, i = LayerNormalization (x, row)
            t = SimplifiedLayerNormalization (x, row)
        }"""),
    "LayerNormalization of several axes": Case("""
        (float[b,s,8,w] x, float[8,w] scale) => (y, m) {
            y, m = LayerNormalization <axis = 2> (x, scale)
        }"""),
    "norms of opset 23": Case("""
        (float[b,8,s] x, float[s] row, float[8] scale) => (y, z) {
            y = RMSNormalization (x, row)
            z = GroupNormalization <num_groups = 2> (x, scale, scale)
        }""", 23),
    "ArgMax": Case("(float[b,8,s] x) => (y, z) { y = ArgMax <axis = 1> (x) z = ArgMin <axis = -2, keepdims = 0> (x) }"),
    "TopK": Case("""
        (float[b,s] x) => (v, i, w, j) <int64[1] k = {1}> {
            v, i = TopK <axis = 0> (x, k)
            n = Shape <start = 1> (x)
            w, j = TopK (x, n)
        }"""),
    "TopK by attribute": Case("(float[b,8] x) => (v, i) { v, i = TopK <axis = 1, k = 3> (x) }", 9),
    "Det": Case("(float[b,3,3] x) => (y) { y = Det (x) }"),
    "NonZero": Case("(float[b,s] x) => (y) { y = NonZero (x) }", is_open=True),
    "NonZero of ones": Case("""
        (float[b,s] x) => (y) <int64[1] axis = {1}> {
            n = Shape <start = 1> (x)
            ones = ConstantOfShape <value = int64[1] {1}> (n)
            z = NonZero (ones)
            t = Transpose (z)
            y = Squeeze (t, axis)
        }"""),
}  # fmt: skip

LAYOUT = {
    "Transpose": Case("(float[b,s,8] x) => (y, z) { y = Transpose (x) z = Transpose <perm = [1, 2, 0]> (x) }"),
    "Reshape": Case("""
        (float[b,s,24] x)
        => (y, z, v, u, t)
        <int64[4] keep = {0, 0, 4, 6}, int64[3] fill = {0, -1, 6}, int64[1] flat = {-1}, int64[2] heads = {2, 12}> {
            y = Reshape (x, keep)
            z = Reshape (x, fill)
            v = Reshape (y, flat)
            n = Shape <end = 2> (x)
            c = Concat <axis = 0> (n, heads)
            u = Reshape (x, c)
            d = Concat <axis = 0> (flat, heads)
            t = Reshape (u, d)
        }"""),
    "Reshape to what the run says": Case("""
        (float[4,6] x) => (y) <int64[2] t = {24, -23}, int64 axis = {0}> {
            n = CumSum (t, axis)
            y = Reshape (x, n)
        }""", is_open=True),
    "Flatten": Case("(float[b,s,8] x) => (y, z, v) { y = Flatten (x) z = Flatten <axis = 0> (x) v = Flatten <axis = -1> (x) }"),
    "Unsqueeze": Case("""
        (float[b,s,1] x) => (y, z, v) <int64[2] ends = {0, -1}, int64[1] last = {-1}> {
            y = Unsqueeze (x, ends)
            z = Squeeze (x, last)
            v = Unsqueeze (z, ends)
        }"""),
    "Unsqueeze by attribute": Case("(float[b,s,1] x) => (y, z) { y = Unsqueeze <axes = [0, 4]> (x) z = Squeeze <axes = [2]> (x) }", 11),
    "Squeeze of all": Case("(float[1,3,1] x) => (y) { y = Squeeze (x) }"),
    "Concat": Case("(float[b,p,8] x, float[b,s,8] z) => (y) { y = Concat <axis = -2> (x, z) }"),
    "Split": Case("""
        (float[b,s,8] x) => (y, z, v, u, t, q, r) <int64[2] sizes = {2, 6}> {
            y, z = Split <axis = 2> (x, sizes)
            v, u, t = Split <axis = -1, num_outputs = 3> (x)
            d = Concat <axis = 1> (x, x)
            q, r = Split <axis = 1, num_outputs = 2> (d)
        }"""),
    "Split by attribute": Case("""
        (float[b,s,8] x) => (y, z, v, u) {
            y, z = Split <axis = 2, split = [3, 5]> (x)
            v, u = Split <axis = -1> (x)
        }""", 11),
    "Slice": Case("""
        (float[b,s,h,w] x) => (y, z, v, u, t, r, q, m, l)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] seven = {7}, int64[1] minus = {-1},
         int64[1] far = {9223372036854775807},
         int64[1] back = {-9223372036854775807}, int64[2] starts = {1, -3}, int64[2] ends = {100, -1}, int64[2] axes = {2, 3}> {
            y = Slice (x, one, far, two)
            z = Slice (x, minus, far, one)
            v = Slice (x, zero, minus, two)
            u = Slice (x, minus, back, one, minus)
            t = Slice (x, zero, seven, one)
            r = Slice (x, zero, far, two, two)
            q = Slice (x, starts, ends, axes)
            m = Slice (x, zero, one)
            l = Slice (x, minus, back, two, minus)
        }"""),
    "Slice by sizes": Case("""
        (float[b,p,8] x, float[b,s,8] z)
        => (y, v, u, t, r) <int64[1] zero = {0}, int64[1] one = {1}, int64[1] far = {9223372036854775807}> {
            c = Concat <axis = 1> (x, z)
            past = Shape <start = 1, end = 2> (x)
            all = Shape <start = 1, end = 2> (c)
            new = Shape <start = 1, end = 2> (z)
            minus = Neg (new)
            y = Slice (c, past, all, one)
            v = Slice (c, minus, far, one)
            u = Slice (c, zero, new, one)
            t = Slice (c, zero, minus, one)
            r = Slice (c, past, far, one)
        }"""),
    "Slice by attribute": Case("""
        (float[b,s,8] x) => (y, z) {
            y = Slice <axes = [1, 2], starts = [1, -4], ends = [1000, -1]> (x)
            z = Slice <starts = [0], ends = [1]> (x)
        }""", 9),
    "mask cut out of a constant": Case("""
        (float[b,p,8] x, float[b,s,8] z) => (y) <int64[2] whole = {16, 16}, int64[1] zero = {0}, int64[1] one = {1}> {
            mask = ConstantOfShape (whole)
            past = Shape <start = 1, end = 2> (x)
            new = Shape <start = 1, end = 2> (z)
            all = Add (past, new)
            rows = Slice (mask, past, all, zero)
            cut = Slice (rows, zero, all, one)
            n = Concat <axis = 0> (new, all)
            scores = ConstantOfShape (n)
            y = Add (scores, cut)
        }"""),
    "Gather": Case("""
        (float[b,s,8] x, int64[b,n] i)
        => (y, z, v, u, t) <int64 zero = {0}, int64[2,2] pairs = {0, 0, 0, 0}, int64[1,1] one = {0}, int64[1,1,2] some = {0, 1}> {
            y = Gather <axis = 2> (x, i)
            z = Gather (x, zero)
            v = GatherND (x, pairs)
            u = GatherND (x, one)
            t = GatherElements <axis = 2> (x, some)
        }"""),
    "GatherND by batch": Case("(float[2,3,8] x) => (y) <int64[2,1] i = {0, 2}> { y = GatherND <batch_dims = 1> (x, i) }"),
    "Compress": Case("(float[b,s] x) => (y, z) <bool[1] c = {1}> { y = Compress (x, c) z = Compress <axis = 1> (x, c) }", is_open=True),
    "Expand": Case("""
        (float[b,1,8] x, float[s] z) => (y) <int64[1] one = {1}> {
            d = Shape (z)
            c = Concat <axis = 0> (d, one)
            y = Expand (x, c)
        }"""),
    "Expand as exporters write it": Case("""
        (float[b,1,8] x, float[b,s] z) => (y) <int64[1] free = {-1}, int64[1] three = {3}, int64 minus = {-1}> {
            d = Shape (z)
            c = Concat <axis = 0> (d, free)
            ones = ConstantOfShape <value = int64[1] {1}> (three)
            m = Mul (ones, minus)
            e = Equal (c, m)
            k = Where (e, ones, c)
            y = Expand (x, k)
        }"""),
    "Tile": Case("""
        (float[b,s] x) => (y) <int64[1] three = {3}> {
            n = Shape <start = 0, end = 1> (x)
            c = Concat <axis = 0> (n, three)
            y = Tile (x, c)
        }"""),
    "Shape": Case("""
        (float[b,s,8] x) => (y, z, v, u) {
            y = Shape (x)
            z = Shape <start = -2> (x)
            v = Size (x)
            u = Shape <start = 1, end = -1> (x)
        }"""),
    "Constant": Case("""
        () => (y, z, v, u, t) {
            y = Constant <value_floats = [1.0, 2.0]> ()
            z = Constant <value_int = 3> ()
            v = Constant <value = float[2, 1] {1, 2}> ()
            u = Constant <value_strings = ["a", "b"]> ()
            t = Constant <value_string = "a"> ()
        }"""),
    "Range": Case("""
        (float[b,s] x) => (y, z, v, u, t)
        <int64[1] axis = {0}, int64 zero = {0}, int64 one = {1}, int64 minus = {-2}, float low = {0}, float high = {1},
         float step = {0.25}> {
            n = Shape <start = 1> (x)
            k = Squeeze (n, axis)
            y = Range (zero, k, one)
            z = Range (k, zero, minus)
            f = Cast <to = 1> (k)
            v = Range (low, f, high)
            u = Range (low, high, step)
            t = Range (k, zero, one)
        }"""),
    "Range of what the run says": Case("""
        (int64 k, int64[1] q) => (y, z) <int64 zero = {0}, int64 one = {1}> {
            y = Range (zero, k, one)
            z = ConstantOfShape (q)
        }""", is_open=True),
    "Pad": Case("""
        (float[b,s,8] x, float[h] t)
        => (y, z) <int64[6] pads = {0, 1, 2, 0, 3, -1}, int64[1] zero = {0}, float fill = {0}, int64[1] axis = {-2}> {
            y = Pad (x, pads)
            n = Shape (t)
            d = Concat <axis = 0> (zero, n)
            z = Pad (x, d, fill, axis)
        }"""),
    "Pad by attribute": Case("(float[b,s] x) => (y) { y = Pad <pads = [0, 1, 2, 3]> (x) }", 10),
    "Pad as TorchScript writes it": Case("""
        (float[b,s] x)
        => (y) <int64[2] pad = {0, 1}, int64[1] two = {2}, int64[2] pairs = {-1, 2}, int64[1] zero = {0}, int64[1] minus = {-1},
         int64[1] back = {-9223372036854775807}> {
            rest = ConstantOfShape <value = int64[1] {0}> (two)
            c = Concat <axis = 0> (pad, rest)
            r = Reshape (c, pairs)
            f = Slice (r, minus, back, zero, minus)
            t = Transpose <perm = [1, 0]> (f)
            k = Reshape (t, minus)
            y = Pad (x, k)
        }"""),
    "OneHot": Case("""
        (int64[b,s] x) => (y, z) <int64 depth = {5}, float[2] v = {0, 1}> {
            y = OneHot (x, depth, v)
            z = OneHot <axis = 1> (x, depth, v)
        }"""),
    "repeats by OneHot": Case("""
        (float[b,1,8] x) => (y) <int64[1] place = {1}, int64 depth = {3}, int64[2] values = {1, 4}, int64[1] flat = {-1}> {
            o = OneHot (place, depth, values)
            r = Reshape (o, flat)
            y = Tile (x, r)
        }"""),
    "DepthToSpace": Case("(float[b,8,h,w] x) => (y, z) { y = DepthToSpace <blocksize = 2> (x) z = SpaceToDepth <blocksize = 2> (y) }"),
    "ScatterND": Case("""
        (float[4,8] x, float[1,8] u) => (y, z) <int64[1,1] i = {1}, float[1,1] v = {2}> {
            y = ScatterND (x, i, u)
            z = ScatterElements (x, i, v)
        }"""),
    "Scatter": Case("(float[4,8] x) => (y) <int64[1,1] i = {1}, float[1,1] v = {2}> { y = Scatter (x, i, v) }", 10),
    "sizes computed": Case("""
        (float[b,s,h] x) => (y, z, v, j)
        <int64[1] zero = {0}, int64[1] two = {2}, int64[1] four = {4}, int64[2] halves = {1, 2}, int64 place = {-1}> {
            d = Shape (x)
            e = Gather (d, zero)
            f = Gather (d, two)
            g = Mul (e, f)
            l = Div (g, four)
            m = Mod (e, four)
            q = Sub (l, m)
            r = Max (q, zero)
            t = Min (r, e)
            p = ReduceProd <keepdims = 0> (d)
            u = Unsqueeze (p, zero)
            n = Concat <axis = 0> (l, t)
            y = ConstantOfShape (n)
            z = Reshape (x, u)
            a = Abs (m)
            v = ConstantOfShape (a)
            o, k = Split <axis = 0> (d, halves)
            c = Expand (k, two)
            i = Gather (k, place)
            w = Greater (i, place)
            j = ConstantOfShape (c)
        }"""),
}  # fmt: skip

MATRIX = {
    "MatMul": Case("""
        (float[b,1,s,8] x, float[n,8,p] z, float[8] v) => (y, q, r, t) {
            y = MatMul (x, z)
            q = MatMul (x, v)
            r = MatMul (v, z)
            t = MatMul (v, v)
        }"""),
    "Gemm": Case("""
        (float[s,8] x, float[8,n] z) => (y, v) {
            y = Gemm (x, z)
            a = Transpose (x)
            c = Transpose (z)
            v = Gemm <transA = 1, transB = 1> (a, c)
        }"""),
    "Einsum": Case("""
        (float[b,s,8] x, float[b,p,8] z) => (y, v, u, t) <int64[1] axis = {0}> {
            y = Einsum <equation = "bsd, bpd -> bsp"> (x, z)
            v = Einsum <equation = "...d->..."> (x)
            q = ReduceSum <keepdims = 0> (x, axis)
            r = Transpose (q)
            u = Einsum <equation = "ij,jk"> (q, r)
            t = Einsum <equation = "b...d,bpd->b...p"> (x, z)
        }"""),
    "integer products": Case("""
        (float[s,8] x, float[8,n] z) => (y, v) {
            a, c, d = DynamicQuantizeLinear (x)
            e, f, g = DynamicQuantizeLinear (z)
            y = MatMulInteger (a, e, d, g)
            v = QLinearMatMul (a, c, d, e, f, g, c, d)
        }"""),
    "QuantizeLinear": Case("""
        (float[b,8] x) => (y, z, v) <float s = {0.1}, int8 o = {0}> {
            y = QuantizeLinear (x, s, o)
            z = DequantizeLinear (y, s, o)
            v = QuantizeLinear (x, s)
        }"""),
    "LSTM": Case("""
        (float[s,b,8] x, float[1,16,8] w, float[1,16,4] r, float[1,12,8] k, float[1,12,4] l, float[1,4,8] m, float[1,4,4] q)
        => (y, h, c, g, i, t, u) {
            y, h, c = LSTM <hidden_size = 4> (x, w, r)
            g, i = GRU <hidden_size = 4> (x, k, l)
            t, u = RNN <hidden_size = 4> (x, m, q)
        }"""),
    "Attention": Case("""
        (float[b,4,s,8] q, float[b,2,s,8] k, float[b,2,s,6] v, float[b,2,p,8] m, float[b,2,p,6] n) => (y, a, c) {
            y, a, c = Attention (q, k, v, , m, n)
        }""", 23),
    "Attention of rank 3": Case("""
        (float[b,s,32] q, float[b,n,16] k, float[b,n,12] v) => (y) {
            y = Attention <q_num_heads = 4, kv_num_heads = 2> (q, k, v)
        }""", 23),
    "RotaryEmbedding": Case("(float[b,4,s,8] x, float[b,s,4] c) => (y) { y = RotaryEmbedding (x, c, c) }", 23),
}  # fmt: skip

WINDOW = {
    "Conv": Case("""
        (float[b,3,h,w] x, float[6,3,3,2] k, float[6,1,2,2] g) => (y, z, v, u) {
            y = Conv (x, k)
            z = Conv <strides = [2, 3], pads = [1, 0, 2, 1], dilations = [2, 1]> (x, k)
            v = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, k)
            u = Conv <group = 6> (z, g)
        }"""),
    "ConvTranspose": Case("""
        (float[b,3,h,w] x, float[3,2,3,3] k, float[b,3,5,6] f) => (y, z, v) {
            y = ConvTranspose <strides = [2, 2], pads = [1, 1, 0, 1], output_padding = [1, 0]> (x, k)
            z = ConvTranspose <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, k)
            v = ConvTranspose <strides = [2, 2], output_shape = [10, 12]> (f, k)
        }"""),
    "integer convolutions": Case("""
        (float[b,3,h,w] x, float[6,3,3,2] k) => (y, v) {
            a, c, d = DynamicQuantizeLinear (x)
            e, f, g = DynamicQuantizeLinear (k)
            y = ConvInteger <pads = [1, 1, 1, 1]> (a, e, d, g)
            v = QLinearConv (a, c, d, e, f, g, c, d)
        }"""),
    "pools": Case("""
        (float[b,3,h,w] x, float[b,3,5,6] f) => (y, z, i, v, u, r, l, q) {
            y = AveragePool <kernel_shape = [3, 2], strides = [2, 2], pads = [1, 0, 1, 0]> (x)
            z, i = MaxPool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (x)
            v = LpPool <kernel_shape = [2, 2]> (x)
            u = GlobalAveragePool (x)
            r = GlobalMaxPool (x)
            l = GlobalLpPool (x)
            q = MaxPool <kernel_shape = [1, 1], strides = [3, 3], ceil_mode = 1> (f)
        }"""),
    "Resize": Case("""
        (float[b,3,h,w] x) => (y, z, v) <float[4] scales = {1, 1, 2, 0.5}, int64[4] more = {0, 1, 1, 1}, float[1] three = {3}> {
            y = Resize (x, , scales)
            d = Shape (x)
            e = Add (d, more)
            z = Resize (x, , , e)
            v = Resize <axes = [2]> (x, , three)
        }"""),
    "Resize of opset 10": Case("(float[b,3,h,w] x) => (y) <float[4] scales = {1, 1, 2, 2}> { y = Resize (x, scales) }", 10),
    "Upsample": Case("(float[b,3,h,w] x) => (y) { y = Upsample <scales = [1.0, 1.0, 2.0, 3.0]> (x) }", 7),
    "Upsample of opset 9": Case("(float[b,3,h,w] x) => (y) <float[4] scales = {1, 1, 2, 2}> { y = Upsample (x, scales) }", 9),
    "sizes through floats": Case("""
        (float[b,3,h,w] x) => (y, r) <float two = {2}, float half = {0.5}, float square = {36}, int64[1] one = {1}> {
            n = Shape <start = 2, end = 3> (x)
            f = Cast <to = 1> (n)
            g = Div (f, two)
            c = Ceil (g)
            d = Mul (c, two)
            e = Cast <to = 7> (d)
            k = Shape <start = 3> (x)
            i = Cast <to = 1> (k)
            j = Mul (i, half)
            m = Floor (j)
            l = Cast <to = 7> (m)
            o = Shape <end = 2> (x)
            q = Concat <axis = 0> (o, e, l)
            y = Resize (x, , , q)
            a = Sqrt (square)
            p = Pow (square, half)
            s = Add (a, p)
            t = Cast <to = 7> (s)
            u = Reshape (t, one)
            r = ConstantOfShape (u)
        }"""),
    "GridSample": Case("(float[b,3,h,w] x, float[b,s,n,2] g) => (y) { y = GridSample (x, g) }"),
    "RoiAlign": Case("""
        (float[1,3,h,w] x, float[n,4] r) => (y) {
            c = Shape <end = 1> (r)
            i = ConstantOfShape <value = int64[1] {0}> (c)
            y = RoiAlign <output_height = 2, output_width = 3> (x, r, i)
        }"""),
}  # fmt: skip

CONTROL = {
    "If": Case("""
        (float[b,s] x, bool c) => (y) {
            y = If (c) <then_branch = t () => (u) { u = Concat <axis = 1> (x, x) }, else_branch = e () => (v) { v = Identity (x) }>
        }""", is_open=True),
    "If that is known": Case("""
        (float[b,1,s] x) => (y) <int64[1] one = {1}> {
            d = Shape <start = 1, end = 2> (x)
            e = Equal (d, one)
            k = Squeeze (e)
            y = If (k) <then_branch = t () => (u) { u = Squeeze (x, one) }, else_branch = e () => (v) { v = Identity (x) }>
        }"""),
    "Loop": Case("""
        (float[b,s] x) => (y, z, v) <int64 count = {3}, bool go = {1}> {
            y, z, v = Loop (count, go, x, x) <body = l (int64 i, bool c, float[d,e] a, float[f,g] w) => (k, n, r, u) {
                k = Identity (c)
                n = Concat <axis = 1> (a, x)
                r = Identity (w)
                u = Relu (w)
            }>
        }""", is_open=True),
    "Loop as often as there are rows": Case("""
        (float[b,s] x) => (y, z) <int64[1] axis = {0}> {
            q = Shape <start = 1> (x)
            m = Squeeze (q, axis)
            y, z = Loop (m, , x) <body = l (int64 i, bool c, float[d,e] w) => (k, r, u) {
                k = Constant <value = bool {1}> ()
                r = Relu (w)
                u = Transpose (w)
            }>
        }"""),
    "Scan": Case("""
        (float[b,8] h, float[b,n,8] x) => (y, z) {
            y, z = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [2],
                         body = l (float[d,e] a, float[f,g] w) => (n, r) { n = Add (a, w) r = Identity (n) }> (h, x)
        }"""),
    "ops without a rule": Case("""
        (float[b,s] x) => (y, i, z) <int64[2] size = {3, 4}> {
            y, i = Unique (x)
            z = CenterCropPad (x, size)
        }""", is_open=True),
}  # fmt: skip

MICROSOFT = {
    "contrib activations": Case("""
        (float[b,s,8] x, float[8] k) => (y, z, v, u) {
            y = com.microsoft.Gelu (x)
            z = com.microsoft.FastGelu (x)
            v = com.microsoft.BiasGelu (x, k)
            u = com.microsoft.QuickGelu (x)
        }"""),
    "contrib products": Case("""
        (float[b,s,8] x, float[n,8] z, float[8,n] k, float[s,8] a) => (y, v) {
            y = com.microsoft.FusedMatMul <transB = 1> (x, z)
            v = com.microsoft.FusedGemm <activation = "Relu"> (a, k)
        }"""),
    "contrib norms": Case("""
        (float[b,s,8] x, float[8] k) => (y, z, r) {
            y = com.microsoft.SkipLayerNormalization (x, x, k, k)
            z, , , r = com.microsoft.SkipSimplifiedLayerNormalization (x, x, k)
        }"""),
    "contrib attention": Case("""
        (float[b,s,16] x, float[16,48] w, float[48] k, float[b,n,16] m) => (y, z) {
            y = com.microsoft.Attention <num_heads = 2> (x, w, k)
            z = com.microsoft.MultiHeadAttention <num_heads = 2> (x, m, m)
        }"""),
    "contrib rotary": Case("""
        (float[b,s,16] x, int64[b,s] i, float[64,4] c) => (y) {
            y = com.microsoft.RotaryEmbedding <num_heads = 2> (x, i, c, c)
        }"""),
}  # fmt: skip

CASES = {**POINTWISE, **LAYOUT, **MATRIX, **WINDOW, **CONTROL, **MICROSOFT}
