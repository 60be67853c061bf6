"""Which operators ONNX Runtime has kernels for, by device and type, and since which opset an operator is standard.

CPU: the registry of ONNX Runtime 1.32, which a test compares with the one installed. CUDA: what the same project's
generated list of kernels says; no test here can check it. What is not in the table is not written.
"""

from __future__ import annotations

from collections.abc import Mapping

CONTRIB = "com.microsoft"
OWN_OF_RUNTIME = ("LayerNormalization", "SimplifiedLayerNormalization")  # contrib operators that ONNX Runtime keeps in the standard domain
SINCE: Mapping[str, int] = {
    "Gemm": 1,
    "LayerNormalization": 17,
    "Gelu": 20,
    "RMSNormalization": 23,
    "RotaryEmbedding": 23,
    "Attention": 23,
    "Swish": 24,
}

FLOAT = ("float",)
HALF = ("float", "float16")
WIDE = ("float", "float16", "bfloat16")
KERNELS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "com.microsoft.FusedConv": {"cpu": FLOAT, "cuda": FLOAT},
    "com.microsoft.Gelu": {"cpu": FLOAT, "cuda": WIDE},
    "com.microsoft.BiasGelu": {"cpu": FLOAT, "cuda": WIDE},
    "com.microsoft.FastGelu": {"cpu": FLOAT, "cuda": WIDE},
    "com.microsoft.QuickGelu": {"cpu": FLOAT, "cuda": WIDE},
    "com.microsoft.SkipLayerNormalization": {"cpu": WIDE, "cuda": WIDE},
    "com.microsoft.SkipSimplifiedLayerNormalization": {"cpu": WIDE, "cuda": WIDE},
    "com.microsoft.MultiHeadAttention": {"cpu": FLOAT, "cuda": WIDE},
    "com.microsoft.RotaryEmbedding": {"cpu": HALF, "cuda": WIDE},
    "com.microsoft.FusedGemm": {"cpu": FLOAT},
    "SimplifiedLayerNormalization": {"cpu": WIDE, "cuda": WIDE},
    "LayerNormalization": {"cpu": WIDE, "cuda": WIDE},
    "Gelu": {"cpu": FLOAT, "cuda": WIDE},
    "Gemm": {"cpu": FLOAT, "cuda": WIDE},
    "RMSNormalization": {"cpu": HALF, "cuda": WIDE},
    "RotaryEmbedding": {"cpu": HALF, "cuda": WIDE},
    "Attention": {"cpu": HALF, "cuda": WIDE},
}


def label(domain: str, name: str) -> str:
    """An operator as people write it: `com.microsoft.Gelu`, and `Gelu` for the standard one."""
    return f"{domain}.{name}" if domain else name


def types_of(domain: str, name: str, device: str) -> tuple[str, ...]:
    """The types that ONNX Runtime has a kernel of this operator for. device: "cpu" or "cuda"."""
    return KERNELS.get(label(domain, name), {}).get(device, ())
