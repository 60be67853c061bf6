"""Whole sessions on a GPU: a block of GPT-2 small at 1,024 tokens and one of LLaMA-7B at 2,048, float16, by four strategies.

Needs onnxruntime-gpu. Times are those of runs whose inputs and outputs stay on the GPU. Row kernels are measured beside a copy.
"""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime
from blueprints import GPT2_SMALL, LLAMA_7B, gpt2, llama
from onnx import TensorProto, helper

import onnxfuse

PROVIDERS = ["CUDAExecutionProvider", "CPUExecutionProvider"]
WITHOUT_ATTENTION = ("attention", "attention_operator")
STRATEGIES: dict[str, dict[str, Any]] = {
    "none": {"level": "none"},
    "element-wise": {"level": "elementwise"},
    "full, without attention": {"level": "cost", "disable": WITHOUT_ATTENTION},
    "full, with attention": {"level": "cost"},
}
ROWS, COLUMNS = 32768, 4096  # 256 MB of float16
WARM, RUNS = 3, 10


def measure_all() -> list[dict[str, Any]]:
    """One row a strategy, beside ONNX Runtime's own fusions of the unfused model, and one a row kernel beside a copy."""
    found = list(_row_kernels())
    blocks = (
        (gpt2, replace(GPT2_SMALL, layers=1, vocabulary=512, has_data=True)),
        (llama, replace(LLAMA_7B, layers=1, vocabulary=512, has_data=True)),
    )
    for build, config in blocks:
        model, base = build(config), 0.0
        for name, options in STRATEGIES.items():
            try:
                fused = onnxfuse.optimize(model, device="auto", verify=False, shapes={"batch": 1, "seq": config.length}, **options).model
                ours = _milliseconds(fused, {"batch": 1, "seq": config.length})
            except Exception as error:  # one strategy that fails is a finding, and the others go on
                found.append(_row(f"{config.name} block, {name}", f"failed: {error}", "", ""))
                continue
            base = base or ours
            found.append(_row(f"{config.name} block, {name}", f"{ours:.3f} ms", f"{base:.3f} ms, nothing of ours", f"{base / ours:.2f}"))
    for row in found:
        print(f"   {row['case']}: {row['ours']}, {row['other']}, x{row['ratio']} {row['peak']}")
    return found


def _row(case: str, ours: str, other: str, ratio: str, peak: str = "") -> dict[str, Any]:
    return {"case": case, "ours": ours, "other": other, "ratio": ratio, "peak": peak}


def _milliseconds(model: onnx.ModelProto, sizes: dict[str, int]) -> float:
    """The median time of a run."""
    session = onnxfuse.session(model, PROVIDERS)
    binding = session.io_binding()
    for value in session.get_inputs():
        shape = [size if isinstance(size, int) else sizes[size] for size in value.shape]
        array = np.zeros(shape, np.int64) if value.type == "tensor(int64)" else np.random.default_rng(7).standard_normal(shape)
        kind = {"tensor(float16)": np.float16, "tensor(float)": np.float32, "tensor(int64)": np.int64}[value.type]
        binding.bind_ortvalue_input(value.name, onnxruntime.OrtValue.ortvalue_from_numpy(array.astype(kind), "cuda", 0))
    for value in session.get_outputs():
        binding.bind_output(value.name, "cuda")
    taken = []
    for _ in range(WARM + RUNS):
        began = time.perf_counter()
        session.run_with_iobinding(binding)
        taken.append(1000 * (time.perf_counter() - began))
    return median(taken[WARM:])


def _row_kernels() -> list[dict[str, Any]]:
    """RMSNorm, LayerNorm, softmax and GELU of 256 MB: bytes a second, beside a copy of the same."""
    wanted = {
        "RMSNorm": (["x", "scale"], {"epsilon": 1e-5, "axis": -1}),
        "LayerNorm": (["x", "scale", "scale"], {"epsilon": 1e-5, "axis": -1}),
        "Gelu": (["x"], {"approximate": "tanh"}),
    }
    found = []
    copy = _milliseconds(_one("Add", ["x", "scale"], {}, ""), {})
    for name, (inputs, attributes) in wanted.items():
        try:
            ours = _milliseconds(_one(name, inputs, attributes, "ai.onnxfuse"), {})
        except Exception as error:  # as above
            found.append(_row(f"{name} 256 MB", f"failed: {error}", "", ""))
            continue
        found.append(_row(f"{name} 256 MB", f"{ours:.3f} ms", f"{copy:.3f} ms, Add of a row", f"{copy / ours:.2f}"))
    return found


def _one(op: str, inputs: list[str], attributes: dict[str, Any], domain: str) -> onnx.ModelProto:
    """A model of one node over [ROWS, COLUMNS] float16."""
    half = TensorProto.FLOAT16
    infos = {"x": [ROWS, COLUMNS], "scale": [COLUMNS]}
    given = [helper.make_tensor_value_info(name, half, infos[name]) for name in dict.fromkeys(inputs)]
    node = helper.make_node(op, inputs, ["y"], domain=domain, **attributes)
    graph = helper.make_graph([node], "rows", given, [helper.make_tensor_value_info("y", half, [ROWS, COLUMNS])])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnxfuse", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)
