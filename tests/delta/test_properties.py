"""Properties that a user gives a table: written as they are, or refused by name; with Spark: tests/spark/test_table_properties.py."""

import pyarrow as pa
import pytest

from ebbtide.delta import Definition, judged_properties
from ebbtide.spec import DeltaSink

COLUMNS = pa.schema([("id", pa.int64())])
REFUSED = {
    "delta.constraints.positive": ("id > 0", "no constraint: Ebbtide does not check it. Rules of checks.expectations"),
    "delta.columnMapping.mode": ("name", "none. 'ebbtide migrate' renames and drops columns"),
    "delta.enableRowTracking": ("true", "false. Ebbtide does not write it: leave it out"),
    "delta.enableTypeWidening": ("true", "false"),
    "delta.enableInCommitTimestamps": ("true", "false"),
    "delta.enableIcebergCompatV2": ("true", "false"),
    "delta.compatibility.symlinkFormatManifest.enabled": ("true", "false"),
    "delta.minReaderVersion": ("3", "none: name the feature, delta.feature.NAME: supported"),
    "delta.minWriterVersion": ("7", "none: name the feature"),
    "delta.setTransactionRetentionDuration": ("interval 1 day", "none: other clients would drop the marks of steps"),
    "delta.feature.rowTracking": ("supported", "a property of Delta that Ebbtide knows"),
    "delta.feature.clustering": ("supported", "a property of Delta that Ebbtide knows"),
    "delta.universalFormat.enabledFormats": ("iceberg", "a property of Delta that Ebbtide knows"),
    "delta.appendOnly": ("true", "false, since a sink is updated"),
    "delta.enableChangeDataFeed": ("false", "true, since views and checks read it"),
    "option.team": ("shop", "another name, which Spark too takes for a property"),
    "location": ("elsewhere", "another name, which Spark too takes for a property"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("change", [str, str.upper], ids=["as it is", "in capitals"])
def test_property_that_is_not_written_is_refused_by_name_with_what_is_allowed(name, change):
    text, allowed = REFUSED[name]
    written = change(name)
    with pytest.raises(ValueError, match=r"sink\.table_properties") as caught:
        DeltaSink(table_properties={written: text})
    assert f": {text}; allowed: {allowed}" in str(caught.value)
    assert f"got {name}:".lower() in str(caught.value).lower()


@pytest.mark.parametrize(("write", "given"), [("vectors", "false"), ("rewrite", "true")])
def test_deletion_vectors_follow_from_how_a_sink_is_written(write, given):
    with pytest.raises(ValueError, match=f"got delta.enableDeletionVectors: {given}; allowed: .* with write: {write}"):
        DeltaSink(write=write, table_properties={"delta.enableDeletionVectors": given})


def test_name_is_spelled_as_delta_spells_it_and_stands_once():
    sink = DeltaSink(table_properties={"DELTA.logretentionDURATION": "interval 3 days", "Team": "a"})
    assert sink.table_properties == {"delta.logRetentionDuration": "interval 3 days", "Team": "a"}
    with pytest.raises(ValueError, match="each property once"):
        DeltaSink(table_properties={"delta.checkpointInterval": "7", "delta.CHECKPOINTINTERVAL": "8"})


def test_property_of_a_feature_stands_in_the_protocol_alone():
    properties = {"delta.feature.domainMetadata": "supported", "delta.checkpointPolicy": "v2", "team": "shop"}
    assert judged_properties(properties) == (properties, {})
    of_protocol, of_metadata = Definition(COLUMNS, properties).actions(table_id="t", name="t")
    assert of_protocol["protocol"]["readerFeatures"] == ["deletionVectors", "v2Checkpoint"]
    assert "domainMetadata" in of_protocol["protocol"]["writerFeatures"]
    assert of_metadata["metaData"]["configuration"] == {"delta.checkpointPolicy": "v2", "team": "shop"}


def test_table_without_a_feature_of_readers_is_for_readers_of_any_age():
    of_protocol, _ = Definition(COLUMNS, {"delta.enableDeletionVectors": "false"}).actions(table_id="t", name="t")
    features = ["appendOnly", "changeDataFeed", "invariants"]
    assert of_protocol["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
