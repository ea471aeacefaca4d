"""The rows of a state table, and what of them is read without a JVM. The columns are in `ebbtide.state_table.table`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.delta import log
from ebbtide.model.entries import entry_table
from ebbtide.paths import read_parquet

ROW = "row"
"""Value of `_entry`: an entry of the operator."""
METRICS = "metrics"
"""Value of `_entry`: counts of a step, where its facts do not hold them."""
FILE = "file"
"""Value of `_entry`: a source file that was read."""
EMITTED = "emitted"
"""Value of `_entry`: a record emitted."""

FileSizes = dict[str, int | None]
"""Name of a source file to its bytes; None where only the name was noted."""


def counts(table: str, version: int, noted: Mapping[str, int] | None) -> Counter[str]:
    """Return the counts of a step.

    Args:
        table: Location of the state table.
        version: The step's.
        noted: Those in its facts; None of a step that has a row for them, read from that commit's files alone.
    """
    if noted is not None:
        return Counter(noted)
    found: Counter[str] = Counter()
    for location in log.added(table, version):
        rows = read_parquet(location, columns=["_entry", "_note"])
        of_metrics = _of_kind(rows, METRICS)
        notes = of_metrics["_note"].to_pylist()
        for note in notes:
            metrics = json.loads(note)
            found.update(metrics)
    return found


def rows_of(files: Iterable[log.DataFile], entry: str, columns: Sequence[str]) -> pa.Table | None:
    """Read one kind of rows.

    Args:
        files: Data files of a state table.
        entry: The kind.
        columns: What to read beside it.

    Returns:
        The rows; None if no file can have one.
    """
    names = ["_entry", *columns]
    tables = []
    for file in files:
        # A file without statistics may hold rows of any kind.
        least = file.least.get("_entry", entry)
        greatest = file.greatest.get("_entry", entry)
        may_hold = least <= entry <= greatest
        if may_hold:
            table = read_parquet(file.location, columns=names)
            tables.append(table)
    if not tables:
        return None
    rows = pa.concat_tables(tables, promote_options="permissive")
    return _of_kind(rows, entry)


def with_kind(entries: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return entries as rows of the state table.

    Args:
        entries: All columns of an entry.
        schema: The table's.
    """
    n_rows = len(entries)
    columns = columns_by_name(entries)
    columns["_entry"] = pa.repeat(ROW, n_rows)
    return entry_table(schema, columns, n_rows)


def columns_by_name(rows: pa.Table) -> dict[str, object]:
    """Return the columns of some rows, to be put under other names or beside other columns."""
    return {name: rows[name] for name in rows.column_names}


def noted_files(rows: pa.Table) -> FileSizes:
    """Return the source files that rows of the kind `FILE` note."""
    sizes: FileSizes = {}
    notes = rows["_note"].to_pylist()
    for note in notes:
        name, size = _noted_file(note)
        sizes[name] = size
    return sizes


def _noted_file(note: str) -> tuple[str, int | None]:
    """Read the note of a file; before sizes were noted it was the bare name."""
    try:
        noted = json.loads(note)
        return noted["name"], noted["size"]
    except (ValueError, TypeError, KeyError):
        return note, None


def _of_kind(rows: pa.Table, entry: str) -> pa.Table:
    # `equal` with a Python value would load pandas, a CPU second.
    is_of_kind = pc.match_like(rows["_entry"], entry)
    return rows.filter(is_of_kind)
