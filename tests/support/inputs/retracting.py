"""Changelogs with retractions, as inputs of a join."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
KINDS = "CASE WHEN left(o.kind, 1) = left(c.kind, 1) THEN '+I' ELSE '-D' END AS kind"
"""The join of two changelogs, o and c, has a row for each pair of changes: it is added if both are added or both are retracted, else it is retracted."""


def changelog(
    chance: random.Random, keys: Sequence[int], values: Callable[[int], Row], n: int
) -> tuple[list[list[Row]], list[Row]]:
    """Return a changelog of rows by key, in three files, and the rows that are left.

    Args:
        chance: Draws them.
        keys: The keys.
        values: Returns a row of a key.
        n: Updates of a file; one retracts a row that is there, and mostly adds another one.
    """
    rows: dict[int, Row] = {}
    files = []
    for _ in range(3):
        file = []
        for _ in range(n):
            key = chance.choice(keys)
            if key in rows:
                file.append({"kind": "-U", **rows.pop(key)})
            if chance.random() < 0.8:
                rows[key] = values(key)
                file.append({"kind": "+U", **rows[key]})
        files.append(file)
    return files, list(rows.values())
