"""ONNX element types: their names and sizes."""

from __future__ import annotations

from functools import cache

import onnx

from onnxfuse.errors import UsageError

BITS = {
    "float": 32, "double": 64, "float16": 16, "bfloat16": 16, "bool": 8, "complex64": 64, "complex128": 128,
    "string": 128,  # a small object
    **{f"{sign}int{bits}": bits for sign in ("", "u") for bits in (2, 4, 8, 16, 32, 64)},
    **dict.fromkeys(("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0"), 8),
    "float6e2m3": 6, "float6e3m2": 6, "float4e2m1": 4,
}  # fmt: skip
ALIASES = {"float32": "float", "float64": "double", "fp32": "float", "fp16": "float16", "bf16": "bfloat16", "half": "float16"}


@cache
def type_name(dtype: int | str) -> str:
    """The ONNX name of a type: 1, "FLOAT" and "float32" are all "float". Raises UsageError for a type that is none."""
    name = str(dtype).lower()
    if isinstance(dtype, int):
        known = onnx.TensorProto.DataType.values()
        name = onnx.TensorProto.DataType.Name(dtype).lower() if dtype in known else str(dtype)
    name = ALIASES.get(name, name)
    if name not in BITS:
        raise UsageError(f"element type {dtype!r} is no ONNX tensor type. Known: {', '.join(BITS)}")
    return name


def byte_size(elements: int, dtype: str) -> int:
    """Bytes of so many elements of an ONNX type, packed; a part of a byte counts as one."""
    return -(-elements * BITS[dtype] // 8)
