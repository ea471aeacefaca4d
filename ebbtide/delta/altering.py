"""A table under other columns: its metadata, and its data files written again where these no longer fit.

Column mapping and type widening would need no file written, but readers that know these features. Files are written one
for one, rows in their order, in commits that say that they change no data: the change feed shows no row twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from ebbtide.delta.features import with_feature
from ebbtide.delta.joining import write_files
from ebbtide.delta.snapshot import Action, DataFile, Snapshot
from ebbtide.delta.table import definition, has_local_time, read_file
from ebbtide.formats.columns import convert
from ebbtide.model.schema_change import SchemaChange

BYTES_IN_DRIVER = 8 * 2**20
"""Bytes of data files up to which there is no task but the driver."""


@dataclass(frozen=True)
class FileUnderNewColumns:
    """Writes data files again under other columns; runs in workers.

    Args:
        table: The table's location.
        stored: Its columns as they were.
        columns: Its columns as they will be.
        bounded: Columns to keep statistics of.
        change: What becomes of the columns.
    """

    table: str
    stored: pa.Schema
    columns: pa.Schema
    bounded: tuple[str, ...]
    change: SchemaChange

    def __call__(self, file: DataFile) -> list[Action]:
        """Return the actions that add what a file holds; none if no row of it counts."""
        rows = read_file(self.table, file, self.stored)
        fills = fills_of(self.change, self.columns)
        altered = self.change.rows(rows, self.columns, fills)
        return write_files(
            self.table,
            altered,
            self.bounded,
            data_change=False,
            tags=file.tags,
        )


def fills_of(change: SchemaChange, columns: pa.Schema) -> Mapping[str, pa.Scalar]:
    """Return the values that added columns have in the rows that there are.

    Args:
        change: Names them, as JSON.
        columns: All columns, with their types.
    """
    fills = {}
    for name, value in change.added.items():
        if value is not None:
            array, _ = convert([value], columns.field(name).type)
            fills[name] = array[0]
    return fills


def under_columns(snapshot: Snapshot, columns: pa.Schema) -> list[Action]:
    """Return the actions that give a table other columns; its properties stay, and its files.

    Args:
        snapshot: The table's newest version.
        columns: Its columns from then on.
    """
    defined = definition(columns, {}, table_id=snapshot.id, name="")
    [new] = [action["metaData"] for action in defined if "metaData" in action]
    # Id, name, properties and creation time stay: readers that follow the table know it by these.
    metadata = {
        **snapshot.metadata,
        "schemaString": _with_field_metadata(new["schemaString"], snapshot.metadata["schemaString"]),
    }
    actions: list[Action] = [{"metaData": metadata}]
    feature = "timestampNtz"
    needs_feature = any(has_local_time(column.type) for column in columns)
    if needs_feature and feature not in (snapshot.protocol.get("writerFeatures") or ()):
        actions.append({"protocol": with_feature(snapshot.protocol, feature)})
    return actions


def _with_field_metadata(new: str, stored: str) -> str:
    """Return a schema whose columns keep what the stored one says of them, such as comments."""
    known = {field["name"]: field["metadata"] for field in json.loads(stored)["fields"]}
    schema = json.loads(new)
    for field in schema["fields"]:
        field["metadata"] = known.get(field["name"], {})
    return json.dumps(schema)
