"""Sessions of the real ONNX Runtime where our library sees a GPU: what is registered then must load, and run on the CPU too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.gpu.client import LIBRARY

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
import numpy as np, onnx.parser, onnxruntime
head = '<ir_version: 9, opset_import: ["": 17, "ai.onnxfuse": 1]>'
chain = head + 'g (float[n] x) => (float[n] z) { y = ai.onnxfuse.SquaredRelu (x)  z = ai.onnxfuse.SquaredRelu_2 (y) }'
options = onnxruntime.SessionOptions()
options.add_session_config_entry("onnxfuse.providers", "CUDAExecutionProvider,CPUExecutionProvider")
options.register_custom_ops_library(sys.argv[1])
x = {"x": np.array([-1, 2], np.float32)}
made = onnxruntime.InferenceSession(onnx.parser.parse_model(chain).SerializeToString(), options, providers=["CPUExecutionProvider"])
assert made.run(None, x)[0].tolist() == [0, 16]
alone = onnx.parser.parse_model(head + 'g (float[n] x) => (float[n] y) { y = ai.onnxfuse.EmbedLayerNorm (x) }')
body = '<domain: "ai.onnxfuse", opset_import: ["": 17]> EmbedLayerNorm (x) => (y) { y = Neg(x) }'
alone.functions.append(onnx.parser.parse_function(body))  # whatever it says: there is no kernel, so it runs
made = onnxruntime.InferenceSession(alone.SerializeToString(), options, providers=["CPUExecutionProvider"])
assert made.run(None, x)[0].tolist() == [1, -2]
"""


def test_what_is_registered_for_a_gpu_loads_in_this_runtime(fakes: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(fakes), "FAKE_CUDA_DEVICES": "90", "XDG_CACHE_HOME": str(fakes / "nothing")}
    command = [sys.executable, "-c", SCRIPT, str(fakes / LIBRARY)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("onnxfuse: warning: on Fake GPU 0 (sm_90)") == 2, "of two reasons"
