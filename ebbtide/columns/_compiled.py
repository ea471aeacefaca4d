"""Loops over arrays as machine code, for large inputs.

numba compiles a loop, once an installation. The object code is kept on disk and loaded by llvmlite alone: in less than a tenth of the
time that numba takes with its cache (docs/decisions/0118).
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

Loop = Callable[..., Any]

COMPILED_FROM = 100_000
"""Smallest number of rows for which loops are compiled."""


@dataclass(frozen=True)
class CompiledLoop:
    """A loop over arrays and numbers, as machine code.

    It gets arrays that are contiguous, tuples of them, integers and booleans, and returns an integer, a boolean or nothing, as it is annotated. It
    makes no arrays, those that it works in are given to it too, and raises nothing.

    Args:
        loop: The function.
        calls: Functions of this project that it calls; they are compiled into it.
    """

    loop: Loop
    calls: tuple[Loop, ...] = ()

    @staticmethod
    def pays(rows: int, *, kept_from: int = COMPILED_FROM) -> bool:
        """Return whether machine code pays for so many rows: there are enough of them, or some is loaded anyway.

        Without numba, an extra, it never does: callers have another way.

        Args:
            rows: Number of rows.
            kept_from: Smallest number for which code is loaded that is kept from another process, in 0.04 CPU s.
        """
        if _code.cache_info().currsize:
            return rows > 0
        return _has_numba() and (rows >= COMPILED_FROM or (rows >= kept_from and _has_objects()))

    @property
    def code(self) -> Loop:
        """The machine code, which is kept on disk for the next process, if possible."""
        return _code(self.loop, self.calls)


_compiling = threading.Lock()


@cache
def _has_numba() -> bool:
    return find_spec("numba") is not None


@cache
def _has_objects() -> bool:
    return any(next(folder.glob(f"*{_SUFFIX}"), None) for folder in _folders())


@cache
def _code(loop: Loop, calls: tuple[Loop, ...]) -> Loop:
    is_off = os.environ.get("NUMBA_DISABLE_JIT") == "1"  # as numba reads it
    return loop if is_off else _MachineCode(loop, calls)


_SUFFIX = f".{sys.implementation.cache_tag}.o"


def _folders() -> Iterator[Path]:
    """Yield the folders that may hold object code, the first one that can be written to first."""
    yield Path(__file__).parent / "__pycache__"
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ebbtide"


@dataclass(frozen=True)
class _ArrayKind:
    dtype: np.dtype[Any]
    n_dimensions: int


Kind = _ArrayKind | type | tuple["Kind", ...]
"""The kind of an argument: of an array, of a number, of a tuple of arrays."""


class _MachineCode:
    """A loop, compiled for each kind of arguments that it is called with.

    Args:
        loop, calls: See `CompiledLoop`.
    """

    def __init__(self, loop: Loop, calls: tuple[Loop, ...]) -> None:
        self._loop = loop
        self._calls = calls
        self._by_kinds: dict[tuple[Kind, ...], _Entry] = {}
        results: dict[str, Callable[[int], Any]] = {"bool": bool, "int": int, "None": lambda _: None}
        self._result = results[loop.__annotations__["return"]]

    def __call__(self, *arguments: Any) -> Any:
        """Run the loop."""
        kinds = tuple(map(_kind_of, arguments))
        entry = self._by_kinds.get(kinds)
        if entry is None:
            with _compiling:  # once: a second thread waits
                entry = self._by_kinds.get(kinds) or _Entry.of(self._loop, self._calls, kinds)
            self._by_kinds[kinds] = entry
        return self._result(entry(arguments))


def _kind_of(argument: Any) -> Kind:
    if isinstance(argument, tuple):
        return tuple(map(_kind_of, argument))
    if not isinstance(argument, np.ndarray):
        return bool if isinstance(argument, bool) else int
    if not argument.flags.c_contiguous:
        raise TypeError("an array that is not contiguous")
    return _ArrayKind(argument.dtype, argument.ndim)


def _flat(arguments: Iterable[Any]) -> Iterator[Any]:
    for argument in arguments:
        if isinstance(argument, tuple):
            yield from _flat(argument)
        else:
            yield argument


_OF_ERRORS = (
    *("NRT_Free", "NRT_MemInfo_call_dtor", "numba_do_raise", "numba_gil_ensure", "numba_gil_release", "numba_unpickle"),
    "numba_runtime_build_excinfo_struct",
)
"""Functions of numba that machine code would call for an error: it has none."""


def _address_of_abort() -> int:
    return ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value or 0


@dataclass(frozen=True)
class _Entry:
    """A loop in memory, for arguments of some kinds.

    Args:
        function: The machine code. It gets the addresses of all arrays, and the lengths of their dimensions and the numbers.
        engine: Keeps it in memory.
    """

    function: Callable[[Any, Any], int]
    engine: Any

    @classmethod
    def of(cls, loop: Loop, calls: tuple[Loop, ...], kinds: tuple[Kind, ...]) -> _Entry:
        """Load the object code of a loop; compile it if there is none."""
        from llvmlite import binding

        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        features = binding.get_host_cpu_features().flatten()
        about = [_content(loop), kinds, version("numba"), version("llvmlite"), binding.get_host_cpu_name(), features]
        digest = blake2b(repr(about).encode(), digest_size=16).hexdigest()
        machine = binding.Target.from_default_triple().create_target_machine(
            cpu=binding.get_host_cpu_name(), features=features, opt=3, jit=True
        )
        name = f"{loop.__name__}_{digest}"
        code = _kept(name)
        if code is None:
            code = _compiled(loop, calls, kinds, name, machine)
            _keep(name, code)
        for symbol in filter(lambda symbol: binding.address_of_symbol(symbol) is None, _OF_ERRORS):
            binding.add_symbol(symbol, _address_of_abort())
        engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
        engine.add_object_file(binding.ObjectFileRef.from_data(code))
        engine.finalize_object()
        prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
        return cls(prototype(engine.get_function_address(name)), engine)

    def __call__(self, arguments: Iterable[Any]) -> int:
        """Run the loop."""
        addresses, numbers = [], []
        for argument in _flat(arguments):
            if isinstance(argument, np.ndarray):
                addresses.append(argument.ctypes.data)
                numbers.extend(argument.shape)
            else:
                numbers.append(argument)
        pointers, lengths = np.array(addresses, np.uintp), np.array(numbers, np.int64)
        return self.function(pointers.ctypes.data, lengths.ctypes.data)


def _content(value: Any) -> Any:
    """Return what the machine code of a function follows from: its instructions, and the values of the names in it."""
    if isinstance(value, FunctionType):
        code = value.__code__
        named = [value.__globals__.get(name) for name in code.co_names]
        return code.co_code, code.co_varnames, code.co_consts, [*map(_content, named)]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tobytes()
    return value if isinstance(value, int | tuple) else None


def _kept(name: str) -> bytes | None:
    for folder in _folders():
        with suppress(OSError):
            return (folder / f"{name}{_SUFFIX}").read_bytes()
    return None


def _keep(name: str, code: bytes) -> None:
    """Keep object code for the next process, in the first folder that can be written to."""
    for folder in _folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            part = folder / f"{name}.{os.getpid()}"
            part.write_bytes(code)
            part.replace(folder / f"{name}{_SUFFIX}")  # whole or not at all
        except OSError:
            continue
        return


def _compiled(loop: Loop, calls: tuple[Loop, ...], kinds: tuple[Kind, ...], name: str, machine: Any) -> bytes:
    """Return the object code of a loop, with an entry of the given name."""
    # Imported here: numba takes a second to load, and most processes never need it.
    import numba
    from llvmlite import binding
    from numba import types
    from numba.extending import register_jitable

    for call in calls:
        register_jitable(inline="always")(call)
    wrapper = _Wrapper()
    text = wrapper.text_of(loop, kinds)
    scope = {"loop": numba.njit(loop), "carray": numba.carray, "int64": np.int64, **wrapper.types}
    exec(text, scope)  # noqa: S102 - of the kinds alone
    signature = types.int64(types.CPointer(types.voidptr), types.CPointer(types.int64))
    module = binding.parse_assembly(numba.cfunc(signature)(scope["entry"]).inspect_llvm())
    for function in module.functions:
        if function.is_declaration and function.name.startswith("NRT_MemInfo_alloc"):
            raise TypeError(f"the loop {loop.__name__} makes an array")
        if function.name.startswith("cfunc."):
            function.name = name
    code: bytes = machine.emit_object(module)
    return code


@dataclass
class _Wrapper:
    """Writes the function that calls a loop with the arrays at some addresses.

    Attributes:
        types: Types of the arrays by their names in the text.
    """

    types: dict[str, np.dtype[Any]] = field(default_factory=dict)
    _n_numbers: int = 0

    def text_of(self, loop: Loop, kinds: tuple[Kind, ...]) -> str:
        """Return the text of the function, `entry`."""
        call = f"loop({', '.join(map(self._argument, kinds))})"
        has_result = loop.__annotations__["return"] != "None"
        returned = f"return int64({call})" if has_result else f"{call}; return 0"
        return f"def entry(addresses, numbers): {returned}"

    def _argument(self, kind: Kind) -> str:
        if isinstance(kind, _ArrayKind):
            at = len(self.types)
            self.types[f"type{at}"] = kind.dtype
            lengths = "".join(f"{self._number()}, " for _ in range(kind.n_dimensions))
            return f"carray(addresses[{at}], ({lengths}), type{at})"
        if isinstance(kind, tuple):
            return f"({''.join(f'{self._argument(each)}, ' for each in kind)})"
        return self._number() + (" != 0" if kind is bool else "")

    def _number(self) -> str:
        self._n_numbers += 1
        return f"numbers[{self._n_numbers - 1}]"
