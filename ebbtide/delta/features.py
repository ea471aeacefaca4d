"""Which tables Ebbtide reads and writes by itself: those of a known protocol that use no feature outside a list.

A feature that the list lacks may change what rows mean, or what every writer must do: such a table is refused with the
feature's name. Source: Delta transaction log protocol, "Table Features", "Requirements for Readers", "... for Writers".
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
    }
)
"""Features of tables whose rows are read here."""

WRITTEN = READ | {
    "appendOnly",  # refused where it is switched on
    "changeDataFeed",
    "checkConstraints",  # refused where there are some; the same for the next three
    "generatedColumns",
    "invariants",
    "columnMapping",
    "domainMetadata",
    "identityColumns",
}
"""Features of tables that are written here."""

_BY_LIST = (3, 7)
"""The versions, of readers and writers, from which on features are listed."""

_FIELD_RULES = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
}


def refuse_unreadable(
    table: str,
    protocol: Mapping[str, Any],
    configuration: Mapping[str, str],
) -> None:
    """Refuse a table whose rows cannot be read here.

    Args:
        table: Its location.
        protocol: The log's `protocol`.
        configuration: Its properties.

    Raises:
        DeltaFeatureError: it uses a feature that is not known.
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
    if _maps_columns(configuration):
        unknown.add("columnMapping")
    if unknown:
        raise _error(
            table,
            "read",
            got=_in_order(unknown),
            allowed=_in_order(READ),
        )


def refuse_unwritable(
    table: str,
    protocol: Mapping[str, Any],
    metadata: Mapping[str, Any],
    *,
    deletes: bool = True,
) -> None:
    """Refuse a table that cannot be written here; `commit_after` asks this before every commit.

    Args:
        table: Its location.
        protocol: The log's `protocol`.
        metadata: The log's `metaData`.
        deletes: Rows are taken out, which a table that is only appended to forbids.

    Raises:
        DeltaFeatureError: it uses a feature that asks more of writers than is done here.
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
    if used:
        raise _error(
            table,
            "written",
            got=_in_order(used),
            allowed="none of these",
        )


def _listed(protocol: Mapping[str, Any], field: str) -> set[str]:
    """Return the features that a protocol lists, of readers or of writers; none where there is no list."""
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
"""Features that a writer version from before there was a list implies, beside those of the versions below it."""


def with_feature(protocol: Mapping[str, Any], feature: str, *, of_readers: bool = True) -> dict[str, Any]:
    """Return a protocol with one more feature; by list, as features must be from then on.

    Args:
        protocol: The log's `protocol`.
        feature: Its name.
        of_readers: Readers have to know it too.
    """
    reader_version = int(protocol["minReaderVersion"])
    writer_version = int(protocol["minWriterVersion"])
    readers = _listed(protocol, "readerFeatures")
    writers = _listed(protocol, "writerFeatures")
    # A table of an older version has features without a list: with the first one named, all must be.
    if writer_version < _BY_LIST[1]:
        for version, features in _LEGACY_FEATURES.items():
            if version <= writer_version:
                writers.update(features)
    if reader_version == 2:
        readers.add("columnMapping")
    return {
        "minReaderVersion": _BY_LIST[0],
        "minWriterVersion": _BY_LIST[1],
        "readerFeatures": sorted({*readers, feature} if of_readers else readers),
        "writerFeatures": sorted({*writers, feature}),
    }


def with_vectors(protocol: Mapping[str, Any], metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the actions that let a table have deletion vectors; none if it may have them.

    Args:
        protocol: The log's `protocol`.
        metadata: The log's `metaData`.
    """
    property_ = "delta.enableDeletionVectors"
    feature = "deletionVectors"
    configuration = metadata.get("configuration") or {}
    is_on = configuration.get(property_, "false").lower() == "true"
    if is_on and feature in _listed(protocol, "writerFeatures"):
        return []
    return [
        {"protocol": with_feature(protocol, feature)},
        {"metaData": {**metadata, "configuration": {**configuration, property_: "true"}}},
    ]


def _used(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a table uses of features that are fine as long as they are not used."""
    if metadata.get("partitionColumns"):
        yield "partition columns"
    configuration = metadata.get("configuration") or {}
    append_only = configuration.get("delta.appendOnly", "false")
    if append_only.lower() == "true":
        yield "appendOnly"
    if _maps_columns(configuration):
        yield "columnMapping"
    has_constraints = any(name.startswith("delta.constraints.") for name in configuration)
    if has_constraints:
        yield "checkConstraints"
    # Invariants, generated and identity columns are no properties: they stand in the metadata of each field.
    schema = json.loads(metadata["schemaString"])
    for said in _field_metadata(schema):
        for rule, feature in _FIELD_RULES.items():
            if rule in said:
                yield feature


def _field_metadata(type_: Any) -> Iterator[Mapping[str, Any]]:
    """Yield what a type says of each field in it, however deep."""
    if not isinstance(type_, dict):
        return
    for field in type_.get("fields", ()):
        yield field["metadata"]
        yield from _field_metadata(field["type"])
    for inner in ("elementType", "keyType", "valueType"):
        yield from _field_metadata(type_.get(inner))


def _error(table: str, done: str, got: str, allowed: str) -> DeltaFeatureError:
    return DeltaFeatureError.of(
        f"The Delta table '{table}' cannot be {done} by Ebbtide itself.",
        got=got,
        allowed=allowed,
        next_step="Take it off the table (ALTER TABLE ... DROP FEATURE, DROP CONSTRAINT or UNSET TBLPROPERTIES), then run again. If it is the sink, sink.write: merge leaves it to Spark instead.",
    )
