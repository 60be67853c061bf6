"""ONNX Runtime, asked politely: sessions with our operator library, and its refusals in clear words.

ONNX Runtime is imported when the first session is made, never by `import onnxfuse`.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import logging
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

import onnxfuse
from onnxfuse import driver, graph
from onnxfuse.errors import ModelError, OnnxFuseError, RuntimeMissingError
from onnxfuse.op import DOMAIN

Source: TypeAlias = "str | Path | onnx.ModelProto"
Feeds: TypeAlias = "dict[str, Any]"  # by input name; tensors are arrays

LIBRARY_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
PROTO_LIMIT = 2**31 - 1  # bytes; protobuf writes no larger message
CUDA = "CUDAExecutionProvider"
PROVIDERS_ENTRY = "onnxfuse.providers"  # of a session's options: for which providers our library registers operators
SILENT = 4  # ONNX Runtime log severity: what goes wrong is told by our errors
SOURCE_PLACE = re.compile(r"/\S+\.(?:cc|h|cpp):\d+ [^()]*\((?:[^()]|\([^()]*\))*\) ?(?:const )?")  # a path, a line, a C++ signature
NO_SUCH_OP = ("is not a registered function/op", "No Op registered for")


def library_path() -> Path:
    """Return where our operator library lies. Raises RuntimeMissingError if it has not been built."""
    name = f"libonnxfuse_ops{LIBRARY_SUFFIX}"
    folders = [Path(folder) / "lib" for folder in onnxfuse.__path__]
    for file in (*(folder / name for folder in folders), *_installed(name)):
        if file.is_file():
            return file
    places = " or ".join(map(str, folders))
    raise RuntimeMissingError(
        f"onnxfuse: the operator library {name} must lie in {places}; it does not. "
        "Build it with `pip install .` in the source tree, or install a wheel"
    )


def _installed(name: str) -> Iterator[Path]:
    """A file of that name in the installed package: Python that runs in the source tree imports the sources instead of it."""
    with suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("onnxfuse") or ():
            if file.name == name:
                yield Path(str(file.locate()))


def require_onnxruntime() -> ModuleType:
    """Return the module `onnxruntime`. Raises RuntimeMissingError, naming the command to run, if none is installed."""
    try:
        module = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise RuntimeMissingError(
            f'ONNX Runtime cannot be imported ({error}). Run `pip install "onnxfuse[cpu]"`, or `pip install "onnxfuse[gpu]"` for CUDA; '
            "the two exclude each other"
        ) from None
    if not hasattr(module, "InferenceSession"):  # what is left of a folder when one of the two was uninstalled over the other
        raise RuntimeMissingError(
            "ONNX Runtime is installed in part only: the module has no InferenceSession. "
            "Uninstall onnxruntime and onnxruntime-gpu, then install one of them"
        )
    return module


def default_providers() -> list[str]:
    """CUDA where this ONNX Runtime has it and the machine a GPU, then the CPU."""
    available = require_onnxruntime().get_available_providers()
    return [p for p in (CUDA, "CPUExecutionProvider") if p in available and (p != CUDA or driver.gpus())]


def session(
    source: Source,
    providers: Sequence[Any] | None = None,
    *,
    optimizations: bool = True,
    libraries: Sequence[str | Path] = (),
    threads: int | None = None,
    register: bool = True,
    options: Any = None,
    folder: Path | None = None,
) -> Any:
    """Return an InferenceSession. Our library is registered if the model has nodes of our domain and `register` holds.

    source: a path, or a proto; a proto has at most 2 GB, and its external data is looked for in `folder`.
    providers: names, or (name, options) as ONNX Runtime takes them; None stands for `default_providers()`.
    options: SessionOptions to add to; they are changed.
    Raises RuntimeMissingError (no ONNX Runtime, no library, or operators that no library given has), ModelError (not loadable).
    """
    runtime = require_onnxruntime()
    options = options if options is not None else runtime.SessionOptions()
    options.log_severity_level = SILENT
    levels = runtime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimizations else levels.ORT_DISABLE_ALL
    if threads is not None:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = threads
    proto = source if isinstance(source, onnx.ModelProto) else graph.read_proto(Path(source))
    weights = _external_weights(runtime, proto, folder) if folder is not None else {}
    options.add_external_initializers(list(weights), list(weights.values()))
    needed = [*libraries, *([library_path()] if register and has_own_ops(proto) else [])]
    providers = _usable(providers) if providers is not None else default_providers()
    options.add_session_config_entry(PROVIDERS_ENTRY, ",".join(map(_provider_entry, providers)))
    _register(options, needed)
    content = _content(source)
    try:
        made = runtime.InferenceSession(content, options, providers=providers)
        made.external_weights = weights  # the session reads them where they are
        return made
    except Exception as error:  # ONNX Runtime's own exceptions share no base but this
        raise _refusal(error, source, proto, needed) from error


def run(session: Any, feeds: Mapping[str, Any]) -> list[Any]:
    """Return the outputs in the order of the session. Tensors of bfloat16 and float8 go in and out as ml_dtypes arrays.

    Raises whatever ONNX Runtime raises when it refuses the feeds.
    """
    runtime = require_onnxruntime()
    exotic = [o for o in (*session.get_inputs(), *session.get_outputs()) if "bfloat16" in o.type or "float8" in o.type]
    if not exotic:
        return list(session.run(None, dict(feeds)))
    quiet = runtime.RunOptions()
    quiet.log_severity_level = SILENT
    values = {name: _ort_value(runtime, value) for name, value in feeds.items()}
    return [_array(value) for value in session.run_with_ort_values(None, values, quiet)]


def has_own_ops(model: onnx.ModelProto) -> bool:
    """Whether a node of our domain stands anywhere in the model."""
    return any(node.domain == DOMAIN for node in all_nodes(model))


def all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node: of the graph, of the bodies of its control flow, and of model-local functions."""
    yield from _nodes(model.graph.node)
    for function in model.functions:
        yield from _nodes(function.node)


def label(source: Source) -> str:
    """What the user knows a model by."""
    return f"model '{source.graph.name}'" if isinstance(source, onnx.ModelProto) else str(source)


def first_line(error: Exception) -> str:
    """What an error of ONNX Runtime says, on one line and without the place in its own source."""
    text = SOURCE_PLACE.sub("", " ".join(str(error).split()))
    return text if len(text) <= 600 else text[:597] + "..."


def unregistered(model: onnx.ModelProto, libraries: Sequence[str | Path]) -> dict[str, list[str]]:
    """Return the operators that ONNX Runtime with these libraries does not know, by domain."""
    known = {(f.domain, f.name) for f in model.functions}
    versions = {o.domain: o.version for o in model.opset_import}
    for function in model.functions:
        versions.update({o.domain: o.version for o in function.opset_import if o.domain not in versions})
    missing: dict[str, list[str]] = {}
    for domain, op_type in sorted({(n.domain, n.op_type) for n in all_nodes(model)} - known):
        if not _is_registered(domain, op_type, versions, libraries):
            missing.setdefault(domain or "ai.onnx", []).append(op_type)
    return missing


def _nodes(nodes: Any) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            bodies = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
            for body in bodies:
                yield from _nodes(body.node)


def _usable(providers: Sequence[Any]) -> list[Any]:
    """The providers without CUDA where there is no GPU: ONNX Runtime would say so at length, once for each session."""
    usable = [p for p in providers if _provider_entry(p).split(":")[0] != CUDA or driver.gpus()]
    if len(usable) < len(providers):
        _say_once("the session asks for CUDAExecutionProvider, but NVIDIA's driver is missing or shows no GPU: it runs on the CPU")
    return usable or ["CPUExecutionProvider"]


@cache
def _say_once(text: str) -> None:
    logging.getLogger("onnxfuse").warning(text)


def _provider_entry(provider: Any) -> str:
    """A provider as our library reads it: the name, and the device where its options name one."""
    name, settings = (provider, {}) if isinstance(provider, str) else provider
    return f"{name}:{settings['device_id']}" if "device_id" in settings else str(name)


def _register(options: Any, libraries: Sequence[str | Path]) -> None:
    for library in libraries:
        try:
            options.register_custom_ops_library(str(library))
        except Exception as error:  # see `session`
            raise RuntimeMissingError(
                f"{library}: must be a custom-op library that ONNX Runtime can load; {first_line(error)}. "
                "Check the path, and that it was built for this machine and this version of ONNX Runtime"
            ) from error


def _external_weights(runtime: ModuleType, model: onnx.ModelProto, folder: Path) -> dict[str, Any]:
    """The initializers of a proto that lie in files. ONNX Runtime finds these files itself only for a path, before 1.21."""
    found = {}
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            try:
                found[tensor.name] = _ort_value(runtime, numpy_helper.to_array(tensor, base_dir=str(folder)))
            except (OSError, ValueError, onnx.checker.ValidationError) as error:
                raise ModelError(
                    f"initializer '{tensor.name}': its external data must be in {folder}: {error}. Put the data file there"
                ) from None
    return found


def _content(source: Source) -> str | bytes:
    if not isinstance(source, onnx.ModelProto):
        return str(source)
    if source.ByteSize() > PROTO_LIMIT:
        raise ModelError(
            f"{label(source)}: must fit in one message of 2 GB; it holds {source.ByteSize():,} bytes. "
            "Save it with external data and give the path"
        )
    return bytes(source.SerializeToString())


def _refusal(error: Exception, source: Source, model: onnx.ModelProto, libraries: Sequence[str | Path]) -> OnnxFuseError:
    """The error to raise for what ONNX Runtime said when it was to load a model."""
    text = first_line(error)
    if any(words in text for words in NO_SUCH_OP):
        missing = unregistered(model, libraries)
        if missing:
            names = "; ".join(f"{domain}: {', '.join(ops)}" for domain, ops in missing.items())
            return RuntimeMissingError(
                f"{label(source)}: ONNX Runtime does not know these operators: {names}. "
                "Give the library that has them with --library OTHER_OPS.so, or skip the comparison with --no-verify"
            )
    if "NOT_IMPLEMENTED" in text:
        return RuntimeMissingError(
            f"{label(source)}: ONNX Runtime has no kernel on this device for one of its operators: {text}. "
            "Run it on the device and types that it was made for, or skip the comparison with --no-verify"
        )
    lost = [] if isinstance(source, onnx.ModelProto) else _lost_files(model, Path(source).parent)
    if lost or "xternal data" in text:
        text = f"missing: {', '.join(lost)}" if lost else text
        return ModelError(f"{label(source)}: its external data cannot be read: {text}. Put the data files back beside the model")
    return ModelError(
        f"{label(source)}: ONNX Runtime cannot load it: {text}. Check it with onnx.checker, or try another version of ONNX Runtime"
    )


def _lost_files(model: onnx.ModelProto, folder: Path) -> list[str]:
    """Files of external data that are not there."""
    entries = (e for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL for e in t.external_data)
    places = {str(entry.value) for entry in entries if entry.key == "location"}
    return sorted(place for place in places if not (folder / place).is_file())


def _is_registered(domain: str, op_type: str, versions: Mapping[str, int], libraries: Sequence[str | Path]) -> bool:
    """Ask ONNX Runtime itself, with a model of this one node: what else is wrong with that model does not matter."""
    runtime = require_onnxruntime()
    tensor = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
    node = helper.make_node(op_type, ["x"], ["y"], domain=domain)
    body = helper.make_graph([node], "probe", [helper.make_value_info("x", tensor)], [helper.make_value_info("y", tensor)])
    imports = {domain: versions.get(domain, 1), "": versions.get("", 17)}
    model = helper.make_model(body, opset_imports=[helper.make_opsetid(d, v) for d, v in imports.items()], ir_version=8)
    options = runtime.SessionOptions()
    options.log_severity_level = SILENT
    _register(options, libraries)
    try:
        runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - see `session`
        return not any(words in str(error) for words in NO_SUCH_OP)
    return True


def _ort_value(runtime: ModuleType, value: Any) -> Any:
    kind = helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype)
    if value.dtype.isbuiltin == 1:
        return runtime.OrtValue.ortvalue_from_numpy(value)
    if not hasattr(runtime.OrtValue, "ortvalue_from_numpy_with_onnx_type"):
        raise RuntimeMissingError(f"ONNX Runtime {runtime.__version__} takes no {value.dtype} from Python. Install version 1.20 or later")
    bits = np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}")
    return runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, kind)


def _array(value: Any) -> Any:
    if not value.is_tensor():
        return value.numpy()
    dtype = helper.tensor_dtype_to_np_dtype(value.element_type())
    if dtype.isbuiltin == 1:
        return value.numpy()
    shape = tuple(value.shape())
    data = ctypes.string_at(value.data_ptr(), math.prod(shape) * dtype.itemsize)
    return np.frombuffer(data, dtype).reshape(shape).copy()
