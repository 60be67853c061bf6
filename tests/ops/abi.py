"""ONNX Runtime by its C ABI, through ctypes, with a count of every call that our library makes.

The library is given a copy of the runtime's function table in which the slots that ort_abi.h declares count and pass
on, and all others stand empty: a slot that is used without being declared, or that is not what its name says, ends the
process or the run.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnxfuse import custom_ops

API_VERSION = 18
TABLE_SIZE, NEWEST_TABLE_SIZE = 285, 415  # functions of version 18, and of 24, from which the library takes one where it is
WORD = ctypes.c_size_t
# Every function that the library uses takes at most six words and no floating-point number by value.
FUNCTION = ctypes.CFUNCTYPE(WORD, *[WORD] * 6)
# What the test itself calls.
GET_MESSAGE, CREATE_ENV, CREATE_SESSION, RUN, CREATE_OPTIONS, CREATE_TENSOR, TENSOR_DATA, CPU_MEMORY = 2, 3, 8, 9, 10, 49, 51, 69
ADD_CONFIG_ENTRY = 130


def declared_slots() -> dict[int, str]:
    """Slot -> name of every function that ort_abi.h declares."""
    text = (Path(custom_ops.__path__[0]) / "_runtime" / "ort_abi.h").read_text()
    found = [(int(slot), name) for slot, name in re.findall(r"X\((\d+), [^,]+, (\w+),", text)]
    assert len(dict(found)) == len(found), "a slot is declared twice"
    return dict(found)


def parts(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(map(int, version.split(".")[:2]))


class Runtime:
    """The runtime in a shared library, an environment in it, and sessions with our library.

    version: what the runtime is to say of itself, at most what it is; "" for the truth.
    """

    def __init__(self, runtime: Path, ours: Path, version: str = "") -> None:
        self.calls: Counter[int] = Counter()
        library = ctypes.CDLL(str(runtime))
        library.OrtGetApiBase.restype = ctypes.c_void_p
        base = (WORD * 2).from_address(library.OrtGetApiBase())
        said = ctypes.CFUNCTYPE(ctypes.c_char_p)(base[1])().decode()
        size = NEWEST_TABLE_SIZE if parts(version or said) >= (1, 24) else TABLE_SIZE
        self._table = (WORD * size).from_address(ctypes.CFUNCTYPE(WORD, ctypes.c_uint32)(base[0])(API_VERSION))
        self._kept = {slot: FUNCTION(self._counting(slot)) for slot in declared_slots() if slot < size}
        fake = (WORD * size)()
        for slot, function in self._kept.items():
            fake[slot] = ctypes.cast(function, ctypes.c_void_p).value or 0
        get_api = ctypes.CFUNCTYPE(WORD, ctypes.c_uint32)(lambda version: ctypes.addressof(fake))
        text = ctypes.create_string_buffer((version or said).encode())
        get_version = ctypes.CFUNCTYPE(WORD)(lambda: ctypes.addressof(text))
        self._base = (WORD * 2)(*(ctypes.cast(function, ctypes.c_void_p).value or 0 for function in (get_api, get_version)))
        self._keep_alive = (library, fake, get_api, get_version, text)
        self._register = ctypes.CDLL(str(ours)).RegisterCustomOps
        self._register.restype = WORD
        self._environment = self._make(CREATE_ENV, 4, b"test")
        self._memory = self._make(CPU_MEMORY, 0, 0)

    def session(self, model: bytes, providers: str = "") -> int:
        """A session with our library, which is told its providers if any are given. Raises RuntimeError with the runtime's words."""
        options = self._make(CREATE_OPTIONS)
        if providers:
            self._call(ADD_CONFIG_ENTRY, options, b"onnxfuse.providers", providers.encode())
        self._check(self._register(WORD(options), ctypes.byref(self._base)))
        return self._make(CREATE_SESSION, self._environment, model, WORD(len(model)), options)

    def run(self, session: int, feeds: Mapping[str, Any], output: str, shape: tuple[int, ...]) -> Any:
        """One float output of a session. Raises RuntimeError with the runtime's words."""
        tensors = [self._tensor(value) for value in feeds.values()]
        names = (ctypes.c_char_p * len(feeds))(*[name.encode() for name in feeds])
        inputs, outputs, wanted = (WORD * len(feeds))(*tensors), (WORD * 1)(), (ctypes.c_char_p * 1)(output.encode())
        self._call(RUN, session, 0, names, inputs, WORD(len(feeds)), wanted, WORD(1), outputs)
        data = self._make(TENSOR_DATA, outputs[0])
        return np.ctypeslib.as_array((ctypes.c_float * int(np.prod(shape))).from_address(data)).reshape(shape).copy()

    def _tensor(self, value: Any) -> int:
        sizes = (ctypes.c_int64 * value.ndim)(*value.shape)
        return self._make(
            CREATE_TENSOR, self._memory, value.ctypes.data_as(ctypes.c_void_p), WORD(value.nbytes), sizes, WORD(value.ndim), 1
        )

    def _counting(self, slot: int) -> Any:
        function = FUNCTION(self._table[slot])

        def call(*words: int) -> int:
            self.calls[slot] += 1
            return function(*words)

        return call

    def _make(self, slot: int, *arguments: Any) -> int:
        """Call a function whose last argument is where it puts what it makes."""
        made = WORD()
        self._call(slot, *arguments, ctypes.byref(made))
        return made.value

    def _call(self, slot: int, *arguments: Any) -> None:
        words = [WORD(a) if isinstance(a, int) else a for a in arguments]
        self._check(ctypes.CFUNCTYPE(WORD)(self._table[slot])(*words))

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(ctypes.CFUNCTYPE(ctypes.c_char_p, WORD)(self._table[GET_MESSAGE])(status).decode())


def refusal_of_an_old_runtime(ours: Path) -> str:
    """What the library says to a runtime that has version 1 of the API and no more."""
    said: list[str] = []

    @ctypes.CFUNCTYPE(WORD, ctypes.c_int, ctypes.c_char_p)
    def create_status(code: int, message: bytes) -> int:
        said.append(message.decode())
        return 1

    table = (WORD * 1)(ctypes.cast(create_status, ctypes.c_void_p).value or 0)
    get_api = ctypes.CFUNCTYPE(WORD, ctypes.c_uint32)(lambda version: ctypes.addressof(table) if version == 1 else 0)
    base = (WORD * 2)(ctypes.cast(get_api, ctypes.c_void_p).value or 0, 0)
    register = ctypes.CDLL(str(ours)).RegisterCustomOps
    register.restype = WORD
    assert register(WORD(0), ctypes.byref(base)) == 1
    return "".join(said)
