"""The rows of a state table, read without a JVM. `ebbtide.tables._state.table` describes the columns."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel
from pyroaring import BitMap64

from ebbtide.columns import entry_table, equals
from ebbtide.delta import Commit, DataFile, Log, Snapshot, positions_in
from ebbtide.entries import Step
from ebbtide.errors import StoredFormatError
from ebbtide.ledger import StepFacts
from ebbtide.model import StoredDocument
from ebbtide.operators import ExpiryRules, Operator

ROW = "row"
"""Value of `_entry`: an entry of the operator."""
FILE = "file"
"""Value of `_entry`: a source file that was read."""
ACKNOWLEDGED = "acknowledged"
"""Value of `_entry`: a key whose sink row may differ from the state until the key changes again."""
EMITTED = "emitted"
"""Value of `_entry`: a record emitted."""

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


def columns_of_entries(operator: Operator, names: Collection[str] | None) -> pa.Schema:
    """Return some columns of an operator's entries, as stored; None: all."""
    if names is None:
        return operator.schema
    columns = [column for column in operator.schema if column.name in names]
    return pa.schema(columns)


def newest_step(table: str, *, older: bool = False) -> tuple[int, StepFacts] | None:
    """Return (version, facts) of the newest step; None before the first.

    Args:
        table: Location of the state table.
        older: Read also the facts of a state whose rows this release does not read: for an operation that starts over.

    Raises:
        StoredFormatError: a newer release wrote it, or an older one whose rows this release does not read.
        DamagedFileError: see `StoredDocument.read`.
    """
    newest = next(Log(table).own_commits(), None) or _kept_facts(table)
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


def _kept_facts(table: str) -> tuple[int, dict[str, Any]] | None:
    """Return the newest step as the table's metadata domain has it; None without one."""
    # Needed after a long time without a step: another client's checkpoint may have cleaned up the commits of the last one.
    snapshot = Snapshot.read(table)
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
        if may_have(file, entry):
            rows = file.read(table, schema)
            tables.append(_of_kind(rows, entry))
    # Creating an empty table from Python lists would load pandas.
    return pa.concat_tables(tables) if tables else schema.empty_table()


def hidden_rows(
    table: str,
    file: DataFile,
    dead: BitMap64,
    operator: Operator,
    names: frozenset[str] | None,
) -> pa.Table:
    """Read the deleted rows of a file that were entries.

    Args:
        table: Location of the state table.
        file: The file.
        dead: Positions of its deleted rows.
        operator: The operator of the entries.
        names: Columns of an entry to read; None: all.
    """
    kind = pa.field("_entry", pa.string())
    columns = pa.schema([kind, *columns_of_entries(operator, names)])
    rows = file.read(table, columns, live=False)
    positions = positions_in(dead)
    hidden = rows.take(pa.array(positions))
    is_entry = equals(hidden, "_entry", ROW)
    return hidden.filter(pa.array(is_entry))


def may_have(file: DataFile, entry: str) -> bool:
    """Return whether a data file may hold rows of a kind, by its statistics; without them it may."""
    least = file.least("_entry")
    greatest = file.greatest("_entry")
    is_unknown = least is None or greatest is None
    if is_unknown:
        return True
    return bool(least <= entry <= greatest)


def may_hold_expired(file: DataFile, rules: ExpiryRules, step: Step) -> bool:
    """Return whether a file's least stamp has expired by one of the states' TTLs."""
    oldest_ms = file.least("_stamp_ms")
    if oldest_ms is None:
        return not file.is_all_null("_stamp_ms")  # without statistics it may
    for ttl in rules.ttls.values():
        expires_ms = oldest_ms + ttl.ttl_ms
        if expires_ms <= step.clock_ms(ttl):
            return True
    return False


def files_noted(table: str, files: Iterable[DataFile]) -> FileSizes:
    """Return the source files that some data files note, and the bytes of each when it was read last; None if only its name was noted.

    Args:
        table: Location of the state table.
        files: Some of its data files.
    """
    note = pa.schema([("_note", pa.string()), ("_step", pa.int64())])
    # A file that has changed may have been read again: then the later step's note counts.
    rows = rows_of(table, files, FILE, note).sort_by("_step")
    sizes: FileSizes = {}
    for text in rows["_note"].to_pylist():
        name, size = _noted_file(text)
        sizes[name] = size
    return sizes


def with_kind(entries: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return entries as rows of the state table.

    Args:
        entries: All columns of an entry.
        schema: Columns of the table.
    """
    n_rows = len(entries)
    columns = columns_by_name(entries)
    columns["_entry"] = pa.repeat(ROW, n_rows)
    return entry_table(schema, columns, n_rows)


def columns_by_name(rows: pa.Table) -> dict[str, object]:
    """Return the columns of some rows by name, to rename them or to add columns."""
    return {name: rows[name] for name in rows.column_names}


def _noted_file(note: str) -> tuple[str, int | None]:
    """Read the note of a file; older releases noted the bare name."""
    try:
        noted = json.loads(note)
        return noted["name"], noted["size"]
    except (ValueError, TypeError, KeyError):
        return note, None


def _of_kind(rows: pa.Table, entry: str) -> pa.Table:
    # `equal` with a Python value would load pandas, a CPU second.
    is_of_kind = pc.match_like(rows["_entry"], entry)
    return rows.filter(is_of_kind)
