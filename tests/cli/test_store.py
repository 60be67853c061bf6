"""Saving: atomic, external data beside the output, the input never touched."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxfuse import store
from onnxfuse.errors import ModelError, OnnxFuseError, UsageError
from onnxfuse.graph import read_proto

WEIGHTS = {"a": np.arange(7, dtype=np.float32), "b": np.arange(5, dtype=np.float32) + 100, "c": np.ones(3, np.float32)}


def external(name: str, location: str, offset: int, length: int) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[length // 4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def model_of(tensors: list[TensorProto]) -> onnx.ModelProto:
    """One Identity per tensor."""
    nodes = [helper.make_node("Identity", [t.name], [f"{t.name}_out"]) for t in tensors]
    outputs = [helper.make_tensor_value_info(f"{t.name}_out", TensorProto.FLOAT, None) for t in tensors]
    graph = helper.make_graph(nodes, "g", [], outputs, initializer=tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write_model(folder: Path, location: str = "weights.bin") -> Path:
    """A model whose weights all lie in one file at offsets, one of them behind a gap."""
    place = folder / location
    place.parent.mkdir(parents=True, exist_ok=True)
    content, tensors = b"", []
    for name, array in WEIGHTS.items():
        content += b"\0" * 64
        tensors.append(external(name, location, len(content), array.nbytes))
        content += array.tobytes()
    place.write_bytes(content)
    path = folder / "model.onnx"
    onnx.save(model_of(tensors), path)
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return write_model(tmp_path / "in")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def weights(path: Path) -> dict[str, list[float]]:
    model = onnx.load(path)
    return {t.name: numpy_helper.to_array(t).tolist() for t in model.graph.initializer}


EXPECTED = {name: array.tolist() for name, array in WEIGHTS.items()}


def test_saved_model_has_its_data_beside_it_and_the_input_is_untouched(source: Path, out: Path) -> None:
    before = contents(source.parent)
    store.save(read_proto(source), source, out / "model.onnx")
    assert set(contents(out)) == {"model.onnx", "weights.bin"}
    assert weights(out / "model.onnx") == EXPECTED
    assert contents(source.parent) == before


def test_data_in_a_subfolder_keeps_its_subfolder(tmp_path: Path, out: Path) -> None:
    source = write_model(tmp_path, "data/deep/weights.bin")
    store.save(read_proto(source), source, out / "m.onnx")
    assert set(contents(out)) == {"m.onnx", "data/deep/weights.bin"}
    assert weights(out / "m.onnx") == EXPECTED


def test_same_folder_refers_to_the_same_data(source: Path) -> None:
    before = contents(source.parent)
    store.save(read_proto(source), source, source.parent / "smaller.onnx")
    after = contents(source.parent)
    assert set(after) - set(before) == {"smaller.onnx"}
    assert weights(source.parent / "smaller.onnx") == EXPECTED


def test_same_folder_through_a_link_refers_to_the_same_data(source: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(source.parent)
    store.save(read_proto(source), source, tmp_path / "link" / "smaller.onnx")
    assert set(contents(source.parent)) == {"model.onnx", "weights.bin", "smaller.onnx"}


def test_taken_data_name_is_avoided(source: Path, out: Path) -> None:
    (out / "weights.bin").write_bytes(b"somebody else's")
    store.save(read_proto(source), source, out / "m.onnx")
    assert (out / "weights.bin").read_bytes() == b"somebody else's"
    assert set(contents(out)) == {"m.onnx", "weights.bin", "weights-1.bin"}
    assert weights(out / "m.onnx") == EXPECTED


def test_data_named_like_the_output_is_renamed(tmp_path: Path, out: Path) -> None:
    source = write_model(tmp_path, "m.onnx.bin")
    store.save(read_proto(source), source, out / "m.onnx.bin")
    assert set(contents(out)) == {"m.onnx.bin", "m.onnx-1.bin"}
    assert weights(out / "m.onnx.bin") == EXPECTED


def test_two_data_files_never_get_one_name(tmp_path: Path, out: Path) -> None:
    tensors = []
    for name, location, value in (("a", "w.bin", 1.0), ("b", "w-1.bin", 2.0)):
        (tmp_path / location).write_bytes(np.full(4, value, np.float32).tobytes())
        tensors.append(external(name, location, 0, 16))
    source = tmp_path / "model.onnx"
    onnx.save(model_of(tensors), source)
    (out / "w.bin").write_bytes(b"taken")
    store.save(read_proto(source), source, out / "m.onnx")
    assert weights(out / "m.onnx") == {"a": [1.0] * 4, "b": [2.0] * 4}


def test_saving_twice_adds_no_second_copy(source: Path, out: Path) -> None:
    for _ in range(2):
        store.save(read_proto(source), source, out / "m.onnx")
    assert set(contents(out)) == {"m.onnx", "weights.bin"}


def test_given_model_is_not_changed_by_renaming(source: Path, out: Path) -> None:
    (out / "weights.bin").write_bytes(b"taken")
    model = read_proto(source)
    before = model.SerializeToString()
    store.save(model, source, out / "m.onnx")
    assert model.SerializeToString() == before


def test_unchanged_copy_is_byte_for_byte(source: Path, out: Path) -> None:
    store.copy_unchanged(source, out / "model.onnx")
    assert contents(out) == contents(source.parent)


def test_unchanged_copy_into_the_same_folder_shares_the_data(source: Path) -> None:
    store.copy_unchanged(source, source.parent / "copy.onnx")
    assert (source.parent / "copy.onnx").read_bytes() == source.read_bytes()
    assert set(contents(source.parent)) == {"model.onnx", "weights.bin", "copy.onnx"}


def test_unchanged_copy_refuses_a_taken_data_name(source: Path, out: Path) -> None:
    (out / "weights.bin").write_bytes(b"taken")
    with pytest.raises(UsageError, match="weights.bin: must be a copy"):
        store.copy_unchanged(source, out / "model.onnx")
    assert contents(out) == {"weights.bin": b"taken"}


def in_every_place(location: str) -> onnx.ModelProto:
    """External tensors as initializer, constant, sparse value, in a body and in a function."""
    tensors = [external(str(i), f"{location}{i}", 0, 4) for i in range(6)]
    body = helper.make_graph([helper.make_node("Constant", [], ["y"], value=tensors[0])], "body", [], [], initializer=[tensors[1]])
    node = helper.make_node("If", ["c"], ["z"], then_branch=body)
    constant = helper.make_node("Constant", [], ["k"], value=tensors[2])
    graph = helper.make_graph([node, constant], "g", [], [], initializer=[tensors[3]])
    graph.sparse_initializer.append(helper.make_sparse_tensor(tensors[4], helper.make_tensor("i", TensorProto.INT64, [1], [0]), [1]))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    function = model.functions.add(name="f", domain="d")
    function.node.append(helper.make_node("Constant", [], ["k"], value=tensors[5]))
    return model


def test_external_data_is_found_wherever_a_tensor_may_stand() -> None:
    assert {t.name for t in store.external_tensors(in_every_place("w"))} == set("012345")


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/hostname", "a/../../weights.bin", "..\\weights.bin", ""])
def test_data_outside_of_the_folder_is_refused(tmp_path: Path, out: Path, location: str) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(64))
    source = tmp_path / "in" / "model.onnx"
    source.parent.mkdir()
    onnx.save(model_of([external("a", location, 0, 4)]), source)
    for attempt in (lambda: store.save(read_proto(source), source, out / "m.onnx"), lambda: store.copy_unchanged(source, out / "m.onnx")):
        with pytest.raises(ModelError, match="must lie in the folder of the model"):
            attempt()
    assert contents(out) == {}


def test_missing_data_is_named(source: Path, out: Path) -> None:
    (source.parent / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"external data 'weights.bin' must lie beside the model"):
        store.save(read_proto(source), source, out / "m.onnx")
    assert contents(out) == {}


def test_data_cut_short_is_named(source: Path, out: Path) -> None:
    data = source.parent / "weights.bin"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(ModelError, match="cut short"):
        store.save(read_proto(source), source, out / "m.onnx")
    assert contents(out) == {}


def test_model_from_memory_with_external_data_is_refused(source: Path, out: Path) -> None:
    with pytest.raises(ModelError, match="Give the path"):
        store.save(read_proto(source), None, out / "m.onnx")


def test_model_from_memory_is_saved(out: Path) -> None:
    model = model_of([numpy_helper.from_array(WEIGHTS["a"], "a")])
    store.save(model, None, out / "m.onnx")
    assert (out / "m.onnx").read_bytes() == model.SerializeToString()


def aliases(source: Path, folder: Path) -> list[Path]:
    """Other paths that are the same file."""
    (folder / "soft.onnx").symlink_to(source)
    os.link(source, folder / "hard.onnx")
    (folder / "folder").symlink_to(source.parent)
    return [
        source,
        folder / "soft.onnx",
        folder / "hard.onnx",
        folder / "folder" / source.name,
        source.parent / ".." / source.parent.name / source.name,
    ]


def test_output_equal_to_input_is_refused_however_it_is_spelled(source: Path, out: Path) -> None:
    before = source.read_bytes()
    for alias in aliases(source, out):
        with pytest.raises(UsageError, match="must not be the input"):
            store.save(read_proto(source), source, alias)
    assert source.read_bytes() == before


def test_output_equal_to_the_data_is_refused(source: Path) -> None:
    before = contents(source.parent)
    for attempt in (store.copy_unchanged, lambda a, b: store.save(read_proto(a), a, b)):
        with pytest.raises(UsageError, match="external data"):
            attempt(source, source.parent / "weights.bin")
    assert contents(source.parent) == before


@pytest.mark.parametrize(("target", "says"), [("no/such/m.onnx", "must exist"), ("folder", "is a folder"), ("pipe", "device or pipe")])
def test_impossible_target_is_refused(source: Path, out: Path, target: str, says: str) -> None:
    (out / "folder").mkdir()
    os.mkfifo(out / "pipe")
    with pytest.raises(UsageError, match=says):
        store.check_target(source, out / target)
    assert set(os.listdir(out)) == {"folder", "pipe"}


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Root may write everywhere: act as somebody who may not."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_read_only_folder_is_refused() -> None:
    with tempfile.TemporaryDirectory() as name:  # not below pytest's own folder, into which others may not look
        folder = Path(name)
        folder.chmod(0o555)
        with ordinary_user(), pytest.raises(UsageError, match="must be writable: Permission denied"):
            store.check_target(None, folder / "m.onnx")
        assert contents(folder) == {}


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """Writing past so many bytes fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("limit", [40, 260])
def test_full_disk_leaves_nothing_behind(source: Path, out: Path, limit: int) -> None:
    """At 40 bytes the data does not fit, at 260 the data does and the model does not."""
    assert (source.parent / "weights.bin").stat().st_size <= 260 < source.stat().st_size
    (out / "m.onnx").write_bytes(b"what was there")
    model = read_proto(source)
    with files_end_at(limit), pytest.raises(ModelError, match="cannot be written: File too large"):
        store.save(model, source, out / "m.onnx")
    assert contents(out) == {"m.onnx": b"what was there"}


def test_failure_in_a_subfolder_takes_the_subfolder_away(tmp_path: Path, out: Path) -> None:
    source = write_model(tmp_path, "data/weights.bin")
    model = read_proto(source)
    with files_end_at(40), pytest.raises(OnnxFuseError):
        store.save(model, source, out / "m.onnx")
    assert os.listdir(out) == []


def test_existing_output_is_replaced_and_what_it_linked_to_is_kept(source: Path, out: Path) -> None:
    (out / "other.onnx").write_bytes(b"kept")
    (out / "m.onnx").symlink_to(out / "other.onnx")
    store.save(read_proto(source), source, out / "m.onnx")
    assert (out / "other.onnx").read_bytes() == b"kept"
    assert weights(out / "m.onnx") == EXPECTED


def test_written_files_have_the_usual_permissions(source: Path, out: Path) -> None:
    (out / "plain").touch()
    store.save(read_proto(source), source, out / "m.onnx")
    assert {(out / name).stat().st_mode for name in ("m.onnx", "weights.bin")} == {(out / "plain").stat().st_mode}


SAVES = """
import resource, sys
from pathlib import Path
from onnxfuse import graph, store
source, target = map(Path, sys.argv[1:])
model = graph.read_proto(source)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
store.save(model, source, target)
store.copy_unchanged(source, target)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_external_data_is_never_in_memory(tmp_path: Path, out: Path) -> None:
    size = 200 * 2**20
    source = tmp_path / "model.onnx"
    with open(tmp_path / "weights.bin", "wb") as file:
        file.truncate(size)
    onnx.save(model_of([external("a", "weights.bin", 0, size)]), source)
    done = subprocess.run([sys.executable, "-c", SAVES, source, out / "m.onnx"], capture_output=True, text=True, check=True)
    assert (out / "weights.bin").stat().st_size == size
    assert int(done.stdout) < 20 * 2**10  # kB
