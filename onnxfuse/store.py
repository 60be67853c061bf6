"""Saving: a model and its external data appear whole or not at all, and what was read is never touched.

Files are written under a name of their own beside the target and renamed. External data is copied by the
file, so that its size does not matter: it is never read into memory.
"""

from __future__ import annotations

import filecmp
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

import onnx
from google.protobuf.message import EncodeError

from onnxfuse.errors import ModelError, UsageError
from onnxfuse.graph import read_proto

MESSAGE_LIMIT = 2**31 - 1  # bytes: protobuf writes no larger message


def save(model: onnx.ModelProto, source: Path | None, target: Path) -> None:
    """Write `model` to `target`, with the external data that it refers to beside it.

    source: the file the model was read from; its folder holds the external data (None: the model has none). A data
    file keeps its name unless the target's folder has another file of that name; then the written model refers to a
    new name. In the source's own folder the data is referred to where it is. `model` itself is not changed.
    Raises UsageError (target not allowed, see `check_target`) and ModelError (data missing or cut short, disk full);
    nothing is left behind then.
    """
    check_target(source, target)
    files = data_files(model, source)
    _check_not_data(files, target)
    names = {} if _same_folder(source, target) else _names(files, target)
    renamed = {old: new for old, new in names.items() if old != new}
    content = _serialized(_with_locations(model, renamed) if renamed else model, target)
    copies = {target.parent / new: files[old] for old, new in names.items()}
    with _written(target) as staged:
        _copy_all(copies, staged)
        staged(target, lambda part: part.write_bytes(content))


def copy_unchanged(source: Path, target: Path) -> None:
    """Copy a model byte for byte, its external data under the same names beside it.

    Raises as `save` does, and UsageError when the target's folder has another file of a data file's name.
    """
    check_target(source, target)
    files = data_files(read_proto(source), source)
    _check_not_data(files, target)
    if _same_folder(source, target):
        files = {}
    for old, new in _names(files, target).items():
        if new != old:
            place = target.parent / old
            raise UsageError(f"{place}: must be a copy of the model's external data, or absent. Write to another folder, or move it away")
    with _written(target) as staged:
        _copy_all({target.parent / name: path for name, path in files.items()}, staged)
        staged(target, lambda part: shutil.copyfile(source, part))


def write_text(text: str, target: Path) -> None:
    """Write a text file that appears whole or not at all. Raises ModelError when it cannot be written."""
    with _written(target) as staged:
        staged(target, lambda part: part.write_text(text, encoding="utf-8"))


def check_not_data(model: Path, target: Path) -> None:
    """Raise UsageError when `target` is a file that holds external data of a model."""
    names = {e.value for tensor in external_tensors(read_proto(model)) for e in tensor.external_data if e.key == "location"}
    _check_not_data({name: model.parent / name for name in names}, target)


def check_target(source: Path | None, target: Path) -> None:
    """Raise UsageError when `target` cannot be written, or is the input itself. Nothing stays written."""
    try:
        problem = _target_problem(source, target)
        if problem is None:
            probe = _part(target.parent)
            probe.touch(exist_ok=False)
            probe.unlink()
    except OSError as error:
        problem = f"its folder {target.parent} must be writable: {error.strerror}. Change its permissions, or choose another"
    if problem:
        raise UsageError(f"{target}: {problem}")


def _target_problem(source: Path | None, target: Path) -> str | None:
    folder = target.parent
    if not folder.is_dir():
        return f"its folder {folder} must exist; it does not. Create it with `mkdir -p {folder}`, or choose another"
    if target.is_dir():
        return f"is a folder. Name the file to write, for example {target / 'model.onnx'}"
    if target.exists() and not target.is_file():
        return "is a device or pipe, which cannot be replaced. Name a file to write"
    if source is not None and _is_same_file(source, target):
        return "the output must not be the input. Name another file; the input is kept as it is"
    return None


def data_files(model: onnx.ModelProto, source: Path | None) -> dict[str, Path]:
    """Where each external data file that the model refers to lies, by the name the model calls it.

    Raises ModelError for a file that is missing, outside of the model's folder, or shorter than what is said to be in it.
    """
    ends: dict[str, int] = {}
    for tensor in external_tensors(model):
        entries = {e.key: e.value for e in tensor.external_data}
        name = entries.get("location", "")
        ends[name] = max(ends.get(name, 0), _end(tensor.name, entries))
    if ends and source is None:
        raise ModelError(f"the model keeps data in {_listed(ends)}, and it came from memory. Give the path of its file instead")
    return {} if source is None else {name: _found(name, end, source.parent) for name, end in ends.items()}


def external_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of the model whose data lies in another file: weights, constants, those inside bodies and functions."""
    tensors = [*_graph_tensors(model.graph), *(t for f in model.functions for n in f.node for t in _node_tensors(n))]
    return (t for t in tensors if t.data_location == onnx.TensorProto.EXTERNAL)


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from _node_tensors(node)


def _node_tensors(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    for attribute in node.attribute:
        yield from (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
        for body in (attribute.g, *attribute.graphs):
            yield from _graph_tensors(body)


def _end(tensor: str, entries: Mapping[str, str]) -> int:
    """The first byte after a tensor in its file, as far as the entries say."""
    try:
        return int(entries.get("offset", 0)) + int(entries.get("length", 0))
    except ValueError:
        raise ModelError(
            f"initializer '{tensor}': offset and length of its external data must be numbers; got {dict(entries)}. Export it again"
        ) from None


def _found(name: str, end: int, folder: Path) -> Path:
    parts = PurePosixPath(name.replace("\\", "/"))  # a model made on Windows may have either
    if not name or parts.is_absolute() or ".." in parts.parts or Path(name).is_absolute():
        raise ModelError(f"external data '{name}' must lie in the folder of the model, or below it. Move it there, and export again")
    path = folder / name
    if not path.is_file():
        raise ModelError(f"external data '{name}' must lie beside the model, at {path}; there is no such file. Put it back")
    size = path.stat().st_size
    if size < end:
        raise ModelError(f"external data '{name}' must have {end:,} bytes; {path} has {size:,}: it is cut short. Copy it again")
    return path


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _is_same_file(a: Path, b: Path) -> bool:
    """Whether two paths are one file: through links, and through folders that are links."""
    if a.exists() and b.exists():
        return a.samefile(b)
    return a.resolve() == b.resolve()


def _same_folder(source: Path | None, target: Path) -> bool:
    return source is not None and source.parent.samefile(target.parent)


def _check_not_data(files: Mapping[str, Path], target: Path) -> None:
    for name, path in files.items():
        if _is_same_file(path, target):
            raise UsageError(f"{target}: holds the input's external data '{name}'. Name another file; the input is kept as it is")


def _names(files: Mapping[str, Path], target: Path) -> dict[str, str]:
    """The name that each data file gets in the target's folder: its own, or one like it where that is taken."""
    taken = {target.resolve()}
    names = {}
    for name, source in files.items():
        new, number = name, 0
        while not _is_free(target.parent / new, source, taken):
            number += 1
            path = PurePosixPath(name)
            new = str(path.with_name(f"{path.stem}-{number}{path.suffix}"))
        taken.add((target.parent / new).resolve())
        names[name] = new
    return names


def _is_free(place: Path, source: Path, taken: Collection[Path]) -> bool:
    """Whether nothing lies at `place`, or exactly what `source` holds."""
    if place.resolve() in taken:
        return False
    return not os.path.lexists(place) or (place.is_file() and filecmp.cmp(source, place, shallow=False))


def _with_locations(model: onnx.ModelProto, renamed: Mapping[str, str]) -> onnx.ModelProto:
    """A copy of the model that calls its data files by their new names."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in external_tensors(copy):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = renamed.get(entry.value, entry.value)
    return copy


def _serialized(model: onnx.ModelProto, target: Path) -> bytes:
    content: bytes | None
    try:
        content = model.SerializeToString()
    except (EncodeError, ValueError):
        content = None
    if content is None or len(content) > MESSAGE_LIMIT:
        raise ModelError(f"{target}: the model holds more than the 2 GB that an .onnx file can. Save the input with external data first")
    return content


Stage = Callable[[Path, Callable[[Path], object]], None]


@contextmanager
def _written(target: Path) -> Iterator[Stage]:
    """Lets files be staged, each by a function that writes the path it is given; all take their names at the end, in order.

    When anything fails, whatever was made so far is removed.
    """
    staged: dict[Path, Path] = {}
    made: list[Path] = []

    def stage(final: Path, write: Callable[[Path], object]) -> None:
        made.extend(_make_folders(final.parent))
        part = _part(final.parent)
        made.append(part)
        staged[final] = part
        write(part)

    try:
        yield stage
        for final, part in staged.items():
            part.replace(final)
            if final != target:
                made.append(final)
    except BaseException as error:
        for path in reversed(made):
            with suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        if isinstance(error, OSError):
            raise ModelError(
                f"{target}: cannot be written: {error.strerror}. Nothing was left behind; make room or choose another folder"
            ) from error
        raise


def _part(folder: Path) -> Path:
    """A name for a file that is not whole yet; nobody else has it."""
    return folder / f".{secrets.token_hex(8)}.part"


def _make_folders(folder: Path) -> list[Path]:
    """Create a folder and those above it; return the new ones, outermost first."""
    missing = [f for f in (folder, *folder.parents) if not f.exists()][::-1]
    for path in missing:
        path.mkdir()
    return missing


def _copy_all(copies: Mapping[Path, Path], stage: Stage) -> None:
    """Stage a copy of each data file whose place is still empty."""
    for place, source in copies.items():
        if not os.path.lexists(place):
            stage(place, lambda part, source=source: shutil.copyfile(source, part))  # type: ignore[misc]  # binds this turn's file
