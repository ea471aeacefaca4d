"""Protocols: features of older writers are listed once there is a list; what is not known, or used, is refused by name."""

import json
from contextlib import nullcontext

import pytest
from deltalake import DeltaTable
from local.local_pipeline import up

from ebbtide.delta._features import refuse_unreadable, refuse_unwritable, with_feature
from ebbtide.errors import DeltaFeatureError, TableMismatchError

METADATA = {"schemaString": '{"type": "struct", "fields": []}'}


@pytest.mark.parametrize(
    ("reader", "writer", "readers", "writers"),
    [
        (1, 2, {"new"}, {"new", "appendOnly", "invariants"}),
        (1, 4, {"new"}, {"new", "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"}),
        (2, 5, {"new", "columnMapping"}, {"new", "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping"}),
        (1, 7, {"new"}, {"new"}),
    ],
)  # fmt: skip
def test_protocol_with_one_more_feature_keeps_those_that_it_implied(reader, writer, readers, writers):
    protocol = with_feature({"minReaderVersion": reader, "minWriterVersion": writer}, "new")
    assert (protocol["minReaderVersion"], protocol["minWriterVersion"]) == (3, 7)
    assert (set(protocol["readerFeatures"]), set(protocol["writerFeatures"])) == (readers, writers)


def test_feature_of_writers_alone_is_not_listed_for_readers():
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["a"], "writerFeatures": ["a"]}
    made = with_feature(protocol, "new", of_readers=False)
    assert (made["readerFeatures"], made["writerFeatures"]) == (["a"], ["a", "new"])


def test_versions_of_the_future_are_refused():
    with pytest.raises(DeltaFeatureError, match="reader version 4"):
        refuse_unreadable("t", {"minReaderVersion": 4, "minWriterVersion": 7}, METADATA)
    with pytest.raises(DeltaFeatureError, match="writer version 8"):
        refuse_unwritable("t", {"minReaderVersion": 3, "minWriterVersion": 8}, METADATA)


def test_properties_that_are_off_refuse_nothing():
    off = {"delta.appendOnly": "FALSE", "delta.columnMapping.mode": "none"}
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    metadata = {**METADATA, "configuration": off}
    refuse_unreadable("t", protocol, metadata)
    refuse_unwritable("t", protocol, metadata)


def test_columns_that_are_mapped_are_refused_in_a_protocol_without_a_list():
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    mapped = {**METADATA, "configuration": {"delta.columnMapping.mode": "id"}}
    with pytest.raises(DeltaFeatureError, match="Got: columnMapping"):
        refuse_unreadable("t", protocol, mapped)
    with pytest.raises(DeltaFeatureError, match="Got: columnMapping"):
        refuse_unwritable("t", protocol, mapped)


@pytest.mark.parametrize(
    ("rule", "feature"),
    [
        ("delta.generationExpression", "generatedColumns"),
        ("delta.identity.start", "identityColumns"),
        ("delta.invariants", "invariants"),
    ],
)
def test_rule_of_a_nested_field_is_refused(rule, feature):
    inner = {"type": "struct", "fields": [{"name": "n", "type": "long", "metadata": {rule: "1"}}]}
    places = [
        inner,
        {"type": "struct", "fields": [{"name": "s", "type": inner, "metadata": {}}]},
        {"type": "array", "elementType": inner},
        {"type": "map", "keyType": inner, "valueType": "long"},
        {"type": "map", "keyType": "long", "valueType": {"type": "array", "elementType": inner}},
    ]
    for place in places:
        schema = {"type": "struct", "fields": [{"name": "a", "type": place, "metadata": {}}]}
        with pytest.raises(DeltaFeatureError, match=f"Got: {feature}"):
            refuse_unwritable("t", {"minReaderVersion": 1, "minWriterVersion": 2}, {"schemaString": json.dumps(schema)})


@pytest.mark.parametrize("place", ["variant", {"type": "array", "elementType": "variant"}])
def test_variants_are_refused_in_a_column_and_not_as_a_listed_feature(place):
    protocol = with_feature({"minReaderVersion": 1, "minWriterVersion": 2}, "variantType")
    field = {"name": "variant", "type": "string", "metadata": {}}
    for type_, refused in (("string", False), (place, True)):
        schema = {"type": "struct", "fields": [{**field, "type": type_}]}
        metadata = {"schemaString": json.dumps(schema)}
        for refuse in (refuse_unreadable, refuse_unwritable):
            with pytest.raises(DeltaFeatureError, match="Got: variantType") if refused else nullcontext():
                refuse("t", protocol, metadata)


def test_sink_is_read_and_written_after_delta_rs_has_changed_a_property(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    sink = DeltaTable(pipeline.plan.at("sink"))
    sink.alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    pipeline.read(up(1, 2))
    assert pipeline.rows() == {1: 2}


def test_sink_whose_feed_another_client_has_switched_off_is_refused_until_it_is_on(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    sink = DeltaTable(pipeline.plan.at("sink"))
    sink.alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    with pytest.raises(TableMismatchError, match=r"switched off by another client.*SET TBLPROPERTIES"):
        pipeline.read(up(1, 2))
    sink.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    pipeline.run()
    assert pipeline.rows() == {1: 2}
