"""A table has the pipeline's columns, or is refused with those that differ; nulls go where all agree."""

import json

import pyarrow as pa
import pytest

from ebbtide.delta import Definition, Snapshot, Writer
from ebbtide.delta._fitting import has_columns, refuse_nulls, refuse_other_columns
from ebbtide.errors import TableMismatchError

COLUMNS = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.int32())]))])


@pytest.fixture
def metadata(tmp_path):
    Writer().create(str(tmp_path), Definition(COLUMNS), name="t", info={})
    return Snapshot.read(str(tmp_path)).metadata


def altered(metadata, change):
    schema = json.loads(metadata["schemaString"])
    change(schema["fields"])
    return {**metadata, "schemaString": json.dumps(schema)}


def test_order_comments_and_nullability_are_free(metadata):
    def change(fields):
        fields.reverse()
        fields[0]["metadata"] = {"comment": "c"}
        fields[0]["type"]["fields"][0]["nullable"] = False
        fields[1]["nullable"] = False

    refuse_other_columns("t", altered(metadata, change), COLUMNS)


def test_table_has_the_columns_where_each_is_there_in_its_type_and_takes_the_same_nulls(metadata):
    def required(fields):
        fields[0]["nullable"] = False

    def other_type(fields):
        fields[0]["type"] = "integer"

    assert has_columns(altered(metadata, list.reverse), COLUMNS)
    assert not has_columns(altered(metadata, required), COLUMNS)
    assert not has_columns(altered(metadata, other_type), COLUMNS)
    assert not has_columns(altered(metadata, list.pop), COLUMNS)


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda fields: fields[0].update(type="integer"), "a has type integer"),
        (lambda fields: fields[0].update(name="A"), "A is not the pipeline's; a is missing"),
        (lambda fields: fields.pop(), "s is missing"),
        (lambda fields: fields[1]["type"]["fields"][0].update(name="X"), "s has type"),
    ],
    ids=["type", "case", "dropped", "nested"],
)
def test_other_columns_are_named(metadata, change, got):
    with pytest.raises(TableMismatchError, match=got):
        refuse_other_columns("t", altered(metadata, change), COLUMNS)


@pytest.mark.parametrize(
    ("stats", "got"),
    [({"nullCount": {"a": 0}}, None), ({"nullCount": {"a": 2}}, "2 nulls"), ({"nullCount": {}}, "not counted"), ({}, "not counted")],
)  # fmt: skip
def test_nulls_that_may_be_there_are_refused_where_the_table_takes_none(metadata, stats, got):
    required = altered(metadata, lambda fields: fields[0].update(nullable=False))
    actions = [{"add": {"path": "x", "stats": json.dumps(stats)}}]
    refuse_nulls("t", metadata, COLUMNS, actions)
    if got is None:
        refuse_nulls("t", required, COLUMNS, actions)
        return
    with pytest.raises(TableMismatchError, match=got):
        refuse_nulls("t", required, COLUMNS, actions)
