"""Writes rows as data files of a table, indexed for lookups by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from ebbtide.delta._data_file import DataFile, new_name
from ebbtide.delta._key_index import IndexCache
from ebbtide.delta._log import Action
from ebbtide.delta._partitions import in_partitions


def write_files(  # noqa: PLR0913 - the rows, where they go, and how readers find them
    table: str,
    rows: pa.Table,
    bounded: Sequence[str],
    *,
    rows_per_file: int | None = None,
    data_change: bool,
    copies: IndexCache | None = None,
    is_copied: bool = True,
    tags: Mapping[str, str] | None = None,
    partitioned: Sequence[str] = (),
) -> list[Action]:
    """Write rows as data files of a table, in their order; return the actions that add the files.

    Args:
        table: Its location.
        rows: All columns.
        bounded: Columns to keep statistics of.
        rows_per_file: The most of them in one file; None: all are in one.
        data_change: The rows are new to the table.
        copies: The files are indexed, and copied for the lookups of this process. Default: they are not.
        is_copied: They are copied. Else they are only indexed, for other processes.
        tags: Tags of the files in the log.
        partitioned: Partition columns of the table: each file has rows of one value of each.
    """
    actions = []
    n_rows = rows_per_file or max(len(rows), 1)
    for partition, of_partition in in_partitions(table, rows, partitioned):
        for start in range(0, len(of_partition), n_rows):
            part = of_partition.slice(start, n_rows).combine_chunks()
            indexed = None if copies is None else copies.indexed(part)
            action = DataFile.write(
                table,
                new_name(partition),
                part,
                bounded=bounded,
                data_change=data_change,
                attached=None if indexed is None else indexed.attached,
                partition=partition,
            )
            add = action["add"]
            if tags:
                add["tags"] = {**tags, **add["tags"]}
            if copies is not None and indexed is not None:
                add["tags"] = {**add["tags"], **copies.range_tag(indexed)}
                if is_copied:
                    copies.keep(DataFile(add), indexed)
            actions.append(action)
    return actions
