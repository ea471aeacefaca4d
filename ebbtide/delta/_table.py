"""Creates tables, commits to them, writes their data files and reads their rows."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from ebbtide.columns import inner_fields
from ebbtide.delta import _log as log
from ebbtide.delta import _vectors as vectors
from ebbtide.delta._checkpoints import checkpoint_if_due
from ebbtide.delta._commit import Puts, Transaction, commit, now_ms, transaction_mark
from ebbtide.delta._data_file import DataFile
from ebbtide.delta._log import Action, Log
from ebbtide.delta._snapshot import Snapshot, encoded
from ebbtide.delta._statistics import statistics
from ebbtide.errors import LeaseLostError, VersionTakenError
from ebbtide.storage import Attached, Location, footer_checksum, write_parquet

FEATURES = ("deletionVectors",)
"""Features of the tables made here, unless vectors are switched off, beside `timestampNtz` where a column needs it."""
ROW_GROUP = 1 << 17
"""Rows in one row group of a data file."""


def create(
    puts: Puts,
    table: str,
    columns: pa.Schema,
    properties: Mapping[str, str],
    *,
    name: str,
    info: Mapping[str, object],
) -> None:
    """Create a table: commit version 0, without rows.

    Args:
        puts: The table's store.
        table: Its location.
        columns: Its columns.
        properties: Its properties.
        name: Its name, shown to readers.
        info: Further fields of the commit's `commitInfo`.

    Raises:
        VersionTakenError: the table exists.
    """
    table_id = str(uuid.uuid4())
    actions = definition(columns, properties, table_id=table_id, name=name)
    info = {
        "operation": "CREATE TABLE",
        **info,
    }
    commit(puts, table, 0, actions, info)


def create_if_absent(
    puts: Puts,
    table: str,
    columns: pa.Schema,
    properties: Mapping[str, str],
    *,
    name: str,
) -> None:
    """Create a table if it does not exist; arguments as `create`."""
    if Log(table).versions():
        return
    with contextlib.suppress(VersionTakenError):  # another process has created it
        create(
            puts,
            table,
            columns,
            properties,
            name=name,
            info={},
        )


def commit_on(
    puts: Puts,
    snapshot: Snapshot,
    actions_of: Callable[[Snapshot], Sequence[Action]],
    transaction: Transaction,
    *,
    adds_rows: bool = True,
) -> Snapshot | None:
    """Commit a transaction on a table's newest version; tried again if another client commits in between.

    Args:
        puts: The table's store.
        snapshot: A version of the table.
        actions_of: Returns the actions for a version; called again for each version that is tried.
        transaction: Identity of the commit.
        adds_rows: See `refuse_unwritable`.

    Returns:
        The version that it made; None if the transaction was committed before.

    Raises:
        LeaseLostError: a later transaction of this application was committed.
    """
    app_id = transaction.app_id
    number = transaction.number
    # Optimistic concurrency. The marks are read again with each version that was lost: a replay of the same step ends here.
    while (last := snapshot.transactions.get(app_id, -1)) < number:
        mark = transaction_mark(app_id, number)
        actions = [*actions_of(snapshot), mark]
        made = commit_after(puts, snapshot, actions, transaction.info, adds_rows=adds_rows)
        if made is not None:
            return made
        snapshot = snapshot.advanced()
    if last > number:
        raise LeaseLostError.of(
            f"Another run has written the Delta table '{snapshot.table}' meanwhile.",
            got=f"step {number}, after step {last}",
            next_step="Nothing was written twice; start the run again.",
        )
    return None


def commit_after(
    puts: Puts,
    snapshot: Snapshot,
    actions: Sequence[Action],
    info: Mapping[str, object],
    *,
    adds_rows: bool = True,
) -> Snapshot | None:
    """Commit the version that follows one, and the checkpoint that is due with it.

    Args:
        puts: The table's store.
        snapshot: A version of the table.
        actions: Its changes.
        info: Fields of the commit's `commitInfo`.
        adds_rows: See `refuse_unwritable`.

    Returns:
        The version that it made; None if another client has committed that version.

    Raises:
        DeltaFeatureError: the table has, or would get, a feature that Ebbtide does not write.
    """
    # Replayed before it is committed: a version that could not be read or written afterwards is refused.
    made = snapshot.after(list(actions))
    removes = [action["remove"] for action in actions if "remove" in action]
    deletes = any(remove["dataChange"] for remove in removes)
    # A version that another client committed may have brought a feature since the caller looked, and the actions may bring one.
    for each in (snapshot, made):
        each.refuse_unwritable(
            deletes=deletes,
            adds_rows=adds_rows,
        )
    try:
        commit(puts, snapshot.table, made.version, actions, info)
    except VersionTakenError:
        return None
    # After the commit: a checkpoint that fails costs later readers time, and nothing else.
    checkpoint_if_due(made.table, made.version)
    return made


def definition(
    columns: pa.Schema,
    properties: Mapping[str, str],
    *,
    table_id: str,
    name: str,
    keep_vectors: bool = False,
) -> list[Action]:
    """Return the actions that define a table: `protocol` and `metaData`.

    Args:
        columns: Its columns.
        properties: Its properties.
        table_id: Its id, which a new definition keeps.
        name: Its name.
        keep_vectors: List deletion vectors even where they are switched off: files of the table may have some.
    """
    from deltalake import Schema

    # A protocol of version (3, 7) lists all features that the table uses, also those that older versions implied.
    # A table without deletion vectors does not list them either: readers that know none would refuse it for the feature alone.
    has_vectors = keep_vectors or properties.get("delta.enableDeletionVectors") != "false"
    features = [*FEATURES] if has_vectors else []
    needs_local_time = any(has_local_time(column.type) for column in columns)
    if needs_local_time:
        features.append("timestampNtz")
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": [*features, "appendOnly", "changeDataFeed", "invariants"],
    }
    metadata = {
        "id": table_id,
        "name": name,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": Schema.from_arrow(columns).to_json(),
        "partitionColumns": [],
        "configuration": dict(properties),
        "createdTime": now_ms(),
    }
    return [{"protocol": protocol}, {"metaData": metadata}]


def emptied(
    snapshot: Snapshot,
    columns: pa.Schema,
    properties: Mapping[str, str],
) -> list[Action]:
    """Return the actions that delete all rows of a table, and give it these columns and properties; id and history stay.

    Args:
        snapshot: The table's newest version.
        columns: Its columns from then on.
        properties: Its properties from then on.
    """
    actions = redefined(snapshot, columns, properties)
    return replacing(snapshot.files.values(), actions)


def redefined(
    snapshot: Snapshot,
    columns: pa.Schema,
    properties: Mapping[str, str],
) -> list[Action]:
    """Return the actions that give a table these columns and properties; arguments as `emptied`."""
    name = snapshot.metadata.get("name") or ""
    features = snapshot.protocol.get("readerFeatures") or ()
    return definition(
        columns,
        properties,
        table_id=snapshot.id,
        name=str(name),
        keep_vectors="deletionVectors" in features,
    )


def with_properties(
    snapshot: Snapshot,
    actions: Sequence[Action],
    properties: Mapping[str, str],
) -> Sequence[Action]:
    """Return actions, and the one that gives the table properties that it lacks: those of a table that was made without them.

    Args:
        snapshot: The version that the actions follow.
        actions: Actions of a commit.
        properties: Properties that the table is to have.
    """
    configuration = snapshot.configuration
    is_defined = any("metaData" in action for action in actions)
    has_properties = properties.items() <= configuration.items()
    if is_defined or has_properties:
        return actions
    metadata = {
        **snapshot.metadata,
        "configuration": {**configuration, **properties},
    }
    return [*actions, {"metaData": metadata}]


def replacing(
    files: Iterable[DataFile],
    actions: Iterable[Action],
    *,
    data_change: bool = True,
) -> list[Action]:
    """Return actions, and those that remove some data files.

    Args:
        files: Files to remove.
        actions: Actions to add.
        data_change: The commit changes rows.
    """
    at_ms = now_ms()
    replaced = list(actions)
    for file in files:
        remove = file.removed(at_ms, data_change=data_change)
        replaced.append(remove)
    return replaced


def copied(taken: Snapshot, to: str) -> list[Action]:
    """Copy a table's data files, and their vectors, into another one with the same columns; return the actions that add them."""
    actions = []
    for file in taken.files.values():
        source = file.location(taken.table)
        target = file.location(to)
        Location(source).copy_to(target)
        if file.vector is not None:
            _copy_vector(taken.table, file.vector, to)
        add = {**file.add, "dataChange": True}
        actions.append({"add": add})
    return actions


def _copy_vector(table: str, vector: vectors.Descriptor, to: str) -> None:
    """Copy the file of a vector to the place that its descriptor names in another table."""
    source = vectors.location_of(table, vector)
    target = vectors.location_of(to, vector)
    if source is not None and target is not None:
        Location(source).copy_to(target)


def has_local_time(type_: pa.DataType) -> bool:
    """Return whether a type has times without a zone, at any depth."""
    if pa.types.is_timestamp(type_):
        return type_.tz is None
    return any(has_local_time(inner.type) for inner in inner_fields(type_))


def add_file(
    table: str,
    name: str,
    rows: pa.Table,
    *,
    bounded: Iterable[str],
    data_change: bool = True,
    attached: Attached | None = None,
) -> Action:
    """Write a data file; return the action that adds it.

    Args:
        table: Location of the table.
        name: Name of the file, below it.
        rows: Rows of the file.
        bounded: Columns to keep statistics of.
        data_change: The rows are new to the table.
        attached: What else is in the file. Default: nothing.
    """
    location = Location(table) / name
    # The log has the footer's checksum and the size: a file that is replaced is detected.
    write_parquet(location, rows, row_group_size=ROW_GROUP, attached=attached)
    tags = {log.FOOTER: footer_checksum(location)}
    if rows.nbytes >= log.LEAST_UNPACKED:
        tags[log.UNPACKED] = str(rows.nbytes)
    add: Action = {
        "path": encoded(name),
        "partitionValues": {},
        "size": location.size(),
        "modificationTime": now_ms(),
        "dataChange": data_change,
        "stats": statistics(rows, bounded),
        "tags": tags,
    }
    return {"add": add}


def read_files(table: str, files: Iterable[DataFile], columns: pa.Schema) -> pa.Table:
    """Read the live rows of some data files; see `DataFile.read`."""
    tables = [columns.empty_table()]
    for file in files:
        rows = file.read(table, columns)
        tables.append(rows)
    return pa.concat_tables(tables)
