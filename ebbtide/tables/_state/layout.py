"""The rows of a state table, read without a JVM. `ebbtide.tables._state.table` describes the columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel
from pydantic_core import from_json

from ebbtide.delta import Commit, DataFile, Log, Snapshot
from ebbtide.errors import StoredFormatError
from ebbtide.ledger import StepFacts
from ebbtide.model import StoredDocument
from ebbtide.operators import Operator


class EntryKind(StrEnum):
    """The kind of a row of a state table: the value of `_entry`.

    Attributes:
        ROW: An entry of the operator.
        FILE: A source file that was read.
        ACKNOWLEDGED: A key whose sink row may differ from the state until the key changes again.
        EMITTED: A record emitted.
    """

    ROW = "row"
    FILE = "file"
    ACKNOWLEDGED = "acknowledged"
    EMITTED = "emitted"


BASE = {"ebbtide": "base"}
"""The tag of files from a fold of the whole state: among them no entry has two versions."""
NOTES = "ebbtideNotes"
"""The tag of a file of entries with the number of notes on source files behind them."""
OLDEST_FORMAT = 2
"""The oldest format of a state whose rows are read."""
DOMAIN = "ebbtide"
"""Delta's `domainMetadata` that holds the facts of the newest step: they outlive the log's cleanup."""

_KEPT = "The newest step in the properties of the state"
FileSizes = dict[str, int | None]
"""Name of a source file to its bytes; None if only the name was noted."""


class _Kept(BaseModel):
    """The facts of the newest step, in the table's properties."""

    version: int
    facts: dict[str, Any]


def columns_of_state(operator: Operator) -> pa.Schema:
    """Return all columns of the state table of an operator."""
    fields = [
        pa.field("_entry", pa.string()),
        pa.field("_note", pa.string()),
        *operator.schema,
    ]
    return pa.schema(fields)


def newest_step(table: str, *, older: bool = False, seen: Log | None = None) -> tuple[int, StepFacts] | None:
    """Return (version, facts) of the newest step; see `StateTable.newest_step`."""
    log = seen or Log(table).look()
    newest = next(log.own_commits(), None) or _kept_facts(log)
    if newest is None:
        return None
    version, facts = newest
    if facts[Commit.FORMAT] < OLDEST_FORMAT and not older:
        raise StoredFormatError.of(
            f"The state at '{table}' was written by an older Ebbtide.",
            got=f"format {facts[Commit.FORMAT]}",
            allowed=f"format {OLDEST_FORMAT} to {StoredDocument.FORMAT}",
            next_step="Run 'ebbtide refresh' to rebuild the sink from the source.",
        )
    return version, StepFacts.of_commit(facts, table)


def _kept_facts(log: Log) -> tuple[int, dict[str, Any]] | None:
    """Return the newest step as the table's metadata domain has it; None without one."""
    # Needed after a long time without a step: another client's checkpoint may have cleaned up the commits of the last one.
    table = log.table
    snapshot = Snapshot.read(table, seen=log)
    if snapshot is None or DOMAIN not in snapshot.domains:
        return None
    text = snapshot.domains[DOMAIN]
    stored = StoredDocument(_KEPT, table)
    kept = stored.read(_Kept, stored.parsed(text))
    StoredDocument(Commit.FACTS, table).refuse_newer_format(kept.facts)
    return kept.version, kept.facts


def rows_of(
    table: str,
    files: Iterable[DataFile],
    entry: str,
    columns: pa.Schema,
) -> pa.Table:
    """Read one kind of rows.

    Args:
        table: Location of the state table.
        files: Some of its data files.
        entry: The kind, a value of `_entry`.
        columns: Further columns to read.
    """
    kind = pa.field("_entry", pa.string())
    schema = pa.schema([kind, *columns])
    tables = []
    for file in files:
        if may_have(file, "_entry", entry):
            rows = file.read(table, schema)
            tables.append(_of_kind(rows, entry))
    # Creating an empty table from Python lists would load pandas.
    return pa.concat_tables(tables) if tables else schema.empty_table()


def may_have(file: DataFile, name: str, value: str) -> bool:
    """Return whether a data file may have rows with a value in a column, by its statistics; without them it may."""
    least = file.least(name)
    greatest = file.greatest(name)
    is_unknown = least is None or greatest is None
    if is_unknown:
        return True
    return bool(least <= value <= greatest)


def has_only(file: DataFile, name: str, value: str) -> bool:
    """Return whether all rows of a data file have one value in a column, by its statistics."""
    nulls = file.stats.get("nullCount", {})
    is_never_null: bool = nulls.get(name) == 0
    bounds = (file.least(name), file.greatest(name))
    return is_never_null and bounds == (value, value)


def n_entries(file: DataFile) -> int:
    """Return how many rows of a data file are entries, all their versions, by its statistics; of a file without entries 0."""
    has_entries = file.greatest("_entry") in (EntryKind.ROW, None)
    return (file.live_rows or 0) - int(file.tags.get(NOTES, 0)) if has_entries else 0


def is_base(file: DataFile) -> bool:
    """Return whether a file is from a fold of the whole state."""
    return BASE.items() <= file.tags.items()


def files_noted(table: str, files: Iterable[DataFile]) -> FileSizes:
    """Return the source files that some data files note, and the bytes of each when it was read last; None if only its name was noted.

    Args:
        table: Location of the state table.
        files: Some of its data files.
    """
    return dict(_noted_files(notes_of_files(table, files)["_note"].to_pylist()))


def files_and_steps(table: str, files: Iterable[DataFile]) -> dict[str, tuple[int | None, int]]:
    """Return the same, each with the step that read it last; arguments as `files_noted`."""
    rows = notes_of_files(table, files)
    noted = zip(_noted_files(rows["_note"].to_pylist()), rows["_step"].to_pylist(), strict=True)
    return {name: (size, step) for (name, size), step in noted}


def notes_of_files(table: str, files: Iterable[DataFile]) -> pa.Table:
    """Return the notes on source files, by step: of a file that has changed, and was read again, the last one counts."""
    note = pa.schema([("_note", pa.string()), ("_step", pa.int64())])
    return rows_of(table, files, EntryKind.FILE, note).sort_by("_step")


def columns_by_name(rows: pa.Table) -> dict[str, object]:
    """Return the columns of some rows by name, to rename them or to add columns."""
    return {name: rows[name] for name in rows.column_names}


def of_sink(entries: pa.Table, columns: pa.Schema, key_of: Mapping[str, str]) -> pa.Table:
    """Return entries under columns of the sink, in its types.

    With a transform or a function the sink's rows are not the state's: they are the fields of `_out`.

    Args:
        entries: The entries.
        columns: The columns.
        key_of: Columns of the sink's key to those of the state's, where the entries have them.
    """
    values: dict[str, Any] = {**columns_by_name(entries)}
    if "_out" in values:
        structs = entries["_out"].combine_chunks()
        key = {name: entries[of_state] for name, of_state in key_of.items()}
        values |= {name: pc.struct_field(structs, name) for name in structs.type.names} | key
    return typed(values, columns)


def typed(values: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema, in its types."""
    arrays = [values[column.name].cast(column.type) for column in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _noted_files(notes: list[str]) -> list[tuple[str, int | None]]:
    """Read the notes of files."""
    try:  # as one document: a pipeline remembers thousands of names, in each run
        read = [(noted["name"], noted["size"]) for noted in from_json(f"[{','.join(notes)}]")]
    except (ValueError, TypeError, KeyError):
        read = []
    return read if len(read) == len(notes) else list(map(_noted_file, notes))


def _noted_file(note: str) -> tuple[str, int | None]:
    """Read the note of a file; older releases noted the bare name."""
    try:
        noted = from_json(note)
        return noted["name"], noted["size"]
    except (ValueError, TypeError, KeyError):
        return note, None


def _of_kind(rows: pa.Table, entry: str) -> pa.Table:
    # `equal` with a Python value would load pandas, a CPU second.
    is_of_kind = pc.match_like(rows["_entry"], entry)
    return rows.filter(is_of_kind)
