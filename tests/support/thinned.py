"""Lists of cases that one code path meets: a few in `make test`, all in the grid."""

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], every: int) -> list[Any]:
    """Return cases for `parametrize`, of which the grid alone has those between every n-th.

    Args:
        cases: Values, or tuples of them.
        every: How far those are apart that `make test` has.
    """
    given = []
    for number, case in enumerate(cases):
        values = case if isinstance(case, tuple) else (case,)
        marks = [pytest.mark.grid] if number % every else []
        given.append(pytest.param(*values, marks=marks))
    return given


def graded(cases: Iterable[Any], quick: Iterable[Any]) -> list[Any]:
    """Return cases for `parametrize`, of which the grid alone has those that are not quick.

    Args:
        cases: Values, or tuples of them.
        quick: Those that `make test` has.
    """
    kept = list(quick)
    given = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        given.append(pytest.param(*values, marks=[] if case in kept else [pytest.mark.grid]))
    return given
