"""A table under other columns keeps what is said of those that stay, and gets the features that new ones need."""

import json

import pyarrow as pa

from ebbtide.delta.altering import under_columns
from ebbtide.delta.commit import LocalPuts
from ebbtide.delta.snapshot import Snapshot
from ebbtide.delta.table import commit_after, create

COLUMNS = pa.schema([("a", pa.int64()), ("b", pa.string())])
PUTS = LocalPuts()


def made(tmp_path):
    create(PUTS, str(tmp_path), COLUMNS, {"delta.logRetentionDuration": "interval 3 days"}, name="t", info={})
    found = Snapshot.read(str(tmp_path))
    schema = json.loads(found.metadata["schemaString"])
    schema["fields"][0]["metadata"] = {"comment": "of a"}
    metadata = {**found.metadata, "schemaString": json.dumps(schema)}
    return commit_after(PUTS, found, [{"metaData": metadata}], {"operation": "COMMENT"})


def test_comments_properties_and_id_stay(tmp_path):
    found = made(tmp_path)
    [action] = under_columns(found, pa.schema([*COLUMNS, ("c", pa.int32())]))
    metadata = action["metaData"]
    fields = {field["name"]: field["metadata"] for field in json.loads(metadata["schemaString"])["fields"]}
    assert fields == {"a": {"comment": "of a"}, "b": {}, "c": {}}
    assert (metadata["id"], metadata["configuration"]) == (found.id, found.configuration)


def test_column_of_times_without_a_zone_brings_its_feature_once(tmp_path):
    found = made(tmp_path)
    wider = pa.schema([*COLUMNS, ("at", pa.list_(pa.timestamp("us")))])
    actions = under_columns(found, wider)
    [protocol] = [action["protocol"] for action in actions if "protocol" in action]
    assert "timestampNtz" in protocol["readerFeatures"]
    assert "timestampNtz" in protocol["writerFeatures"]
    after = commit_after(PUTS, found, actions, {"operation": "ALTER"})
    assert [list(action) for action in under_columns(after, wider)] == [["metaData"]]
