"""The definition of a table: its columns and properties, as `protocol` and `metaData` of its log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ebbtide.columns import inner_fields
from ebbtide.delta._data_file import DataFile, now_ms
from ebbtide.delta._features import OF_READERS, protocol_of, with_feature
from ebbtide.delta._log import Action
from ebbtide.delta._properties import configuration_of, features_of
from ebbtide.delta._snapshot import Snapshot

FEATURES = ("deletionVectors",)
"""Features of tables created here, unless vectors are switched off; `timestampNtz` is added if a column needs it."""


@dataclass(frozen=True)
class Definition:
    """The required columns and properties of a table.

    Args:
        columns: All its columns.
        properties: Its properties.
    """

    columns: pa.Schema
    properties: Mapping[str, str] = field(default_factory=dict)

    def actions(
        self, *, table_id: str, name: str, keep_vectors: bool = False, partitioned: Sequence[str] = ()
    ) -> list[Action]:
        """Return the actions that define a table: `protocol` and `metaData`.

        Args:
            table_id: Its id, which a new definition keeps.
            keep_vectors: List deletion vectors even where they are switched off: files of the table may have some.
            partitioned: Its partition columns, which a new definition keeps.
        """
        from deltalake import Schema

        # A table without deletion vectors does not list them either: readers that know none would refuse it for the feature alone.
        has_vectors = keep_vectors or self.properties.get("delta.enableDeletionVectors", "true").lower() != "false"
        chosen = set(features_of(self.properties))
        readers = {*(OF_READERS & chosen), *(FEATURES if has_vectors else ())}
        if self._has_local_times():
            readers.add("timestampNtz")
        protocol = protocol_of(readers, {*chosen, "appendOnly", "changeDataFeed", "invariants"})
        metadata = {
            "id": table_id,
            "name": name,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": Schema.from_arrow(self.columns).to_json(),
            "partitionColumns": list(partitioned),
            "configuration": configuration_of(self.properties),
            "createdTime": now_ms(),
        }
        return [{"protocol": protocol}, {"metaData": metadata}]

    def redefining(self, snapshot: Snapshot) -> list[Action]:
        """Return the actions that give a table these columns and properties; its id, name, partition columns and rows stay.

        Args:
            snapshot: The table's newest version.
        """
        name = snapshot.metadata.get("name") or ""
        features = snapshot.protocol.get("readerFeatures") or ()
        return self.actions(
            table_id=snapshot.id,
            name=str(name),
            keep_vectors="deletionVectors" in features,
            partitioned=self.partitioned(snapshot),
        )

    def partitioned(self, snapshot: Snapshot, renamed: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Return the partition columns of a table, as far as these columns still have them.

        Args:
            snapshot: The table's newest version.
            renamed: New names of columns to the old ones. Default: none has another name.
        """
        new_names = {old: new for new, old in (renamed or {}).items()}
        names = [new_names.get(name, name) for name in snapshot.partitioned]
        return tuple(name for name in names if name in self.columns.names)

    def emptying(self, snapshot: Snapshot) -> list[Action]:
        """Return the actions that delete all rows of a table, and give it these columns and properties; id and history stay.

        Args:
            snapshot: The table's newest version.
        """
        return DataFile.replacing(snapshot.files.values(), self.redefining(snapshot))

    def altering(self, snapshot: Snapshot, renamed: Mapping[str, str] | None = None) -> list[Action]:
        """Return the actions that give a table these columns alone; its properties and files stay.

        Args:
            snapshot: The table's newest version.
            renamed: See `partitioned`.
        """
        stored = snapshot.metadata
        defined = self.actions(table_id=snapshot.id, name="")
        [new] = [action["metaData"] for action in defined if "metaData" in action]
        schema = _with_field_metadata(new["schemaString"], stored["schemaString"])
        # Id, name, properties and creation time stay: streaming readers identify the table by its id.
        metadata = {**stored, "schemaString": schema, "partitionColumns": list(self.partitioned(snapshot, renamed))}
        actions: list[Action] = [{"metaData": metadata}]
        feature = "timestampNtz"
        listed = snapshot.protocol.get("writerFeatures") or ()
        if self._has_local_times() and feature not in listed:
            protocol = with_feature(snapshot.protocol, feature)
            actions.append({"protocol": protocol})
        return actions

    def extending(self, snapshot: Snapshot) -> list[Action]:
        """Return the actions that give a table the columns and properties that it lacks; none if it has all. What it has stays.

        Args:
            snapshot: The table's newest version.
        """
        stored = snapshot.metadata
        configuration = snapshot.configuration
        of_protocol, of_metadata = self.actions(table_id=snapshot.id, name="")
        schema = json.loads(stored["schemaString"])
        known = {column["name"] for column in schema["fields"]}
        wanted = json.loads(of_metadata["metaData"]["schemaString"])["fields"]
        lacking = [column for column in wanted if column["name"] not in known]
        protocol = snapshot.protocol
        own = configuration_of(self.properties)
        chosen = set(features_of(self.properties))
        has_features = chosen <= {*(protocol.get("writerFeatures") or ())}
        if not lacking and has_features and own.items() <= configuration.items():
            return []
        metadata = {
            **stored,
            "schemaString": json.dumps({**schema, "fields": [*schema["fields"], *lacking]}),
            "configuration": {**configuration, **own},
        }
        for feature in of_protocol["protocol"]["writerFeatures"]:
            protocol = with_feature(protocol, feature, of_readers=feature in OF_READERS)
        return [{"protocol": protocol}, {"metaData": metadata}]

    def completing(self, snapshot: Snapshot, actions: Sequence[Action]) -> Sequence[Action]:
        """Return actions, and the one that gives the table properties that it lacks: those of a table that was made without them.

        Args:
            snapshot: The version that the actions follow.
            actions: Actions of a commit.
        """
        configuration = snapshot.configuration
        is_defined = any("metaData" in action for action in actions)
        has_properties = self.properties.items() <= configuration.items()
        if is_defined or has_properties:
            return actions
        metadata = {
            **snapshot.metadata,
            "configuration": {**configuration, **self.properties},
        }
        return [*actions, {"metaData": metadata}]

    def _has_local_times(self) -> bool:
        """Return whether a column has times without a zone."""
        return any(_has_local_time(column.type) for column in self.columns)


def _has_local_time(type_: pa.DataType) -> bool:
    """Return whether a type has times without a zone, at any depth."""
    if pa.types.is_timestamp(type_):
        return type_.tz is None
    return any(_has_local_time(inner.type) for inner in inner_fields(type_))


def _with_field_metadata(new: str, stored: str) -> str:
    """Return a schema whose columns keep their stored metadata, such as comments."""
    stored_fields = json.loads(stored)["fields"]
    known = {column["name"]: column["metadata"] for column in stored_fields}
    schema = json.loads(new)
    for column in schema["fields"]:
        name = column["name"]
        column["metadata"] = known.get(name, {})
    return json.dumps(schema)
