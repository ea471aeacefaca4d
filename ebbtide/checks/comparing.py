"""Queries that compare rows of the sink with rows that it must have, column by column."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ebbtide.checks.dialects import Dialect


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
        decided: A query for rows to be, each key once: key and `columns`, `_step`, whether it is to be there (`_ebbtide_is_decided`).
        shown: A query for rows of the sink: key and `columns`.
        key: Names of the key's columns.
        columns: What rows are compared by.
        join: `LEFT`: keys that were decided; `FULL OUTER`: those of the sink too.
        each_row: Compare each row that the sink has of a key; else the least stands for all.

    Returns:
        A query: the key, `_step`, `_decided` and `_shown`: rows as structs, null if there is none; `_rows`, how many the sink has;
        whether they are the same (`_ebbtide_is_same`).
    """
    names = sql.names(key)
    left = [f"{sql.name(name)} AS _ebbtide_d{number}" for number, name in enumerate(columns.names)]
    right = [f"{sql.name(name)} AS _ebbtide_s{number}" for number, name in enumerate(columns.names)]
    plain = [sql.name(column.name) for column in columns if not pa.types.is_nested(column.type)]
    in_order = ", ".join(f"{name} NULLS FIRST" for name in plain)
    per_key = f"PARTITION BY {names}"
    numbered = f"""
        SELECT *, count(*) OVER ({per_key}) AS _n, row_number() OVER ({per_key} ORDER BY {in_order}) AS _ebbtide_row_number
        FROM ({shown}) AS _of_sink"""
    are_equal = [
        sql.equal(f"_ebbtide_d{number}", f"_ebbtide_s{number}", column.type) for number, column in enumerate(columns)
    ]
    counted = "true" if each_row else "_ebbtide_row_number = 1"
    decided_row = sql.struct({name: f"_ebbtide_d{number}" for number, name in enumerate(columns.names)})
    shown_row = sql.struct({name: f"_ebbtide_s{number}" for number, name in enumerate(columns.names)})
    is_decided = "coalesce(_ebbtide_is_decided, false)"
    return f"""
        SELECT {names}, _step, coalesce(_n, 0) AS _rows,
            CASE WHEN {is_decided} THEN {decided_row} END AS _decided,
            CASE WHEN _n IS NOT NULL THEN {shown_row} END AS _shown,
            CASE WHEN {is_decided} THEN _n IS NOT NULL AND {" AND ".join(are_equal)} ELSE _n IS NULL END AS _ebbtide_is_same
        FROM (SELECT {names}, _step, _ebbtide_is_decided, {", ".join(left)} FROM ({decided}) AS _to_be) AS _left
        {join} JOIN (SELECT {names}, _n, {", ".join(right)} FROM ({numbered}) AS _numbered WHERE {counted}) AS _right
        USING ({names})"""
