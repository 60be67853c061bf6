"""What holds between a session and the driver: who is registered where, what is started with what, and how failures are told."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from onnxfuse import custom_ops
from tests.gpu.client import Client, Ran
from tests.gpu.runtime import CUDA

CPU = "CPUExecutionProvider"
ENTRY = {"onnxfuse.providers": f"{CUDA},{CPU}"}
X = np.random.default_rng(5).standard_normal((33, 1000)).astype(np.float32)
Start = Callable[..., Client]


@pytest.fixture
def start(fakes: Path) -> Iterator[Start]:
    """Starts further processes, and ends them."""
    clients: list[Client] = []

    def make(**options: object) -> Client:
        clients.append(Client(fakes, **options))  # type: ignore[arg-type]
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def gelu(gpu: Client, **options: object) -> Ran:
    return gpu.run("Gelu", {"approximate": "tanh"}, [X, None], ["float"], **options)


def by_provider(registered: list[tuple[str, str, int]]) -> dict[str, set[str]]:
    return {provider: {name for name, other, _ in registered if other == provider} for provider in (CUDA, CPU)}


def test_on_a_gpu_names_without_kernel_are_left_to_their_bodies(start: Start) -> None:
    gpu = start()
    for _ in range(2):
        names = by_provider(gpu.ask("registered", ENTRY))
        assert names[CUDA] == names[CPU]
        assert {"Gelu", "Gelu_6", "FusedElementwise_40", "LayerNorm"} <= names[CUDA]
        assert not {"Attention", "EmbedLayerNorm"} & names[CUDA]
    said = gpu.close()
    bodies = "onnxfuse: warning: on Fake GPU 0 (sm_90) these operators run by their function bodies: "
    assert said.count(f"{bodies}EmbedLayerNorm. They have no CUDA kernel in this version") == 1
    assert said.count(f"{bodies}Attention, GatedLinear, Linear. Compile") == 1


@pytest.mark.parametrize(("config", "available", "is_gpu"), [
    (ENTRY, [CUDA, CPU], True),
    ({}, [CUDA, CPU], True),
    ({}, [CPU], False),
    ({"onnxfuse.providers": CPU}, [CUDA, CPU], False),
])  # fmt: skip
def test_session_is_on_a_gpu_where_it_says_so_or_could_be(gpu: Client, config: dict[str, str], available: list[str], is_gpu: bool) -> None:
    names = by_provider(gpu.ask("registered", config, available))
    assert bool(names[CUDA]) == is_gpu
    assert is_gpu or set(custom_ops.all_ops()) <= names[CPU]


def test_a_gpu_that_is_not_there_is_told_once_and_everything_runs_on_the_cpu(start: Start) -> None:
    gpu = start(devices="")
    for _ in range(3):
        names = by_provider(gpu.ask("registered", ENTRY))
        assert names[CUDA] == set() and "Attention" in names[CPU]
    assert gpu.ask("registered", {})  # nobody asked for a GPU: nothing to tell
    said = gpu.close()
    assert said.count("onnxfuse: warning: ") == 1
    assert f"the session asks for {CUDA}, but the CUDA driver shows no device" in said


def test_a_device_that_the_compiler_does_not_know_gets_no_kernels(start: Start) -> None:
    gpu = start(devices="70")
    assert by_provider(gpu.ask("registered", ENTRY)) == {CUDA: set(), CPU: set()}
    assert "compiles for sm_75 and newer, the device is sm_70" in gpu.close()


def test_a_device_newer_than_the_compiler_gets_text_that_the_driver_compiles(start: Start) -> None:
    ran = gelu(start(devices="121"))
    assert [event["image"] for event in ran.launches] == ["compute_90"]


@pytest.mark.parametrize(("device", "image"), [(0, "sm_90"), (1, "sm_80")])
def test_a_node_runs_on_the_device_and_the_stream_of_its_session(gpu: Client, device: int, image: str) -> None:
    (launch,) = gelu(gpu, device=device).launches
    assert (launch["device"], launch["image"], launch["stream"]) == (device, image, 0x5000 + device)


def test_a_launch_has_the_grid_and_the_arguments_of_its_sizes(gpu: Client) -> None:
    (launch,) = gelu(gpu).launches
    assert (launch["kernel"], launch["grid"], launch["threads"], launch["shared"]) == ("fused", [33, 1], 256, 0)
    words = struct.unpack("<13q", bytes.fromhex(launch["argument"]))
    assert words[:4] == (1, X.size, 1, X.size)  # rows, columns, chunks, elements in each
    assert words[4:6] == (1, X.size)  # axes: of the rows, of the columns
    assert words[6:10] == (0, 1, 0, 1)  # steps of x and y
    assert all(word % 16 == 0 and word > 0 for word in words[10:12])  # where they are, good for loads of 16 bytes
    assert words[12] == 0  # no scratch


def test_what_a_model_leaves_open_is_made_ready_all_the_same(gpu: Client) -> None:
    ran = gelu(gpu, declared=[("rows", "columns"), None])
    assert [event["event"] for event in ran.launches] == ["launch"]


def test_a_form_that_sizes_ask_for_at_run_time_is_made_then(gpu: Client) -> None:
    odd = np.ones((3, 7), np.float32)  # 7: no vectors of 4
    ran = gpu.run("Silu", {"alpha": 1.75}, [odd, None], ["float"], declared=[("rows", "columns"), None])
    assert [event["event"] for event in (*ran.made, *ran.launches)] == ["load", "load", "launch"]


@pytest.mark.parametrize(("shape", "kernels"), [
    ((5, 768), ["fused"]),  # in the registers of a warp
    ((3, 4096), ["fused"]),  # of a block
    ((4, 24000), ["fused"]),  # too long for registers, too many rows to be split: read again
    ((2, 40004), ["fused_0", "fused_1", "fused_2"]),  # few and long: split over blocks
    ((1, 131101), ["fused_0", "fused_1", "fused_2"]),  # without vectors
])  # fmt: skip
def test_a_row_of_any_length_is_normalised(gpu: Client, shape: tuple[int, int], kernels: list[str]) -> None:
    x = (np.random.default_rng(3).standard_normal(shape) * 3 + 100).astype(np.float32)
    ran = gpu.run("LayerNorm", {"axis": -1, "epsilon": 1e-5}, [x, None, None], ["float"])
    wide = x.astype(np.float64)
    want = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(ran.outputs[0][0], want, atol=3e-5)
    assert [event["kernel"] for event in ran.launches] == kernels


def test_an_output_may_lie_over_an_input(gpu: Client) -> None:
    for op, attributes, inputs in (
        ("Gelu", {"approximate": "tanh"}, [X, None]),
        ("LayerNorm", {"axis": -1, "epsilon": 1e-5}, [X, None, None]),
        ("RotaryEmbedding", {"interleaved": 0, "rotary_dim": 512}, [X, np.ones((1, 256), np.float32), np.ones((1, 256), np.float32)]),
    ):
        apart = gpu.run(op, attributes, inputs, ["float"]).outputs[0][0]
        over = gpu.run(op, attributes, inputs, ["float"], over={0: 0}).outputs[0][0]
        np.testing.assert_array_equal(apart, over)


def test_many_threads_share_a_node(gpu: Client) -> None:
    want = gelu(gpu).outputs[0][0]
    for one in gelu(gpu, threads=4, runs=12).outputs:
        np.testing.assert_array_equal(one[0], want)


def test_what_the_driver_refuses_ends_the_run_with_a_status(gpu: Client) -> None:
    gpu.ask("fail", "cuLaunchKernel", 719)
    says = "onnxfuse Gelu 'tested': CUDA driver: cuLaunchKernel failed with CUDA_ERROR_LAUNCH_FAILED (719): said by the fake driver"
    with pytest.raises(RuntimeError, match=re.escape(says)):
        gelu(gpu)
    assert gelu(gpu).launches  # and the next run is as good as ever


def test_what_cannot_be_loaded_or_compiled_ends_the_making_of_the_node(start: Start) -> None:
    gpu = start()
    gpu.ask("fail", "cuModuleLoadData", 719)
    with pytest.raises(RuntimeError, match="onnxfuse Gelu 'tested': CUDA driver: cuModuleLoadData failed"):
        gelu(gpu, only_make=True)
    gpu.ask("set_variable", "FAKE_NVRTC_CXX", "echo no such compiler >&2; false")
    with pytest.raises(RuntimeError, match="onnxfuse Silu 'tested': NVRTC refuses a kernel for sm_90"):
        gpu.run("Silu", {"alpha": 1.0}, [X, None], ["float"], only_make=True)


def test_shapes_that_do_not_fit_end_the_run_with_a_status(gpu: Client) -> None:
    with pytest.raises(RuntimeError, match="onnxfuse Gelu 'tested': bias must have"):
        gpu.run("Gelu", {"approximate": "none"}, [X, np.ones(7, np.float32)], ["float"])


def test_compiled_kernels_are_kept_on_disk_and_damaged_ones_made_anew(start: Start, tmp_path: Path) -> None:
    want = gelu(start(cache=tmp_path)).outputs[0][0]
    (file,) = tmp_path.iterdir()
    kept = file.read_bytes()
    reader = start(cache=tmp_path)
    reader.ask("set_variable", "FAKE_NVRTC_CXX", "false")  # a compiler that fails is not asked
    np.testing.assert_array_equal(gelu(reader).outputs[0][0], want)
    for damaged in (kept[:-1], kept[:200] + b"?" + kept[201:], b""):
        file.write_bytes(damaged)
        np.testing.assert_array_equal(gelu(start(cache=tmp_path)).outputs[0][0], want)
        assert [path.name for path in tmp_path.iterdir()] == [file.name]
        assert len(file.read_bytes()) > 200


def test_processes_share_the_cache(start: Start, tmp_path: Path) -> None:
    clients = [start(cache=tmp_path) for _ in range(3)]
    results = [gelu(client).outputs[0][0] for client in clients]
    for one in results[1:]:
        np.testing.assert_array_equal(one, results[0])
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be_written_is_done_without(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert gelu(start(cache=tmp_path / "file")).launches
