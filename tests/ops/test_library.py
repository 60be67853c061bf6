"""What holds for the library as a whole: its ABI, its threads, its sessions, what it tells the runtime."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from onnxfuse import custom_ops
from onnxfuse import runtime as session
from onnxfuse.case import Case
from onnxfuse.op import DOMAIN, VERSION, Op
from tests.ops import abi, harness

ROOT = Path(__file__).parents[2]
INFERS_WITH_ABSENT_INPUTS = LENDS_SIZES = abi.parts(onnxruntime.__version__) >= (1, 24)


def _first_case(op: Op) -> Case:
    return next(case for other, case in custom_ops.all_cases() if other is op)


def _every_op() -> list[Op]:
    return list(custom_ops.all_ops().values())


def _chain(op: str, shape: tuple[int, ...], **attributes: object) -> onnx.ModelProto:
    """relu(op(op(relu(x)))): the values in the middle have one reader each, so that the op may work in place."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node(op, ["a"], ["b"], domain=DOMAIN, name="first", **attributes),
        helper.make_node(op, ["b"], ["c"], domain=DOMAIN, name="second", **attributes),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("x", "y", "a", "b", "c")]
    graph = helper.make_graph(nodes, "chain", infos[:1], infos[1:2], value_info=infos[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, VERSION)], ir_version=8)


def _product(shape: tuple[int, int]) -> onnx.ModelProto:
    """A product with a weight that the kernel may keep."""
    weight = onnx.numpy_helper.from_array(np.random.default_rng(4).standard_normal((shape[1], 3)).astype(np.float32), "w")
    node = helper.make_node("Linear", ["x", "w"], ["y"], domain=DOMAIN, name="product", activation="relu")
    return _single(node, shape, (shape[0], 3), weight)


def _program(shape: tuple[int, int]) -> onnx.ModelProto:
    """A generated operator, which may have any number of inputs and outputs."""
    program = "x0:float\nv0:float = Exp(x0)\n-> v0"
    return _single(helper.make_node("FusedElementwise", ["x"], ["y"], domain=DOMAIN, name="program", program=program), shape, shape)


def _single(node: onnx.NodeProto, shape: tuple[int, ...], result: tuple[int, ...], *weights: onnx.TensorProto) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, s) for name, s in (("x", shape), ("y", result)))
    graph = helper.make_graph([node], "single", [x], [y], list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, VERSION)], ir_version=8)


@pytest.fixture(scope="module")
def runtimes() -> list[abi.Runtime]:
    """ONNX Runtime, and once more as an older one."""
    found = sorted((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
    if not found:
        pytest.skip("this wheel of ONNX Runtime holds the runtime inside its Python module, out of reach of the C ABI")
    return [abi.Runtime(found[0], session.library_path(), version) for version in ("", "1.18.0")]


def test_every_declared_slot_is_used_and_does_what_its_name_says(runtimes: list[abi.Runtime]) -> None:
    x = np.random.default_rng(3).standard_normal((64, 2048)).astype(np.float32)
    rotary = custom_ops.all_ops()["RotaryEmbedding"]  # lacks no input: every runtime infers its shapes
    case = _first_case(rotary)
    models = [_chain("RMSNorm", x.shape), _chain("Gelu", x.shape, approximate="tanh"), _product(x.shape), _program(x.shape)]
    uses = [(model, {"x": x}) for model in models]
    for model, feeds in (*uses, (harness.node_model(rotary, case, "float"), harness.feeds(rotary, case, "float"))):
        want = session.run(session.session(model, ["CPUExecutionProvider"]), feeds)[0]
        for runtime, providers in itertools.product(runtimes, ("", "CPUExecutionProvider")):
            got = runtime.run(runtime.session(model.SerializeToString(), providers), feeds, "y", want.shape)
            np.testing.assert_array_equal(got, want)
    for runtime in runtimes:
        with pytest.raises(RuntimeError, match="attribute 'epsilon' must be a float"):
            runtime.session(_chain("RMSNorm", x.shape, epsilon=1).SerializeToString())
    unused = {name for slot, name in abi.declared_slots().items() if not any(runtime.calls[slot] for runtime in runtimes)}
    single = {"KernelContext_ParallelFor"} if os.cpu_count() == 1 else set()
    # before 1.24 there is no inference for ops with optional inputs, and only theirs reads attributes
    assert unused == single | (set() if LENDS_SIZES else {"ReadOpAttr", "GetTensorElementTypeAndShapeDataReference"})


def test_sizes_may_change_from_run_to_run_and_wrong_ones_are_refused_each_time() -> None:
    node = helper.make_node("LayerNorm", ["x", "scale"], ["y"], domain=DOMAIN, name="normal")
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in (("x", ["b", "n"]), ("scale", ["m"]))]
    graph = helper.make_graph([node], "sizes", infos, [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, VERSION)], ir_version=8)
    kept = session.session(model, ["CPUExecutionProvider"])
    for sizes in ((3, 5), (3, 5), (2, 7), (0, 7), (3, 5), (1, 1), (3, 5)):
        feeds = {"x": np.random.default_rng(0).standard_normal(sizes).astype(np.float32), "scale": np.ones(sizes[1:], np.float32)}
        want = session.run(session.session(model, ["CPUExecutionProvider"]), feeds)[0]
        np.testing.assert_array_equal(session.run(kept, feeds)[0], want)
        for _ in range(2):
            with pytest.raises(Exception, match=r"onnxfuse LayerNorm 'normal': scale must have"):
                session.run(kept, {**feeds, "scale": np.ones(sizes[1] + 1, np.float32)})


@pytest.mark.parametrize("op", _every_op(), ids=custom_ops.all_ops())
def test_sessions_in_many_threads_give_the_same_numbers(op: Op) -> None:
    case = _first_case(op)
    values, model = harness.feeds(op, case, "float"), harness.node_model(op, case, "float")
    shared = session.session(model, ["CPUExecutionProvider"], threads=3)
    want = harness.run_session(shared, values)

    def work(number: int) -> None:
        own = shared if number % 2 else session.session(model, ["CPUExecutionProvider"], threads=2)
        for _ in range(5):
            for name, value in harness.run_session(own, values).items():
                np.testing.assert_array_equal(value, want[name])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))


@pytest.mark.parametrize("op", _every_op(), ids=custom_ops.all_ops())
def test_number_of_threads_does_not_change_a_number(op: Op) -> None:
    case = max((case for other, case in custom_ops.all_cases() if other is op), key=lambda case: np.prod(next(iter(case.shapes.values()))))
    values, model = harness.feeds(op, case, "float"), harness.node_model(op, case, "float")
    want = harness.run(model, values, register=True, threads=1)
    for threads in (2, 5):
        for name, value in harness.run(model, values, register=True, threads=threads).items():
            np.testing.assert_array_equal(value, want[name])


@pytest.mark.parametrize("op", _every_op(), ids=custom_ops.all_ops())
def test_output_written_over_an_input_has_the_same_numbers(op: Op) -> None:
    """Every input and output of the node is a value with one reader: the runtime lets the op work in place where it may."""
    for case in (case for other, case in custom_ops.all_cases() if other is op):
        model = harness.node_model(op, case, "float", value_info=True)
        want = harness.run(model, harness.feeds(op, case, "float"), register=True)
        got = harness.run(harness.with_copies(model), harness.feeds(op, case, "float"), register=True, optimizations=False)
        for name, value in got.items():
            np.testing.assert_array_equal(value, want[name])


@pytest.mark.parametrize("op", _every_op(), ids=custom_ops.all_ops())
def test_shapes_told_at_load_time_are_those_at_run_time(op: Op) -> None:
    told = 0
    for case in (case for other, case in custom_ops.all_cases() if other is op):
        for symbolic in (False, True):
            made = session.session(harness.node_model(op, case, "float", symbolic=symbolic), ["CPUExecutionProvider"])
            sizes = {f"size_{size}": size for shape in case.shapes.values() for size in shape}
            for output, value in harness.run_session(made, harness.feeds(op, case, "float")).items():
                shape = next(o.shape for o in made.get_outputs() if o.name.removesuffix(harness.OUTSIDE) == output)
                known = [(sizes.get(size, size), axis) for axis, size in enumerate(shape) if size is not None]
                assert [size for size, _ in known] == [value.shape[axis] for _, axis in known], case
                told += len(known)
    if INFERS_WITH_ABSENT_INPUTS or not any(param.optional for param in op.inputs):
        assert told > 0


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512", "amx"])
def test_every_kernel_passes_on_every_instruction_set(isa: str) -> None:
    tests = [str(Path(__file__).with_name("test_every_op.py")), "-k", "test_kernel_gives_the_numbers_of_the_body"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "ONNXFUSE_ISA": isa}, capture_output=True, text=True, check=False)
    if "is not one of the sets this machine has" in done.stdout + done.stderr:
        pytest.skip(f"this machine has no {isa}")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]


def test_onnx_runtime_that_is_too_old_is_refused_with_a_reason() -> None:
    assert "ONNX Runtime 1.18 or newer" in abi.refusal_of_an_old_runtime(session.library_path())
