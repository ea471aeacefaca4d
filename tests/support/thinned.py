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
