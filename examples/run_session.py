"""Optimise a model, run it in ONNX Runtime in three ways, and compare: python run_session.py IN.onnx OUT.onnx."""

import sys

import numpy as np
import onnx
import onnxruntime

import onnxfuse
from onnxfuse.inputs import feeds

if len(sys.argv) != 3:
    sys.exit("usage: python run_session.py IN.onnx OUT.onnx")
source, target = sys.argv[1:]
onnxfuse.optimize(source, target)

cpu = ["CPUExecutionProvider"]
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(str(onnxfuse.library_path()))
ways = {
    "onnxfuse.session": onnxfuse.session(target, cpu),
    "plain ONNX Runtime with the library": onnxruntime.InferenceSession(target, options, providers=cpu),
    "plain ONNX Runtime without it": onnxruntime.InferenceSession(target, providers=cpu),  # runs the functions in the model
}

original = onnxruntime.InferenceSession(source, providers=cpu)
for feed in feeds(onnx.load(source), seed=0):
    want = original.run(None, feed)
    for name, session in ways.items():
        worst = max(float(np.abs(a - b).max()) for a, b in zip(session.run(None, feed), want, strict=True))
        print(f"{name}: largest difference {worst:.1e}")
        assert worst < 1e-4
