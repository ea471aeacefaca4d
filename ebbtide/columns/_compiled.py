"""Loops over arrays, compiled by numba where there is enough to do.

Loading numba and the compiled code takes about a second of a process, so that little work goes without.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

Loop = Callable[..., Any]

COMPILED_FROM = 100_000
"""Rows from which on it is worth loading numba."""


def worth_compiling(rows: int) -> bool:
    """Return whether a loop over so many rows is to be compiled: there is enough to do, or numba is loaded anyway."""
    is_loaded = compiled.cache_info().currsize > 0
    return is_loaded or rows >= COMPILED_FROM


@cache
def compiled(loop: Loop) -> Loop:
    """Return a function over arrays and numbers as machine code, kept on disk, where it may be, for the next process."""
    # Imported here: numba takes a second to load, and most processes never need it.
    import numba

    try:
        machine_code: Loop = numba.njit(cache=True)(loop)
    except RuntimeError:  # nowhere to keep it
        machine_code = numba.njit(loop)
    return machine_code
