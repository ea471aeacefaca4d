"""Changes the columns of a table: its metadata, and its data files if these no longer fit.

Column mapping and type widening would rewrite no file, but readers would have to know these features. Files are rewritten one by one,
with their rows in order, in commits that declare no data change: so the change feed shows no row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from ebbtide.delta._data_file import DataFile
from ebbtide.delta._features import with_feature
from ebbtide.delta._joining import write_files
from ebbtide.delta._log import Action
from ebbtide.delta._snapshot import Snapshot
from ebbtide.delta._table import definition, has_local_time
from ebbtide.formats import convert
from ebbtide.model import SchemaChange


@dataclass(frozen=True)
class FileUnderNewColumns:
    """Rewrites data files under new columns; runs in workers.

    Args:
        table: Location of the table.
        stored: Its old columns.
        columns: Its new columns.
        bounded: Columns to keep statistics of.
        change: The change from the old columns to the new ones.
    """

    table: str
    stored: pa.Schema
    columns: pa.Schema
    bounded: tuple[str, ...]
    change: SchemaChange

    def __call__(self, file: DataFile) -> list[Action]:
        """Return the actions that add a file's rows again; none if all its rows are deleted."""
        rows = file.read(self.table, self.stored)
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
    """Return the values of added columns in existing rows.

    Args:
        change: Has them, as JSON.
        columns: All columns, with their types.
    """
    fills = {}
    for name, value in change.added.items():
        if value is not None:
            type_ = columns.field(name).type
            array, _ = convert([value], type_)
            fills[name] = array[0]
    return fills


def under_columns(snapshot: Snapshot, columns: pa.Schema) -> list[Action]:
    """Return the actions that give a table new columns; its properties and files stay.

    Args:
        snapshot: The table's newest version.
        columns: Its new columns.
    """
    stored = snapshot.metadata
    defined = definition(columns, {}, table_id=snapshot.id, name="")
    [new] = [action["metaData"] for action in defined if "metaData" in action]
    schema = _with_field_metadata(new["schemaString"], stored["schemaString"])
    # Id, name, properties and creation time stay: streaming readers identify the table by its id.
    metadata = {**stored, "schemaString": schema}
    actions: list[Action] = [{"metaData": metadata}]
    feature = "timestampNtz"
    listed = snapshot.protocol.get("writerFeatures") or ()
    needs_feature = any(has_local_time(column.type) for column in columns)
    if needs_feature and feature not in listed:
        protocol = with_feature(snapshot.protocol, feature)
        actions.append({"protocol": protocol})
    return actions


def _with_field_metadata(new: str, stored: str) -> str:
    """Return a schema whose columns keep their stored metadata, such as comments."""
    stored_fields = json.loads(stored)["fields"]
    known = {field["name"]: field["metadata"] for field in stored_fields}
    schema = json.loads(new)
    for field in schema["fields"]:
        name = field["name"]
        field["metadata"] = known.get(name, {})
    return json.dumps(schema)
