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
    return [_given(case, is_quick=number % every == 0) for number, case in enumerate(cases)]


def graded(cases: Iterable[Any], quick: Iterable[Any]) -> list[Any]:
    """Return cases for `parametrize`, of which the grid alone has those that are not quick.

    Args:
        cases: Values, or tuples of them.
        quick: Those that `make test` has.
    """
    kept = list(quick)
    return [_given(case, is_quick=case in kept) for case in cases]


def _given(case: Any, *, is_quick: bool) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=() if is_quick else pytest.mark.grid)
