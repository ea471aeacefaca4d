"""Queries that compare rows of the sink with the required rows, column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from ebbtide.checks._dialects import Dialect


def compared(
    sql: Dialect,
    decided: str,
    shown: str,
    key: Sequence[str],
    columns: pa.Schema,
) -> str:
    """Join decided rows with each of the sink's rows of their keys.

    Args:
        sql: The dialect.
        decided: A query for the required rows, each key once: key and `columns`, and whether the row must
            exist (`_ebbtide_is_decided`).
        shown: A query for rows of the sink: key and `columns`.
        key: Names of the key's columns.
        columns: The columns to compare.

    Returns:
        A query: the key, `_decided` and `_shown`: rows as structs, null if there is none; and whether they are the same
        (`_ebbtide_is_same`).
    """
    names = sql.names(key)
    # Both sides get separate column names: a joined row has each column twice, perhaps also key columns.
    of_decided = {name: f"_ebbtide_d{number}" for number, name in enumerate(columns.names)}
    of_shown = {name: f"_ebbtide_s{number}" for number, name in enumerate(columns.names)}
    equal = [sql.equal(of_decided[column.name], of_shown[column.name], column.type) for column in columns]
    are_equal = " AND ".join(equal)
    left = _renamed(sql, of_decided)
    right = _renamed(sql, of_shown)
    return f"""
        SELECT
            {names},
            CASE WHEN _ebbtide_is_decided THEN {sql.struct(of_decided)} END AS _decided,
            CASE WHEN _ebbtide_is_shown THEN {sql.struct(of_shown)} END AS _shown,
            CASE
                WHEN _ebbtide_is_decided THEN _ebbtide_is_shown IS NOT NULL AND {are_equal}
                ELSE _ebbtide_is_shown IS NULL
            END AS _ebbtide_is_same
        FROM (SELECT {names}, _ebbtide_is_decided, {left} FROM ({decided}) AS _to_be) AS _left
        LEFT JOIN (SELECT {names}, true AS _ebbtide_is_shown, {right} FROM ({shown}) AS _of_sink) AS _right
        USING ({names})"""


def _renamed(sql: Dialect, names: Mapping[str, str]) -> str:
    """Select columns under other names."""
    selected = [f"{sql.name(name)} AS {other}" for name, other in names.items()]
    return ", ".join(selected)
