"""Loops over arrays, compiled by numba for large inputs.

Loading numba and the compiled code takes about a second per process, so small inputs are not compiled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

Loop = Callable[..., Any]

COMPILED_FROM = 100_000
"""Smallest number of rows for which numba is loaded."""


@dataclass(frozen=True)
class CompiledLoop:
    """A loop over arrays and numbers, as machine code.

    Args:
        loop: The function.
        calls: Functions of this project that it calls; they are compiled into it.
    """

    loop: Loop
    calls: tuple[Loop, ...] = ()

    @staticmethod
    def pays(rows: int) -> bool:
        """Return whether machine code pays for so many rows: there are enough of them, or numba is already loaded.

        Without numba, an extra, it never does: callers have another way.
        """
        is_loaded = _compiled.cache_info().currsize > 0
        return is_loaded or (rows >= COMPILED_FROM and _has_numba())

    @property
    def code(self) -> Loop:
        """The machine code, which is cached on disk for the next process, if possible."""
        with _compiling:  # once: a second thread waits
            return _compiled(self.loop, self.calls)


_compiling = threading.Lock()


@cache
def _has_numba() -> bool:
    return find_spec("numba") is not None


@cache
def _call(function: Loop) -> None:
    """Have a function compiled into the loops that call it."""
    from numba.extending import register_jitable

    register_jitable(function)


@cache
def _compiled(loop: Loop, calls: tuple[Loop, ...]) -> Loop:
    # Imported here: numba takes a second to load, and most processes never need it.
    import numba

    for call in calls:
        _call(call)
    # Without Python's lock, so that loops of several threads run at the same time.
    try:
        machine_code: Loop = numba.njit(cache=True, nogil=True)(loop)
    except RuntimeError:  # no writable cache directory
        machine_code = numba.njit(nogil=True)(loop)
    return machine_code
