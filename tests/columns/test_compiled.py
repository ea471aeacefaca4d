"""Loops become machine code where that pays, which is kept for the next process, and does what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ebbtide.columns import CompiledLoop
from ebbtide.columns import _compiled as compiled

pytestmark = [
    pytest.mark.group("compiled"),
    pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="mutants of a loop are not compiled"),
]


def tripled(number: int) -> int:
    return 3 * number


def sums(values: Any, pair: Any, start: int, negated: bool, out: Any) -> int:
    """Sum up two arrays into a third, from a number on; return how many there are."""
    for row in range(len(values)):
        out[row, 0] = tripled(start) + values[row] + pair[0][row] - pair[1][row]
        if negated:
            out[row, 0] = -out[row, 0]
    return len(values)


def is_first(values: Any, wanted: int) -> bool:
    return bool(values[0] == wanted)


def makes_an_array(values: Any) -> None:
    values[0] = np.zeros(len(values), np.int64)[0]


SUMS = CompiledLoop(sums, (tripled,))
PROGRAM = """
import sys
import numpy as np
from columns.test_compiled import SUMS, CompiledLoop
print(CompiledLoop.pays(1), CompiledLoop.pays(5, kept_from=5), CompiledLoop.pays(4, kept_from=5))
out = np.zeros((2, 1), np.int64)
SUMS.code(np.array([1, 2], np.uint8), (np.array([5, 6], np.int32), np.array([0, 1])), 7, True, out)
print(out[:, 0].tolist(), "numba" in sys.modules, CompiledLoop.pays(1))
"""


@pytest.mark.parametrize("negated", [False, True])
def test_machine_code_does_what_the_loop_does(negated):
    for values in (np.arange(9, dtype=np.int32), np.arange(3, dtype=np.uint8), np.empty(0, np.float64)):
        pair = (np.full(len(values), 2**40), np.arange(len(values)))
        given, wanted = np.zeros((2, len(values), 1), np.int64)
        assert SUMS.code(values, pair, 2, negated, given) == sums(values, pair, 2, negated, wanted)
        assert given.tolist() == wanted.tolist()


def test_machine_code_returns_what_the_loop_returns():
    is_one = CompiledLoop(is_first).code
    assert (is_one(np.array([5]), 5), is_one(np.array([4]), 5)) == (True, False)


def test_machine_code_is_kept_for_processes_that_have_no_numba_loaded():
    SUMS.code(
        np.zeros(1, np.uint8), (np.zeros(1, np.int32), np.zeros(1, np.int64)), 1, True, np.zeros((1, 1), np.int64)
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    assert done.stdout.splitlines() == ["False True False", "[-27, -28] False True"], done.stderr


def test_array_that_is_not_contiguous_is_refused():
    with pytest.raises(TypeError, match="not contiguous"):
        CompiledLoop(is_first).code(np.zeros((2, 2))[:, 1], 1)


def test_loop_that_makes_an_array_is_refused():
    with pytest.raises(TypeError, match="makes_an_array makes an array"):
        CompiledLoop(makes_an_array).code(np.zeros(1))


def test_loop_is_compiled_where_there_is_much_to_do_or_some_is_loaded_anyway(monkeypatch):
    monkeypatch.setattr(compiled, "_code", cache(lambda loop, calls: loop))
    assert not CompiledLoop.pays(compiled.COMPILED_FROM - 1)
    assert CompiledLoop.pays(compiled.COMPILED_FROM)
    _ = CompiledLoop(sum).code
    assert CompiledLoop.pays(1)
    assert not CompiledLoop.pays(0)
