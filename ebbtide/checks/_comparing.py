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
    *,
    join: str,
    each_row: bool = False,
) -> str:
    """Join decided rows with those of the sink, by key.

    Args:
        sql: The dialect.
        decided: A query for the required rows, each key once: key and `columns`, `_step`, and whether the row must
            exist (`_ebbtide_is_decided`).
        shown: A query for rows of the sink: key and `columns`.
        key: Names of the key's columns.
        columns: The columns to compare.
        join: `LEFT`: keys that were decided; `FULL OUTER`: also keys of the sink.
        each_row: Compare each of the sink's rows of a key; otherwise only the least.

    Returns:
        A query: the key, `_step`, `_decided` and `_shown`: rows as structs, null if there is none; `_rows`, how many the sink has;
        whether they are the same (`_ebbtide_is_same`).
    """
    names = sql.names(key)
    # Both sides get separate column names: a joined row has each column twice, perhaps also key columns.
    of_decided = {name: f"_ebbtide_d{number}" for number, name in enumerate(columns.names)}
    of_shown = {name: f"_ebbtide_s{number}" for number, name in enumerate(columns.names)}
    equal = [sql.equal(of_decided[column.name], of_shown[column.name], column.type) for column in columns]
    are_equal = " AND ".join(equal)
    is_decided = "coalesce(_ebbtide_is_decided, false)"
    decided_row = sql.struct(of_decided)
    shown_row = sql.struct(of_shown)
    left = _renamed(sql, of_decided)
    right = _renamed(sql, of_shown)
    counted = "true" if each_row else "_ebbtide_row_number = 1"
    numbered = _numbered(sql, shown, names, columns)
    return f"""
        SELECT
            {names},
            _step,
            coalesce(_n, 0) AS _rows,
            CASE WHEN {is_decided} THEN {decided_row} END AS _decided,
            CASE WHEN _n IS NOT NULL THEN {shown_row} END AS _shown,
            CASE WHEN {is_decided} THEN _n IS NOT NULL AND {are_equal} ELSE _n IS NULL END AS _ebbtide_is_same
        FROM (
            SELECT {names}, _step, _ebbtide_is_decided, {left}
            FROM ({decided}) AS _to_be
        ) AS _left
        {join} JOIN (
            SELECT {names}, _n, {right}
            FROM ({numbered}) AS _numbered
            WHERE {counted}
        ) AS _right
        USING ({names})"""


def _renamed(sql: Dialect, names: Mapping[str, str]) -> str:
    """Select columns under other names."""
    selected = [f"{sql.name(name)} AS {other}" for name, other in names.items()]
    return ", ".join(selected)


def _numbered(sql: Dialect, shown: str, key: str, columns: pa.Schema) -> str:
    """Count the rows of each key (`_n`), and number them from the least; nested values have no order in either engine."""
    plain = [column.name for column in columns if not pa.types.is_nested(column.type)]
    in_order = ", ".join(f"{sql.name(name)} NULLS FIRST" for name in plain)
    return f"""
        SELECT
            *,
            count(*) OVER (PARTITION BY {key}) AS _n,
            row_number() OVER (PARTITION BY {key} ORDER BY {in_order}) AS _ebbtide_row_number
        FROM ({shown}) AS _of_sink"""
