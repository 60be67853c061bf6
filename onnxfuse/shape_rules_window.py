"""Shapes of convolutions, pools, and of ops that resample images."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from onnxfuse.shape_facts import MICROSOFT, Call, Shape, places, shape_rule
from onnxfuse.shape_ratio import Unknown
from onnxfuse.symbolic import Dim


@dataclass(frozen=True)
class _Window:
    """What slides over each spatial axis. `pads` holds all begins, then all ends."""

    kernel: tuple[Dim, ...]
    strides: list[int]
    dilations: list[int]
    pads: list[int]
    auto_pad: str


def _window(call: Call, kernel: tuple[Dim, ...]) -> _Window:
    rank = len(kernel)
    strides = call.ints("strides") or [1] * rank
    dilations = call.ints("dilations") or [1] * rank
    pads = call.ints("pads") or [0] * (2 * rank)
    if not len(strides) == len(dilations) == rank or len(pads) != 2 * rank or min([*strides, *dilations], default=1) < 1:
        raise Unknown
    return _Window(kernel, strides, dilations, pads, call.text("auto_pad", "NOTSET"))


def _slide(call: Call, x: Shape, window: _Window, *, is_ceiled: bool = False) -> Shape:
    """Spatial sizes after a convolution or a pool over the spatial sizes x."""
    if len(x) != len(window.kernel):
        raise Unknown
    return tuple(_steps(call, axis, dim, window, is_ceiled=is_ceiled) for axis, dim in enumerate(x))


def _steps(call: Call, axis: int, dim: Dim, window: _Window, *, is_ceiled: bool) -> Dim:
    stride = window.strides[axis]
    if window.auto_pad.startswith("SAME"):
        return (dim + (stride - 1)) // stride
    reach = (window.kernel[axis] - 1) * window.dilations[axis] + 1
    begin, end = (0, 0) if window.auto_pad == "VALID" else (window.pads[axis], window.pads[axis + len(window.kernel)])
    room = dim + (begin + end) - reach
    if not is_ceiled:
        return room // stride + 1
    count = (room + (stride - 1)) // stride + 1
    if isinstance(reach, int) and stride + end <= reach:
        return count
    if not isinstance(count, int) or not isinstance(dim, int):
        return call.fresh(axis + 2)
    return count - 1 if (count - 1) * stride >= dim + begin else count  # no window starts in the end padding


@shape_rule("Conv", "ConvInteger")
def _conv(call: Call) -> Shape:
    x = call.shape(0, at_least=2)
    filters, window = _filters(call, 1)
    return (x[0], filters[0], *_slide(call, x[2:], window))


shape_rule("FusedConv", domain=MICROSOFT)(_conv)


@shape_rule("QLinearConv")
def _quantized_conv(call: Call) -> Shape:
    x = call.shape(0, at_least=2)
    filters, window = _filters(call, 3)
    return (x[0], filters[0], *_slide(call, x[2:], window))


@shape_rule("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def _channels_last_conv(call: Call) -> Shape:
    x = call.shape(0, at_least=2)
    filters, window = _filters(call, 1)
    return (x[0], *_slide(call, x[1:-1], window), filters[0])


def _filters(call: Call, position: int) -> tuple[Shape, _Window]:
    filters = call.shape(position, at_least=2)
    written = call.ints("kernel_shape")
    return filters, _window(call, tuple(written) if written else filters[2:])


@shape_rule("ConvTranspose")
def _conv_transpose(call: Call) -> Shape:
    x = call.shape(0, at_least=2)
    filters, window = _filters(call, 1)
    channels = filters[1] * call.integer("group", 1)
    spatial = call.ints("output_shape")
    if spatial is not None:
        return (x[0], channels, *spatial[-len(x[2:]) :])
    extra = call.ints("output_padding") or [0] * len(window.kernel)
    if not len(x) - 2 == len(window.kernel) == len(extra):
        raise Unknown
    return (x[0], channels, *(_grow(dim, axis, extra[axis], window) for axis, dim in enumerate(x[2:])))


def _grow(dim: Dim, axis: int, extra: int, window: _Window) -> Dim:
    if window.auto_pad.startswith("SAME"):
        return dim * window.strides[axis]
    pads = 0 if window.auto_pad == "VALID" else window.pads[axis] + window.pads[axis + len(window.kernel)]
    reach = (window.kernel[axis] - 1) * window.dilations[axis] + 1
    return (dim - 1) * window.strides[axis] + extra + reach - pads


@shape_rule("MaxPool", "AveragePool", "LpPool")
def _pool(call: Call) -> list[Shape | None]:
    x = call.shape(0, at_least=2)
    kernel = call.ints("kernel_shape")
    if kernel is None:
        raise Unknown
    shape = (*x[:2], *_slide(call, x[2:], _window(call, tuple(kernel)), is_ceiled=call.integer("ceil_mode", 0) != 0))
    return [shape, shape]


@shape_rule("NhwcMaxPool", domain=MICROSOFT)
def _channels_last_pool(call: Call) -> Shape:
    x = call.shape(0, at_least=2)
    kernel = call.ints("kernel_shape")
    if kernel is None:
        raise Unknown
    window = _window(call, tuple(kernel))
    return (x[0], *_slide(call, x[1:-1], window, is_ceiled=call.integer("ceil_mode", 0) != 0), x[-1])


@shape_rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(call: Call) -> Shape:
    x = call.shape(0, at_least=2)
    return x[:2] + (1,) * (len(x) - 2)


@shape_rule("QLinearGlobalAveragePool", domain=MICROSOFT)
def _quantized_global_pool(call: Call) -> Shape:
    x = call.shape(0, at_least=3)
    ones = (1,) * (len(x) - 2)
    return (x[0], *ones, x[-1]) if call.integer("channels_last", 0) else (*x[:2], *ones)


@shape_rule("Resize", "Upsample")
def _resize(call: Call) -> Shape:
    x = call.shape(0)
    axes = places(call.ints("axes") or range(len(x)), len(x))
    dims = list(x)
    for axis, size in zip(axes, _resized(call, [x[axis] for axis in axes]), strict=True):
        dims[axis] = call.fresh(axis) if size is None else size
    return tuple(dims)


def _resized(call: Call, dims: list[Dim]) -> list[Dim | None]:
    """New sizes of the resized axes: from `sizes`, else from `scales`."""
    if call.has(3) and call.fact(3).shape != (0,):
        sizes = call.fact(3).elements
        is_exact = sizes is not None and len(sizes) == len(dims) and call.text("keep_aspect_ratio_policy", "stretch") == "stretch"
        return list(sizes) if sizes is not None and is_exact else [None] * len(dims)
    try:
        scales = _scales(call)
    except Unknown:
        return [None] * len(dims)
    return [_scaled(dim, scale) for dim, scale in zip(dims, scales, strict=True)] if len(scales) == len(dims) else [None] * len(dims)


def _scales(call: Call) -> list[float]:
    written = call.attribute("scales")
    if isinstance(written, list):
        return [float(s) for s in written]
    position = 1 if call.opset < 11 or call.node.op == "Upsample" else 2
    return [float(s) for s in call.constant(position).reshape(-1)]


def _scaled(dim: Dim, scale: float) -> Dim | None:
    if isinstance(dim, int):
        return int(np.float32(dim) * np.float32(scale))
    ratio = Fraction(scale)  # exact only for scales like 2 and 0.5, whose product the runtime does not round
    return (dim * ratio.numerator) // ratio.denominator if ratio.denominator <= 64 else None


@shape_rule("GridSample")
def _grid_sample(call: Call) -> Shape:
    x, grid = call.shape(0, at_least=2), call.shape(1, at_least=2)
    return x[:2] + grid[1:-1]


shape_rule("GridSample", domain=MICROSOFT)(_grid_sample)


@shape_rule("RoiAlign")
def _roi_align(call: Call) -> Shape:
    _, channels, *_ = call.shape(0, rank=4)
    rois, _ = call.shape(1, rank=2)
    return rois, channels, call.integer("output_height", 1), call.integer("output_width", 1)
