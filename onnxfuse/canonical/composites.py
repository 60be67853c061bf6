"""Standard and contrib ops that are compositions, taken apart so that one rule sees them and their spellings."""

from __future__ import annotations

from onnxfuse.canonical.view import View, handles, negative_axis, plain_attributes, size_of
from onnxfuse.graph import Node, Value, constant_value
from onnxfuse.layout import Layout, expand, reshape
from onnxfuse.term import Term

Terms = list[Term | None] | None
MICROSOFT = "com.microsoft"


def _affine(view: View, norm: Term, scale: Value | None, bias: Value | None) -> Term:
    result = norm
    if (weight := view.term(scale)) is not None:
        result = view.algebra.multiply(result, weight)
    if (shift := view.term(bias)) is not None:
        result = view.algebra.add(result, shift, flatten=(True, False))
    return result


def _trailing(node: Node) -> tuple[int, ...] | None:
    axis = negative_axis(node.attributes.get("axis", -1), node.inputs[0])
    return None if axis is None else tuple(range(axis, 0))


@handles("LayerNormalization")
def _layer_norm(view: View, node: Node) -> Terms:
    axes = _trailing(node)
    if axes is None or node.attributes.get("stash_type", 1) != 1:
        return None
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    norm = view.algebra.plain("LayerNormalization", view.args(node)[:1], {"axes": axes, "epsilon": epsilon})
    return [_affine(view, norm, node.input(1), node.input(2)), None, None]


@handles("RMSNormalization", "SimplifiedLayerNormalization")
def _rms_norm(view: View, node: Node) -> Terms:
    axes = _trailing(node)
    if axes is None or node.attributes.get("stash_type", 1) != 1:
        return None
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    norm = view.algebra.plain("RMSNormalization", view.args(node)[:1], {"axes": axes, "epsilon": epsilon})
    return [_affine(view, norm, node.input(1), None), None]


@handles("InstanceNormalization")
def _instance_norm(view: View, node: Node) -> Terms:
    """A norm of each channel by itself, over all that lies behind it."""
    x = node.inputs[0]
    if x is None or x.rank is None or x.rank < 3:
        return None
    attributes = {"axes": tuple(range(2 - x.rank, 0)), "epsilon": float(node.attributes.get("epsilon", 1e-5))}
    norm = view.algebra.plain("LayerNormalization", view.args(node)[:1], attributes)
    return _per_channel(view, node, norm, 1)


@handles("GroupNormalization")
def _group_norm(view: View, node: Node) -> Terms:
    """Until opset 21 scale and bias have one number for each group."""
    x, groups = node.inputs[0], node.attributes.get("num_groups")
    channels = x.shape[1] if x is not None and x.shape is not None and len(x.shape) > 1 else None
    if node.attributes.get("stash_type", 1) != 1 or not isinstance(channels, int) or not isinstance(groups, int) or channels % groups:
        return None
    attributes = {"num_groups": groups, "epsilon": float(node.attributes.get("epsilon", 1e-5))}
    norm = view.algebra.plain("GroupNormalization", view.args(node)[:1], attributes)
    return _per_channel(view, node, norm, channels // groups if view.graph.opset < 21 else 1)


@handles("BatchNormalization")
def _batch_norm(view: View, node: Node) -> Terms:
    """In inference: each channel less its mean, over the root of its variance, with scale and bias."""
    x = node.inputs[0]
    if node.attributes.get("training_mode", 0) or len(node.outputs) > 1 or x is None or x.rank is None or x.rank < 2:
        return None
    seen = [view.view(view.layout(v), lambda layout: _along_channels(layout, 1, x.rank or 0)) for v in node.inputs[1:]]
    scale, bias, mean, variance = (t[0] if t else None for t in seen)
    data = view.term(x)
    if data is None or scale is None or bias is None or mean is None or variance is None:
        return None
    epsilon = view.algebra.number(float(node.attributes.get("epsilon", 1e-5)))
    centred = view.algebra.subtract(data, mean, flatten=(False, False))
    root = view.algebra.power(view.algebra.add(variance, epsilon), -0.5)
    scaled = view.algebra.multiply(view.algebra.multiply(centred, root), scale)
    return [view.algebra.add(scaled, bias, flatten=(False, False))]


def _per_channel(view: View, node: Node, norm: Term, repeat: int) -> Terms:
    """norm * scale + bias with vectors that have a number for each `repeat` channels of x; ones and zeros are left out."""
    x, scale, bias = node.inputs[0], node.input(1), node.input(2)
    assert x is not None and x.rank is not None
    for value, neutral in ((scale, 1.0), (bias, 0.0)):
        array = constant_value(value) if value is not None else None
        if value is None or (array is not None and (array == neutral).all()):
            continue
        seen = view.view(view.layout(value), lambda layout: _along_channels(layout, repeat, x.rank or 0))
        if seen is None or seen[0] is None:
            return None
        norm = view.algebra.multiply(norm, seen[0]) if value is scale else view.algebra.add(norm, seen[0], flatten=(False, False))
    return [norm]


def _along_channels(layout: Layout, repeat: int, rank: int) -> Layout | None:
    """A vector as [channels, 1, ...] behind the batch, each number for `repeat` channels."""
    (size,) = layout.shape
    column = reshape(layout, (size, 1))
    repeated = expand(column, (size, repeat)) if column is not None else None
    return reshape(repeated, (size * repeat, *[1] * (rank - 2))) if repeated is not None else None


@handles("Gelu")
def _gelu(view: View, node: Node) -> Terms:
    approximate = node.attributes.get("approximate", "none")
    return [view.algebra.plain("Gelu", view.args(node), {"approximate": str(approximate)})]


@handles("Gelu", "BiasGelu", domain=MICROSOFT)
def _contrib_gelu(view: View, node: Node) -> Terms:
    return _biased_gelu(view, node, "none")


@handles("FastGelu", domain=MICROSOFT)
def _fast_gelu(view: View, node: Node) -> Terms:
    return _biased_gelu(view, node, "tanh")


def _biased_gelu(view: View, node: Node, approximate: str) -> Terms:
    x, bias = view.term(node.inputs[0]), view.term(node.input(1))
    if x is None:
        return None
    total = x if bias is None else view.algebra.add(x, bias, flatten=(view.opened(node.inputs[0]), False))
    return [view.algebra.plain("Gelu", (total,), {"approximate": approximate})]


@handles("QuickGelu", domain=MICROSOFT)
def _quick_gelu(view: View, node: Node) -> Terms:
    return [view.algebra.plain("Swish", view.args(node), {"alpha": float(node.attributes.get("alpha", 1.702))})]


@handles("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def _skip_norm(view: View, node: Node) -> Terms:
    simplified = "Simplified" in node.op
    x, skip = view.term(node.inputs[0]), view.term(node.inputs[1])
    bias = view.term(node.input(3 if simplified else 4))
    if x is None or skip is None or (size_of(node.inputs[0], ()) or 0) != (size_of(node.inputs[1], ()) or 1):
        return None
    total = view.algebra.add(x, skip, flatten=(False, False))
    if bias is not None:
        total = view.algebra.add(total, bias)
    op = "RMSNormalization" if simplified else "LayerNormalization"
    norm = view.algebra.plain(op, (total,), {"axes": (-1,), "epsilon": float(node.attributes.get("epsilon", 1e-12))})
    return [_affine(view, norm, node.input(2), None if simplified else node.input(3)), None, None, total]


@handles("FusedMatMul", domain=MICROSOFT)
def _fused_matmul(view: View, node: Node) -> Terms:
    if any(node.attributes.get(k, 0) for k in ("transA", "transB", "transBatchA", "transBatchB")):
        return None
    product = view.algebra.operation("MatMul", view.args(node))
    return [view.algebra.scale(product, float(node.attributes.get("alpha", 1.0)))]


@handles("Attention")
def _attention(view: View, node: Node) -> Terms:
    return _attention_operator(view, node)


@handles("Attention", "GroupQueryAttention", "MultiHeadAttention", domain=MICROSOFT)
def _contrib_attention(view: View, node: Node) -> Terms:
    return _attention_operator(view, node)


def _attention_operator(view: View, node: Node) -> Terms:
    """The operator with its first three inputs; what else it has, rules read at the node."""
    settings = plain_attributes(node)
    if settings is None:
        return None
    parts = [view.term(node.input(i)) or view.algebra.leaf("absent") for i in range(3)]
    rest = tuple(view.term(v) for v in node.inputs[3:])
    key = (node.domain, node.op, rest, tuple(sorted(settings.items())))
    return [view.algebra.plain("AttentionOperator", parts, {"settings": key})]
