"""A table with new columns keeps the metadata of those that stay, and gets the features that new ones need."""

import json

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from ebbtide.delta import DataFile, Definition, Snapshot, Writer
from ebbtide.delta import _vectors as vectors
from ebbtide.formats import Coding
from ebbtide.model import SchemaChange
from ebbtide.tables._altering import FileUnderNewColumns

COLUMNS = pa.schema([("a", pa.int64()), ("b", pa.string())])
PUTS = Writer()


def made(tmp_path):
    PUTS.create(
        str(tmp_path), Definition(COLUMNS, {"delta.logRetentionDuration": "interval 3 days"}), name="t", info={}
    )
    found = Snapshot.read(str(tmp_path))
    schema = json.loads(found.metadata["schemaString"])
    schema["fields"][0]["metadata"] = {"comment": "of a"}
    metadata = {**found.metadata, "schemaString": json.dumps(schema)}
    return PUTS.commit(found, [{"metaData": metadata}], {"operation": "COMMENT"})


def test_comments_properties_and_id_stay(tmp_path):
    found = made(tmp_path)
    [action] = Definition(pa.schema([*COLUMNS, ("c", pa.int32())])).altering(found)
    metadata = action["metaData"]
    fields = {field["name"]: field["metadata"] for field in json.loads(metadata["schemaString"])["fields"]}
    assert fields == {"a": {"comment": "of a"}, "b": {}, "c": {}}
    assert (metadata["id"], metadata["configuration"]) == (found.id, found.configuration)


def test_column_of_times_without_a_zone_brings_its_feature_once(tmp_path):
    found = made(tmp_path)
    wider = pa.schema([*COLUMNS, ("at", pa.list_(pa.timestamp("us")))])
    actions = Definition(wider).altering(found)
    [protocol] = [action["protocol"] for action in actions if "protocol" in action]
    assert "timestampNtz" in protocol["readerFeatures"]
    assert "timestampNtz" in protocol["writerFeatures"]
    after = PUTS.commit(found, actions, {"operation": "ALTER"})
    assert [list(action) for action in Definition(wider).altering(after)] == [["metaData"]]


@pytest.mark.parametrize(
    ("value", "type_"), [(0, pa.int32()), (False, pa.bool_()), ("", pa.string()), (0.0, pa.float64())]
)
def test_column_is_filled_with_a_value_that_counts_as_false(value, type_):
    columns = pa.schema([*COLUMNS, ("c", type_), ("d", type_)])
    fills = SchemaChange(added={"c": value, "d": None}).fills(columns, Coding().convert)
    assert {name: fill.as_py() for name, fill in fills.items()} == {"c": value}


def test_file_under_new_columns_has_the_rows_that_count_and_changes_none(tmp_path):
    rows = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}, COLUMNS)
    table = str(tmp_path)
    file = DataFile(DataFile.write(table, "f.parquet", rows, bounded=["a"])["add"])
    [vector] = vectors.write(table, [BitMap64([1])])
    some = DataFile({**file.add, "deletionVector": vector, "tags": {**file.tags, "made": "here"}})
    columns = pa.schema([("a", pa.int64()), ("c", pa.string()), ("n", pa.int32())])
    write = FileUnderNewColumns(table, COLUMNS, columns, ("a",), SchemaChange(renamed={"c": "b"}, added={"n": 0}), ())
    [action] = write(some)
    assert action["add"]["dataChange"] is False
    written = DataFile(action["add"])
    assert written.tags["made"] == "here"
    assert written.read(table, columns).to_pylist() == [{"a": 1, "c": "x", "n": 0}, {"a": 3, "c": "z", "n": 0}]
    [vector] = vectors.write(table, [BitMap64([0, 1, 2])])
    assert write(DataFile({**file.add, "deletionVector": vector})) == []
