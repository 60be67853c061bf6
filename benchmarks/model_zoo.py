"""Well-known models built from their configuration with random weights, and exported to ONNX, for models.py.

Needs torch 2.13.0 and transformers. Layers are cut so that a run takes a fraction of a second; sizes are the real ones.
Shapes are fixed at export: what every runtime can do with known sizes, it may.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

SEED = 0
OPSET = 18
PAST = 512  # tokens before the one that is decoded


@dataclass(frozen=True)
class Built:
    """A module, its inputs by name, and what tools that must be told need to know of it."""

    module: nn.Module
    inputs: dict[str, torch.Tensor]
    family: str = "bert"  # of onnxruntime.transformers
    heads: int = 12
    hidden: int = 768


class _First(nn.Module):
    """The first output of a model that gives many; names its inputs by position."""

    def __init__(self, model: nn.Module, *names: str) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=False)[0]
        return result


class _Causal(nn.Module):
    """A decoder: token ids and the keys and values of every layer's past in, logits and presents out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cache = transformers.DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        before = past[0].shape[2] if past else 0
        places = torch.arange(before, before + ids.shape[1])[None]
        given = self.model(input_ids=ids, position_ids=places, past_key_values=cache, use_cache=True)
        layers = given.past_key_values.layers
        return (given.logits, *(x for layer in layers for x in (layer.keys, layer.values)))


class _Residual(nn.Module):
    """A residual block of a diffusion model: GroupNorm, SiLU, convolution, twice."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, channels) for _ in range(2))
        self.convolutions = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(4 * channels, channels)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        h = self.convolutions[0](nn.functional.silu(self.norms[0](x)))
        h = h + self.time(nn.functional.silu(time))[:, :, None, None]
        return x + self.convolutions[1](nn.functional.silu(self.norms[1](h)))


class _CrossAttention(nn.Module):
    def __init__(self, channels: int, heads: int, context: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.out = nn.Linear(channels, channels, bias=False), nn.Linear(channels, channels)
        self.k, self.v = (nn.Linear(context, channels, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (self.q(x), self.k(context), self.v(context)))
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class _UNetBlock(nn.Module):
    """One level of a diffusion UNet: a residual block, then self attention, cross attention and GeGLU over the pixels."""

    def __init__(self, channels: int, heads: int, context: int) -> None:
        super().__init__()
        self.residual, self.norm = _Residual(channels), nn.GroupNorm(32, channels, eps=1e-6)
        self.into, self.out = nn.Conv2d(channels, channels, 1), nn.Conv2d(channels, channels, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(3))
        self.own, self.cross = _CrossAttention(channels, heads, channels), _CrossAttention(channels, heads, context)
        self.gate, self.down = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x: torch.Tensor, time: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        x = self.residual(x, time)
        h = self.into(self.norm(x)).flatten(2).transpose(1, 2)
        own = self.norms[0](h)
        h = h + self.own(own, own)
        h = h + self.cross(self.norms[1](h), context)
        up, gate = self.gate(self.norms[2](h)).chunk(2, -1)
        h = h + self.down(up * nn.functional.gelu(gate))
        return x + self.out(h.transpose(1, 2).unflatten(-1, x.shape[2:]))


def _ids(vocabulary: int, seq: int) -> torch.Tensor:
    return torch.randint(0, vocabulary, (1, seq))


def _padded(seq: int) -> torch.Tensor:
    """An attention mask whose last eighth is padding."""
    return (torch.arange(seq) < seq - seq // 8).long()[None]


def _bert(seq: int) -> Built:
    config = transformers.BertConfig(num_hidden_layers=4)
    model = transformers.BertModel(config, add_pooling_layer=False)
    return Built(_First(model, "input_ids", "attention_mask"), {"ids": _ids(config.vocab_size, seq), "mask": _padded(seq)})


def _distilbert(seq: int) -> Built:
    config = transformers.DistilBertConfig(n_layers=4)
    model = transformers.DistilBertModel(config)
    return Built(_First(model, "input_ids", "attention_mask"), {"ids": _ids(config.vocab_size, seq), "mask": _padded(seq)})


def _past(layers: int, heads: int, size: int, past: int) -> dict[str, torch.Tensor]:
    return (
        {f"past_{kind}_{layer}": torch.randn(1, heads, past, size) for layer in range(layers) for kind in ("key", "value")} if past else {}
    )


def _gpt2(seq: int, past: int = 0) -> Built:
    config = transformers.GPT2Config(n_layer=4, vocab_size=8192)
    model = transformers.GPT2LMHeadModel(config)
    return Built(_Causal(model), {"ids": _ids(config.vocab_size, seq), **_past(4, 12, 64, past)}, "gpt2")


def _llama(seq: int, past: int = 0) -> Built:
    config = transformers.LlamaConfig(
        vocab_size=8192, hidden_size=1024, intermediate_size=2816, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=4
    )
    model = transformers.LlamaForCausalLM(config)
    return Built(_Causal(model), {"ids": _ids(config.vocab_size, seq), **_past(4, 4, 64, past)}, "gpt2", 16, 1024)


def _vit() -> Built:
    model = transformers.ViTModel(transformers.ViTConfig(num_hidden_layers=4), add_pooling_layer=False)
    return Built(_First(model, "pixel_values"), {"pixels": torch.randn(1, 3, 224, 224)}, "vit")


def _whisper() -> Built:
    config = transformers.WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)
    model = transformers.WhisperModel(config).get_encoder()
    return Built(_First(model, "input_features"), {"features": torch.randn(1, 80, 3000)}, "bart", 6, 384)


def _clip() -> Built:
    config = transformers.CLIPTextConfig(num_hidden_layers=4)
    ids = _ids(config.vocab_size, 77)
    return Built(_First(transformers.CLIPTextModel(config), "input_ids"), {"ids": ids}, "clip", 8, 512)


def _t5(seq: int) -> Built:
    config = transformers.T5Config(num_layers=4, d_model=512, d_ff=2048, num_heads=8)
    model = transformers.T5EncoderModel(config)
    return Built(_First(model, "input_ids", "attention_mask"), {"ids": _ids(config.vocab_size, seq), "mask": _padded(seq)}, "t5", 8, 512)


def _unet() -> Built:
    inputs = {"x": torch.randn(1, 320, 64, 64), "time": torch.randn(1, 1280), "context": torch.randn(1, 77, 768)}
    return Built(_UNetBlock(320, 8, 768), inputs, "unet", 8, 320)


def _convnext() -> Built:
    model = transformers.ConvNextModel(transformers.ConvNextConfig())
    return Built(_First(model, "pixel_values"), {"pixels": torch.randn(1, 3, 224, 224)})


MODELS: dict[str, Callable[[], Built]] = {
    **{f"BERT-base, 4 layers, S={s}": partial(_bert, s) for s in (128, 512)},
    **{f"DistilBERT, 4 layers, S={s}": partial(_distilbert, s) for s in (128, 512)},
    **{f"GPT-2, 4 layers, prompt S={s}": partial(_gpt2, s) for s in (128, 512)},
    f"GPT-2, 4 layers, decode after {PAST}": partial(_gpt2, 1, PAST),
    **{f"LLaMA-like, 4 layers, prompt S={s}": partial(_llama, s) for s in (128, 512)},
    f"LLaMA-like, 4 layers, decode after {PAST}": partial(_llama, 1, PAST),
    "ViT-B/16, 4 layers": _vit,
    "Whisper-tiny encoder": _whisper,
    "CLIP text, 4 layers": _clip,
    **{f"T5-small encoder, 4 layers, S={s}": partial(_t5, s) for s in (128, 512)},
    "UNet block, 320 x 64 x 64": _unet,
    "ConvNeXt-tiny": _convnext,
}


def build(name: str) -> Built:
    """The model, always with the same weights."""
    torch.manual_seed(SEED)
    made = MODELS[name]()
    made.module.eval()
    return made


def export(name: str, path: Path, feeds: Path) -> None:
    """Write the model in ONNX, and its inputs as an .npz."""
    built = build(name)
    names = list(built.inputs)
    with torch.no_grad():
        program: Any = torch.onnx.export(
            built.module, tuple(built.inputs.values()), dynamo=True, input_names=names, opset_version=OPSET, verbose=False
        )
    program.save(str(path))
    np.savez(feeds, **{n: x.numpy() for n, x in built.inputs.items()})
