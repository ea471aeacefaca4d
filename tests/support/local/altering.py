"""Tables as another client alters them: with features, and the properties that switch them on, in a commit of its own."""

from __future__ import annotations

from collections.abc import Mapping

from ebbtide.delta import Action, Snapshot, Writer
from ebbtide.delta._features import with_feature

REFUSED = {
    "rowTracking": {"delta.enableRowTracking": "true"},
    "inCommitTimestamp": {"delta.enableInCommitTimestamps": "true"},
    "checkConstraints": {"delta.constraints.c": "id < 3"},
    "icebergCompatV1": {"delta.enableIcebergCompatV1": "true"},
    "columnMapping": {"delta.columnMapping.mode": "name"},
    "fromLater": {},
}
"""Features, with the properties that switch them on, that ask more of writers than is done here."""


def altered(path: str, feature: str, properties: Mapping[str, str]) -> None:
    """Commit that a table has one more feature, as ALTER TABLE does.

    Args:
        path: The table's location.
        feature: Its name; empty: none.
        properties: Properties that the table has then.
    """
    found = Snapshot.read(path, any_features=True)
    assert found is not None
    metadata = {**found.metadata, "configuration": {**found.configuration, **properties}}
    actions: list[Action] = [{"metaData": metadata}] if properties else []
    if feature:
        actions.append({"protocol": with_feature(found.protocol, feature, of_readers=False)})
    Writer().commit_version(path, found.version + 1, actions, {"operation": "ALTER"})


def put_back(path: str, version: int) -> None:
    """Commit that a table is defined as in an earlier version, as DROP FEATURE does.

    Args:
        path: The table's location.
        version: The earlier one.
    """
    found = Snapshot.read(path, any_features=True)
    before = Snapshot.read(path, version)
    assert found is not None
    assert before is not None
    actions = [{"metaData": before.metadata}, {"protocol": before.protocol}]
    Writer().commit_version(path, found.version + 1, actions, {"operation": "DROP FEATURE"})
