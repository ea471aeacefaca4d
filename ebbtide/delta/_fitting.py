"""Compares the columns of a table with those that its pipeline gave it.

Rows are written with the pipeline's columns only: a further column of another client would lose its values.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

import pyarrow as pa

from ebbtide.amounts import amount
from ebbtide.delta._log import Action
from ebbtide.errors import TableMismatchError

_OF_NESTED = ("metadata", "nullable", "containsNull", "valueContainsNull")
"""Keys of a nested field in the log, other than name and type."""


def columns_of(metadata: Action) -> dict[str, Any]:
    """Return the columns of a table by name, each with its type as in the log, without comments and other metadata.

    Args:
        metadata: The log's `metaData`.
    """
    types = {}
    for field in _fields(metadata):
        types[field["name"]] = _bare(field["type"])
    return types


def has_columns(metadata: Action, columns: pa.Schema) -> bool:
    """Return whether a table has these columns, in any order, with the same nullability.

    Args:
        metadata: The log's `metaData`.
        columns: The columns of its pipeline.
    """
    if columns_of(metadata) != types_of(columns):
        return False
    return not _required(metadata, columns)


def refuse_other_columns(table: str, metadata: Action, columns: pa.Schema) -> None:
    """Refuse a table that another client has given other columns; their order does not matter.

    Args:
        table: Its location.
        metadata: The log's `metaData`.
        columns: The columns of its pipeline.

    Raises:
        TableMismatchError: it has a further column, lacks one, or has one of another type.
    """
    # Compared by name and type. NOT NULL is judged file by file (`refuse_nulls`): a client may add it, and no row violates it.
    found = columns_of(metadata)
    wanted = types_of(columns)
    if found == wanted:
        return
    misfits = [f"{name} is not the pipeline's" for name in found if name not in wanted]
    misfits += [f"{name} is missing" for name in wanted if name not in found]
    for name, type_ in found.items():
        if name in wanted and type_ != wanted[name]:
            misfits.append(f"{name} has type {type_}")
    raise TableMismatchError.of(
        f"The table at '{table}' has other columns than the pipeline has given it.",
        got="; ".join(misfits),
        allowed=", ".join(wanted),
        next_step="Undo the change (RESTORE TABLE, ALTER TABLE), or run 'ebbtide refresh' to rebuild it from the source. Put your own columns into a separate table or view.",
    )


def refuse_nulls(
    table: str,
    metadata: Action,
    columns: pa.Schema,
    actions: Iterable[Action],
) -> None:
    """Refuse new data files with nulls in a column that another client made NOT NULL.

    Args:
        table: Its location.
        metadata: The log's `metaData`.
        columns: The columns of its pipeline.
        actions: Actions to commit.

    Raises:
        TableMismatchError: a file has nulls in such a column, or its nulls are not counted.
    """
    required = _required(metadata, columns)
    if not required:
        return
    for action in actions:
        if "add" not in action:
            continue
        add = action["add"]
        stats = json.loads(add.get("stats") or "{}")
        nulls = stats.get("nullCount", {})
        partition = add.get("partitionValues") or {}
        for name in required:
            # Not counted does not mean none: such a file is refused too.
            n_nulls = nulls.get(name)
            if name in partition:
                n_nulls = 0 if partition[name] else stats.get("numRecords")
            if n_nulls != 0:
                raise _nulls_error(table, name, n_nulls)


def refuse_other_partitions(table: str, partitioned: Collection[str], actions: Iterable[Action]) -> None:
    """Refuse new data files under other partition columns than a table's.

    Args:
        table: Its location.
        partitioned: Its partition columns.
        actions: Actions to commit.

    Raises:
        TableMismatchError: a file has values of other partition columns.
    """
    wanted = {name.lower() for name in partitioned}
    for action in actions:
        if "add" not in action:
            continue
        names = action["add"].get("partitionValues") or {}
        if {name.lower() for name in names} != wanted:
            raise TableMismatchError.of(
                f"Another client has partitioned the table at '{table}' while its files were written.",
                got=f"partition columns {', '.join(partitioned) or 'none'}",
                allowed=f"those of the written files: {', '.join(names) or 'none'}",
                next_step="Nothing was committed. If it is a sink, run it again: its files are written again. Undo the partitioning of another table (RESTORE TABLE).",
            )


def _required(metadata: Action, columns: pa.Schema) -> list[str]:
    """Return the columns that are NOT NULL in the table, and may be null in the pipeline."""
    required = []
    for field in _fields(metadata):
        name = field["name"]
        may_be_null = columns.field(name).nullable
        if may_be_null and not field["nullable"]:
            required.append(name)
    return required


def _nulls_error(table: str, column: str, n_nulls: Any) -> TableMismatchError:
    return TableMismatchError.of(
        f"The column '{column}' of the table at '{table}' takes no null, though the pipeline's may be null.",
        got=amount(n_nulls, "null") if isinstance(n_nulls, int) else "nulls that are not counted",
        allowed="a column that takes nulls",
        next_step=f"Allow them (ALTER TABLE ... ALTER COLUMN {column} DROP NOT NULL), then run again: the step is finished then.",
    )


def _fields(metadata: Action) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(metadata["schemaString"])["fields"]
    return fields


def types_of(columns: pa.Schema) -> dict[str, Any]:
    """Return columns by name, each with its type as the log would write it."""
    from deltalake import Schema

    return columns_of({"schemaString": Schema.from_arrow(columns).to_json()})


def _bare(type_: Any) -> Any:
    """Return a type without the metadata of the fields in it."""
    if isinstance(type_, list):
        return [_bare(each) for each in type_]
    if isinstance(type_, dict):
        return {name: _bare(value) for name, value in type_.items() if name not in _OF_NESTED}
    return type_
