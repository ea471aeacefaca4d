"""Table features: Ebbtide reads and writes only tables of a known protocol whose features are on a list.

An unknown feature may change the meaning of rows, or the duties of writers: such a table is refused, and the feature named. Source: Delta transaction log protocol, "Table Features", "Requirements for Readers", "... for Writers".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ebbtide.errors import DeltaFeatureError

READ = frozenset(
    {
        "deletionVectors",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",  # refused if a column has the type: delta-rs lists it at any change of a property
    }
)
"""Features of tables that Ebbtide reads."""

WRITTEN = READ | {
    "appendOnly",  # refused if it is switched on
    "changeDataFeed",
    "checkpointProtection",  # nothing of the log is deleted piece by piece: `protects_checkpoints`
    "checkConstraints",  # refused if a table has some; the same for the next three
    "generatedColumns",
    "invariants",
    "columnMapping",
    "domainMetadata",
    "identityColumns",
}
"""Features of tables that Ebbtide writes."""

OF_READERS = READ | {"columnMapping"}
"""Features that readers must know too."""

_BY_LIST = (3, 7)
"""The first versions, of readers and of writers, whose protocol lists features."""

_FIELD_RULES = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
}


_OF_NEW_ROWS = {"checkConstraints", "invariants", "generatedColumns", "identityColumns"}
"""Features that a commit respects which adds no row."""


_PARTITION_TYPES = (
    "boolean",
    "byte",
    "short",
    "integer",
    "long",
    "string",
    "date",
    "timestamp",
    "timestamp_ntz",
    "decimal",
)
"""Types, as the log has them, of partition columns that are written: all writers put their values as the same text."""


def refuse_unreadable(
    table: str,
    protocol: Mapping[str, Any],
    metadata: Mapping[str, Any],
) -> None:
    """Refuse a table that Ebbtide cannot read.

    Args:
        table: Its location.
        protocol: The log's `protocol`.
        metadata: The log's `metaData`.

    Raises:
        DeltaFeatureError: it uses an unknown feature.
    """
    version = int(protocol["minReaderVersion"])
    by_list = _BY_LIST[0]
    if version > by_list:
        raise _error(
            table,
            "read",
            got=f"reader version {version}",
            allowed=f"up to {by_list}",
        )
    features = _listed(protocol, "readerFeatures")
    unknown = features - READ - {"columnMapping"}
    if _maps_columns(metadata.get("configuration") or {}):
        unknown.add("columnMapping")
    if "variantType" in features and _has_variants(json.loads(metadata["schemaString"])):
        unknown.add("variantType")
    if unknown:
        raise _error(
            table,
            "read",
            got=_in_order(unknown),
            allowed=_in_order(READ - unknown),
        )


def refuse_unwritable(
    table: str,
    protocol: Mapping[str, Any],
    metadata: Mapping[str, Any],
    *,
    deletes: bool = True,
    adds_rows: bool = True,
) -> None:
    """Refuse a table that Ebbtide cannot write; `Writer.commit` calls this before each commit.

    Args:
        table: Its location.
        protocol: The log's `protocol`.
        metadata: The log's `metaData`.
        deletes: The commit deletes rows, which an append-only table forbids.
        adds_rows: The commit may add rows; else files that it adds hold rows of files that it removes.

    Raises:
        DeltaFeatureError: it uses a feature whose duties of writers Ebbtide does not fulfil.
    """
    version = int(protocol["minWriterVersion"])
    by_list = _BY_LIST[1]
    if version > by_list:
        raise _error(
            table,
            "written",
            got=f"writer version {version}",
            allowed=f"up to {by_list}",
        )
    features = _listed(protocol, "writerFeatures")
    unknown = features - WRITTEN
    used = unknown.union(_used(metadata))
    if not deletes:
        used.discard("appendOnly")
    if adds_rows:
        used.update(_unfit_partitions(metadata))
    else:
        used -= _OF_NEW_ROWS
    if used:
        raise _error(
            table,
            "written",
            got=_in_order(used),
            allowed="none of these",
        )


def protects_checkpoints(protocol: Mapping[str, Any]) -> bool:
    """Return whether a client has dropped a feature: old checkpoints hide the versions that had it from clients that do not know it.

    Source: Delta transaction log protocol, "Checkpoint Protection".
    """
    return "checkpointProtection" in _listed(protocol, "writerFeatures")


def is_on(configuration: Mapping[str, str], name: str) -> bool:
    """Return whether a property of a table is true; one that is not there is false."""
    return configuration.get(name, "false").lower() == "true"


def _listed(protocol: Mapping[str, Any], field: str) -> set[str]:
    """Return the features that a protocol lists, for readers or for writers; empty without a list."""
    return set(protocol.get(field) or ())


def _maps_columns(configuration: Mapping[str, str]) -> bool:
    mode = configuration.get("delta.columnMapping.mode", "none")
    return mode != "none"


def _in_order(features: Iterable[str]) -> str:
    return ", ".join(sorted(features))


_LEGACY_FEATURES = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
"""Features that a writer version without a list implies, in addition to those of lower versions."""


def with_feature(protocol: Mapping[str, Any], feature: str, *, of_readers: bool = True) -> dict[str, Any]:
    """Return a protocol with one more feature, and with all features in its list.

    Args:
        protocol: The log's `protocol`.
        feature: Its name.
        of_readers: Readers must know it too.
    """
    reader_version = int(protocol["minReaderVersion"])
    writer_version = int(protocol["minWriterVersion"])
    readers = _listed(protocol, "readerFeatures")
    writers = _listed(protocol, "writerFeatures")
    # An older protocol implies features by its version: once one is listed, all must be.
    if writer_version < _BY_LIST[1]:
        for version, features in _LEGACY_FEATURES.items():
            if version <= writer_version:
                writers.update(features)
    if reader_version == 2:
        readers.add("columnMapping")
    writers.add(feature)
    if of_readers:
        readers.add(feature)
    return protocol_of(readers, writers)


def protocol_of(readers: Iterable[str], writers: Iterable[str]) -> dict[str, Any]:
    """Return the protocol of a table, which lists its features.

    Args:
        readers: Those that readers must know.
        writers: Those that writers must know.
    """
    # As Spark writes it: without a feature of readers, those of any age may read.
    protocol: dict[str, Any] = {
        "minReaderVersion": 1,
        "minWriterVersion": _BY_LIST[1],
        "writerFeatures": sorted({*readers, *writers}),
    }
    if of_readers := sorted(readers):
        protocol |= {"minReaderVersion": _BY_LIST[0], "readerFeatures": of_readers}
    return protocol


def with_vectors(protocol: Mapping[str, Any], metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the actions that switch deletion vectors on; none if they are on.

    Args:
        protocol: The log's `protocol`.
        metadata: The log's `metaData`.
    """
    property_ = "delta.enableDeletionVectors"
    feature = "deletionVectors"
    configuration = metadata.get("configuration") or {}
    if is_on(configuration, property_) and feature in _listed(protocol, "writerFeatures"):
        return []
    new_configuration = {**configuration, property_: "true"}
    new_metadata = {**metadata, "configuration": new_configuration}
    return [
        {"protocol": with_feature(protocol, feature)},
        {"metaData": new_metadata},
    ]


def _used(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield the features that a table uses, of those that are allowed only while unused."""
    configuration = metadata.get("configuration") or {}
    if is_on(configuration, "delta.appendOnly"):
        yield "appendOnly"
    if _maps_columns(configuration):
        yield "columnMapping"
    has_constraints = any(name.startswith("delta.constraints.") for name in configuration)
    if has_constraints:
        yield "checkConstraints"
    # Invariants, generated and identity columns are not properties: they are in the metadata of each field.
    schema = json.loads(metadata["schemaString"])
    for field_metadata in _field_metadata(schema):
        for rule, feature in _FIELD_RULES.items():
            if rule in field_metadata:
                yield feature
    if _has_variants(schema):
        yield "variantType"


def _unfit_partitions(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield the partition columns of types whose values are not written."""
    partitioned = {name.lower() for name in metadata.get("partitionColumns") or ()}
    for field in json.loads(metadata["schemaString"])["fields"] if partitioned else ():
        type_ = str(field["type"])
        if field["name"].lower() in partitioned and not type_.startswith(_PARTITION_TYPES):
            yield f"partition column {field['name']} of type {type_}"


def _field_metadata(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the metadata of each field in a type, at any depth."""
    for type_ in _types(schema):
        if isinstance(type_, dict):
            yield from (field["metadata"] for field in type_.get("fields", ()))


def _has_variants(schema: Any) -> bool:
    return "variant" in _types(schema)


def _types(type_: Any) -> Iterator[Any]:
    """Yield a type, and each type in it, at any depth."""
    yield type_
    if not isinstance(type_, dict):
        return
    for field in type_.get("fields", ()):
        yield from _types(field["type"])
    for inner in ("elementType", "keyType", "valueType"):
        yield from _types(type_.get(inner))


def _error(table: str, done: str, got: str, allowed: str) -> DeltaFeatureError:
    return DeltaFeatureError.of(
        f"The Delta table '{table}' cannot be {done} by Ebbtide itself.",
        got=got,
        allowed=allowed,
        next_step="Remove it from the table (ALTER TABLE ... DROP FEATURE, DROP CONSTRAINT or UNSET TBLPROPERTIES), then run again. A column's rule goes with a new copy of the table (CREATE OR REPLACE TABLE).",
    )
