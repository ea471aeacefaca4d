"""Partition columns: a data file has rows of one value of each, which the log has as text, and the file does not have.

Readers take the values from the log alone; the folders of files, `column=value`, are a convention that people and other clients
look for. Source: Delta transaction log protocol, "Partition Value Serialization", "Data Files".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from ebbtide.columns import row_codes
from ebbtide.errors import TableMismatchError

Partition = Mapping[str, str | None]
"""The values of partition columns, as text; None is null."""
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Text of a partition's folder for null."""
LONGEST_NAME = 255
"""Bytes of a folder's name, at most, on common file systems."""
_ESCAPED = re.compile("[\x01-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")
"""Characters that Spark escapes in the name of a folder."""


def in_partitions(table: str, rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Partition, pa.Table]]:
    """Yield rows by their values of partition columns, each part in the order of the rows.

    Args:
        table: Location of the table, for messages.
        rows: All columns.
        columns: The partition columns; without one, all rows are one part.

    Raises:
        TableMismatchError: a value is an empty text, which Delta takes for null.
    """
    if not columns:
        yield {}, rows
    if not columns or not len(rows):
        return
    codes = row_codes(rows, columns)
    order = np.argsort(codes, kind="stable")
    ends = np.flatnonzero(np.diff(codes[order])) + 1
    for positions in np.split(order, ends):
        # Taken, not sliced: a local copy of a slice would hold bytes of its neighbours.
        part = rows.take(pa.array(positions))
        yield {name: _text(table, name, part[name][0]) for name in columns}, part


def folder_of(partition: Partition) -> str:
    """Return the folder of a partition's files, below the table, with a slash at its end; empty without one.

    Example:
        >>> folder_of({"day": "2024-02-29", "city": None})
        'day=2024-02-29/city=__HIVE_DEFAULT_PARTITION__/'
    """
    folders = [f"{_escaped(name)}={_escaped(text) if text else NO_VALUE}/" for name, text in partition.items()]
    is_too_long = any(len(folder.encode()) > LONGEST_NAME for folder in folders)
    return "" if is_too_long else "".join(folders)


def partition_in(name: str) -> dict[str, str | None]:
    """Return the values of partition columns that the folders of a file's name have, as Spark and delta-rs write them.

    Example:
        >>> partition_in("city=a%2Fb/part-0.parquet")
        {'city': 'a/b'}
    """
    values: dict[str, str | None] = {}
    *folders, _ = name.split("/")
    for folder in folders:
        quoted_column, is_value, text = folder.partition("=")
        if not is_value:
            continue
        column = unquote(quoted_column)
        values[column] = None if text == NO_VALUE else unquote(text)
    return values


def _text(table: str, name: str, value: pa.Scalar) -> str | None:
    if not value.is_valid:
        return None
    if pa.types.is_decimal(value.type):
        return f"{value.as_py():f}"  # never with an exponent
    text = str(value.cast(pa.string()).as_py())
    if not text:
        raise TableMismatchError.of(
            f"The table '{table}' is partitioned by '{name}', whose value is an empty text in a row.",
            got="''",
            allowed="texts with a character, and null: Delta takes an empty text for null",
            next_step="Send another text or null, or write the table again without this partitioning (CREATE OR REPLACE TABLE ... AS SELECT). Then run again.",
        )
    is_instant = pa.types.is_timestamp(value.type) and value.type.tz is not None
    return text.replace(" ", "T") if is_instant else text


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
