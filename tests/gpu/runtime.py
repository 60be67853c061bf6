"""A stand-in for ONNX Runtime with a CUDA provider: the C ABI that our library speaks, in Python, over host memory.

It offers what a custom-op library sees and no more: registration, the making of a node's kernel, its runs. Every function
that ort_abi.h and ort_gpu.h declare is here or its use ends the process.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from onnxfuse import custom_ops
from tests.kernels.harness import Guarded, at_page_end

WORD = ctypes.c_size_t
FUNCTION = ctypes.CFUNCTYPE(WORD, *[WORD] * 6)
TABLE_SIZE = 415
CUDA = "CUDAExecutionProvider"
# Places in OrtCustomOp, in words.
GET_NAME, GET_PROVIDER, GET_INPUT_TYPE, GET_INPUT_COUNT, GET_OUTPUT_COUNT, DESTROY, CREATE, COMPUTE = 2, 3, 4, 5, 7, 9, 17, 18
NO_TYPE = 0
WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")  # between the words of a name


@dataclass
class Value:
    """A tensor in device memory, which is host memory here."""

    array: Any
    device: int = 0

    @property
    def type(self) -> int:
        return int(helper.np_dtype_to_tensor_dtype(self.array.dtype))


@dataclass
class Info:
    """What a node's kernel is made from."""

    attributes: Mapping[str, Any]
    declared: Sequence[tuple[int, Sequence[Any]] | None]  # element type and sizes, symbols among them
    outputs: int
    device: int
    name: str = "tested"


@dataclass
class Run:
    """One call of a kernel."""

    inputs: Sequence[Value | None]
    wanted: Sequence[bool]
    device: int
    over: Mapping[int, int]  # output: the input it is written over
    outputs: dict[int, Any] = field(default_factory=dict)
    guards: list[Guarded] = field(default_factory=list)
    scratch: list[Any] = field(default_factory=list)
    types: Sequence[int] = ()


@dataclass
class Shape:
    type: int
    sizes: list[int]
    symbols: list[bytes]


def slots() -> dict[str, int]:
    """Every function that the library declares, with its slot."""
    folder = Path(custom_ops.__path__[0]) / "_runtime"
    text = (folder / "ort_abi.h").read_text() + (folder / "cuda" / "ort_gpu.h").read_text()
    return {name: int(slot) for slot, name in re.findall(r"X\((\d+), [^,]+, (\w+),", text)}


class Runtime:
    """The function table, and the objects behind the handles that it gives out."""

    def __init__(self, library: Path, *, is_sanitized: bool = False) -> None:
        self.is_sanitized = is_sanitized  # AddressSanitizer watches what malloc gives
        self.available = [CUDA, "CPUExecutionProvider"]
        self.scratch: dict[int, Any] = {}  # memory that the library has not given back
        self._objects: dict[int, Any] = {}
        self._numbers = itertools.count(16, 16)
        self._kept: list[Any] = []
        self._table = (WORD * TABLE_SIZE)()
        for name, slot in slots().items():
            function = FUNCTION(self._guarded(name))
            self._kept.append(function)
            self._table[slot] = ctypes.cast(function, ctypes.c_void_p).value or 0
        get_api = ctypes.CFUNCTYPE(WORD, ctypes.c_uint32)(lambda version: ctypes.addressof(self._table))
        self._version = ctypes.create_string_buffer(b"1.32.0")
        get_version = ctypes.CFUNCTYPE(WORD)(lambda: ctypes.addressof(self._version))
        self._base = (WORD * 2)(*(ctypes.cast(f, ctypes.c_void_p).value or 0 for f in (get_api, get_version)))
        self._kept += [get_api, get_version]
        self._register = ctypes.CDLL(str(library)).RegisterCustomOps
        self._register.restype = WORD

    def session(self, config: Mapping[str, str] | None = None) -> dict[tuple[str, str], list[int]]:
        """The ops of a session with these config entries: (name, provider) -> one OrtCustomOp for each choice of types."""
        options: dict[str, Any] = {"config": dict(config or {}), "domains": []}
        self._check(self._register(WORD(self._new(options)), ctypes.byref(self._base)))
        ops: dict[tuple[str, str], list[int]] = {}
        for op in itertools.chain.from_iterable(options["domains"]):
            provider = self._call(op, GET_PROVIDER, op)
            name = ctypes.string_at(self._call(op, GET_NAME, op)).decode()
            ops.setdefault((name, ctypes.string_at(provider).decode() if provider else "CPUExecutionProvider"), []).append(op)
        return ops

    def op_for(self, ops: Sequence[int], types: Sequence[int]) -> int:
        """The op whose inputs have these types; 0 stands for one that is not given."""
        for op in ops:
            have = [self._call(op, GET_INPUT_TYPE, op, i) for i in range(self._call(op, GET_INPUT_COUNT, op))]
            if all(mine in (NO_TYPE, other) or other == NO_TYPE for mine, other in zip(types, have, strict=False)):
                return op
        raise LookupError(f"no op for the types {types}")

    def make(self, op: int, info: Info) -> int:
        """A node's kernel. Raises RuntimeError with what the library says."""
        made = WORD()
        self._check(self._call(op, CREATE, op, ctypes.addressof(self._table), self._new(info), ctypes.addressof(made)))
        return made.value

    def run(self, op: int, kernel: int, call: Run) -> list[Any]:
        """The outputs, None for those not wanted. Raises RuntimeError with what the library says."""
        self._check(self._call(op, COMPUTE, kernel, self._new(call)))
        for guard in call.guards:
            guard.__exit__(None)
        assert not self.scratch, "scratch memory must be given back when a call ends"
        return [call.outputs.get(i) for i in range(len(call.wanted))]

    def destroy(self, op: int, kernel: int) -> None:
        self._call(op, DESTROY, kernel)

    # --- handles

    def _new(self, thing: Any) -> int:
        number = next(self._numbers)
        self._objects[number] = thing
        return number

    def _call(self, op: int, place: int, *words: int) -> int:
        address = (WORD * 25).from_address(op)[place]
        return int(FUNCTION(address)(*words, *[0] * (6 - len(words))))

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(self._objects.pop(status))

    def _guarded(self, name: str) -> Callable[..., int]:
        """A function of the table; what it raises becomes a status."""
        body = getattr(self, "_" + WORDS.sub("_", name).lower())

        def call(*words: int) -> int:
            try:
                return int(body(*words) or 0)
            except Exception as error:  # noqa: BLE001 - nothing may pass through C
                return self._new(f"{name}: {type(error).__name__}: {error}")

        return call

    # --- the functions of the table, by name

    def _create_status(self, code: int, message: int, *_: int) -> int:
        return self._new(ctypes.string_at(message).decode())

    def _release_status(self, status: int, *_: int) -> None:
        self._objects.pop(status, None)

    def _create_custom_op_domain(self, name: int, out: int, *_: int) -> None:
        _write(out, WORD, self._new([]))

    def _custom_op_domain_add(self, domain: int, op: int, *_: int) -> None:
        self._objects[domain].append(op)

    def _add_custom_op_domain(self, options: int, domain: int, *_: int) -> None:
        self._objects[options]["domains"].append(self._objects[domain])

    def _has_session_config_entry(self, options: int, key: int, out: int, *_: int) -> None:
        _write(out, ctypes.c_int, ctypes.string_at(key).decode() in self._objects[options]["config"])

    def _get_session_config_entry(self, options: int, key: int, out: int, size: int, *_: int) -> None:
        _write_text(out, size, self._objects[options]["config"][ctypes.string_at(key).decode()])

    def _get_available_providers(self, names: int, count: int, *_: int) -> None:
        buffers = [ctypes.create_string_buffer(name.encode()) for name in self.available]
        array = (WORD * len(buffers))(*map(ctypes.addressof, buffers))
        self._kept.append((buffers, array))
        _write(names, WORD, ctypes.addressof(array))
        _write(count, ctypes.c_int, len(buffers))

    def _release_available_providers(self, *_: int) -> None:
        pass

    def _kernel_info_get_node_name(self, info: int, out: int, size: int, *_: int) -> None:
        _write_text(out, size, self._objects[info].name)

    def _attribute(self, info: int, name: int, kind: type) -> Any:
        value = self._objects[info].attributes[ctypes.string_at(name).decode()]
        if type(value) is not kind:
            raise TypeError("another type")
        return value

    def _kernel_info_get_attribute_float(self, info: int, name: int, out: int, *_: int) -> None:
        _write(out, ctypes.c_float, self._attribute(info, name, float))

    def _kernel_info_get_attribute_int64(self, info: int, name: int, out: int, *_: int) -> None:
        _write(out, ctypes.c_int64, self._attribute(info, name, int))

    def _kernel_info_get_attribute_string(self, info: int, name: int, out: int, size: int, *_: int) -> None:
        _write_text(out, size, self._attribute(info, name, str))

    def _kernel_info_get_attribute_array_int64(self, *_: int) -> None:
        raise TypeError("no such attribute")

    def _kernel_info_get_allocator(self, info: int, memory_type: int, out: int, *_: int) -> None:
        _write(out, WORD, self._new(self._objects[info].device))

    def _allocator_get_info(self, allocator: int, out: int, *_: int) -> None:
        _write(out, WORD, allocator)

    def _memory_info_get_id(self, memory: int, out: int, *_: int) -> None:
        _write(out, ctypes.c_int, self._objects[memory])

    def _release_allocator(self, *_: int) -> None:
        pass

    def _kernel_info_get_input_count(self, info: int, out: int, *_: int) -> None:
        _write(out, WORD, len(self._objects[info].declared))

    def _kernel_info_get_output_count(self, info: int, out: int, *_: int) -> None:
        _write(out, WORD, self._objects[info].outputs)

    def _kernel_info_get_input_type_info(self, info: int, index: int, out: int, *_: int) -> None:
        element, sizes = self._objects[info].declared[index]
        known = [size if isinstance(size, int) else -1 for size in sizes]
        _write(out, WORD, self._new(Shape(element, known, [b"" if isinstance(s, int) else s.encode() for s in sizes])))

    def _kernel_info_get_constant_input_tensor(self, info: int, index: int, is_constant: int, out: int, *_: int) -> None:
        _write(is_constant, ctypes.c_int, 0)

    def _cast_type_info_to_tensor_info(self, info: int, out: int, *_: int) -> None:
        _write(out, WORD, info)

    def _release_type_info(self, *_: int) -> None:
        pass

    def _get_tensor_type_and_shape(self, value: int, out: int, *_: int) -> None:
        tensor = self._objects[value]
        _write(out, WORD, self._new(Shape(tensor.type, list(tensor.array.shape), [b""] * tensor.array.ndim)))

    def _get_tensor_element_type_and_shape_data_reference(self, value: int, kind: int, sizes: int, rank: int, *_: int) -> None:
        tensor = self._objects[value]
        shape = (ctypes.c_int64 * tensor.array.ndim)(*tensor.array.shape)
        self._kept.append(shape)
        _write(kind, ctypes.c_int, tensor.type)
        _write(sizes, WORD, ctypes.addressof(shape))
        _write(rank, WORD, tensor.array.ndim)

    def _release_tensor_type_and_shape_info(self, shape: int, *_: int) -> None:
        self._objects.pop(shape, None)

    def _get_tensor_element_type(self, shape: int, out: int, *_: int) -> None:
        _write(out, ctypes.c_int, self._objects[shape].type)

    def _get_dimensions_count(self, shape: int, out: int, *_: int) -> None:
        _write(out, WORD, len(self._objects[shape].sizes))

    def _get_dimensions(self, shape: int, out: int, count: int, *_: int) -> None:
        for i, size in enumerate(self._objects[shape].sizes[:count]):
            _write(out + 8 * i, ctypes.c_int64, size)

    def _get_symbolic_dimensions(self, shape: int, out: int, count: int, *_: int) -> None:
        for i, symbol in enumerate(self._objects[shape].symbols[:count]):
            buffer = ctypes.create_string_buffer(symbol)
            self._kept.append(buffer)
            _write(out + 8 * i, WORD, ctypes.addressof(buffer))

    def _kernel_context_get_input_count(self, run: int, out: int, *_: int) -> None:
        _write(out, WORD, len(self._objects[run].inputs))

    def _kernel_context_get_output_count(self, run: int, out: int, *_: int) -> None:
        _write(out, WORD, len(self._objects[run].wanted))

    def _kernel_context_get_input(self, run: int, index: int, out: int, *_: int) -> None:
        inputs = self._objects[run].inputs
        value = inputs[index] if index < len(inputs) else None
        _write(out, WORD, 0 if value is None else self._new(value))

    def _kernel_context_get_output(self, run: int, index: int, sizes: int, rank: int, out: int, *_: int) -> None:
        call = self._objects[run]
        if index >= len(call.wanted) or not call.wanted[index]:
            _write(out, WORD, 0)
            return
        shape = tuple(ctypes.c_int64.from_address(sizes + 8 * i).value for i in range(rank))
        dtype = helper.tensor_dtype_to_np_dtype(call.types[index])
        if index in call.over:
            array = call.inputs[call.over[index]].array
            assert array.shape == shape, "an output of another size cannot take an input's memory"
        elif self.is_sanitized:
            array = allocated(np.empty(shape, dtype))
        else:
            call.guards.append(Guarded(shape, dtype))
            array = call.guards[-1].array
        if index not in call.over:
            ctypes.memset(array.ctypes.data, 0xFF, array.nbytes)  # NaN, or an absurd number, where nothing is written
        call.outputs[index] = array
        _write(out, WORD, self._new(Value(array, call.device)))

    def _get_tensor_mutable_data(self, value: int, out: int, *_: int) -> None:
        _write(out, WORD, self._objects[value].array.ctypes.data)

    def _get_tensor_memory_info(self, value: int, out: int, *_: int) -> None:
        _write(out, WORD, self._new(self._objects[value].device))

    def _kernel_context_get_gpu_compute_stream(self, run: int, out: int, *_: int) -> None:
        _write(out, WORD, 0x5000 + self._objects[run].device)

    def _kernel_context_get_scratch_buffer(self, run: int, memory: int, count: int, out: int, *_: int) -> None:
        assert self._objects[memory] == self._objects[run].device
        scratch = (allocated if self.is_sanitized else at_page_end)(np.full(count, 0xFF, np.uint8))
        self._objects[run].scratch.append(scratch)
        self.scratch[scratch.ctypes.data] = scratch
        _write(out, WORD, scratch.ctypes.data)

    def _kernel_context_get_allocator(self, run: int, memory: int, out: int, *_: int) -> None:
        _write(out, WORD, self._new(self._objects[memory]))

    def _allocator_free(self, allocator: int, memory: int, *_: int) -> None:
        del self.scratch[memory]  # KeyError: freed twice, or never given

    def _kernel_context_parallel_for(self, *_: int) -> None:
        raise AssertionError("a kernel of a GPU asks for threads of the CPU")

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Functions that only shape inference and the CPU use: declared, and never called here."""
        if not name.startswith("_") or name.startswith("__"):
            raise AttributeError(name)

        def refuse(*_: int) -> int:
            raise NotImplementedError(name)

        return refuse


def _write(address: int, kind: Any, value: Any) -> None:
    kind.from_address(address).value = value


def _write_text(out: int, size: int, text: str) -> None:
    """As the runtime gives texts: the size with the closing 0, and the text where there is room."""
    _write(size, WORD, len(text) + 1)
    if out:
        ctypes.memmove(out, text.encode() + b"\0", len(text) + 1)


def allocated(array: Any, missing: int = 0) -> Any:
    """A copy in memory of malloc, less `missing` bytes at its end. It is never freed."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    address = libc.malloc(WORD(max(array.nbytes - missing, 1)))
    ctypes.memmove(address, array.ctypes.data, array.nbytes - missing)
    return np.frombuffer((ctypes.c_char * array.nbytes).from_address(address), array.dtype).reshape(array.shape)


def elements(shape: Sequence[int]) -> int:
    """How many elements a shape has."""
    return math.prod(shape)
