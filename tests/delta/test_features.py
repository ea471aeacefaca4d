"""Protocols: features of older writers are listed once there is a list, and versions of the future are refused."""

import pytest

from ebbtide.delta.features import refuse_unreadable, refuse_unwritable, with_feature
from ebbtide.errors import DeltaFeatureError

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
        refuse_unreadable("t", {"minReaderVersion": 4, "minWriterVersion": 7}, {})
    with pytest.raises(DeltaFeatureError, match="writer version 8"):
        refuse_unwritable("t", {"minReaderVersion": 3, "minWriterVersion": 8}, METADATA)


def test_properties_that_are_off_refuse_nothing():
    off = {"delta.appendOnly": "FALSE", "delta.columnMapping.mode": "none"}
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    refuse_unreadable("t", protocol, off)
    refuse_unwritable("t", protocol, {**METADATA, "configuration": off})
