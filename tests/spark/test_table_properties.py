"""Sinks with properties of the user's are the tables that Spark makes, replaces and alters with the same properties."""

import json

import pyarrow as pa
import pytest
from delta import DeltaTable
from local.made_facts import made_facts as facts
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from ebbtide.delta import Definition, Snapshot, Writer, judged_properties
from ebbtide.executors import InProcess
from ebbtide.model import Clear
from ebbtide.sessions import spark_schema
from ebbtide.spec import DeltaSink
from ebbtide.tables import SinkTable

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("day", pa.date32())])
WRITTEN = {
    "delta.logRetentionDuration": ("interval 40 days", "40 days"),
    "delta.deletedFileRetentionDuration": ("interval 2 weeks",),
    "delta.checkpointRetentionDuration": ("interval 1 day 12 hours",),
    "delta.sampleRetentionDuration": ("interval 1 days",),
    "delta.dropFeatureTruncateHistory.retentionDuration": ("interval 1 hour",),
    "delta.checkpointInterval": ("7",),
    "delta.checkpointPolicy": ("classic", "v2"),
    "delta.checkpoint.writeStatsAsJson": ("false",),
    "delta.checkpoint.writeStatsAsStruct": ("true",),
    "delta.dataSkippingNumIndexedCols": ("3", "-1"),
    "delta.dataSkippingStatsColumns": ("day", "id,`v`"),
    "delta.autoOptimize": ("true",),
    "delta.autoOptimize.autoCompact": ("true",),
    "delta.autoOptimize.optimizeWrite": ("false",),
    "delta.enableExpiredLogCleanup": ("false",),
    "delta.enableFullRetentionRollback": ("false",),
    "delta.isolationLevel": ("Serializable",),
    "delta.randomizeFilePrefixes": ("true",),
    "delta.randomPrefixLength": ("4",),
    "delta.appendOnly": ("false", "FALSE"),
    "delta.enableDeletionVectors": ("TRUE",),
    "delta.columnMapping.mode": ("none",),
    "delta.enableRowTracking": ("false",),
    "delta.enableTypeWidening": ("false",),
    "delta.enableInCommitTimestamps": ("false",),
    "delta.enableIcebergCompatV1": ("false",),
    "delta.compatibility.symlinkFormatManifest.enabled": ("false",),
    "delta.feature.vacuumProtocolCheck": ("supported",),
    "delta.feature.v2Checkpoint": ("supported",),
    "delta.feature.domainMetadata": ("supported",),
    "delta.feature.checkConstraints": ("supported",),
    "delta.feature.generatedColumns": ("enabled",),
    "delta.feature.identityColumns": ("supported",),
    "delta.feature.columnMapping": ("supported",),
    "delta.feature.timestampNtz": ("supported",),
    "delta.feature.deletionVectors": ("supported",),
    "delta.feature.appendOnly": ("supported",),
    "team": ("shop",),
    "checkpointInterval": ("x",),
}
"""Properties, with values that are written."""
NOT_OF_SPARK = {"delta.targetFileSize": "100mb", "delta.tuneFileSizesForRewrites": "true"}
"""Those of Delta elsewhere, which this Spark does not know."""
CASES = [{name: text} for name, texts in WRITTEN.items() for text in texts]
TOGETHER = {
    name: texts[-1] for name, texts in WRITTEN.items() if name not in ("delta.columnMapping.mode", "delta.autoOptimize")
}
REFUSED_BY_BOTH = {
    "delta.logRetentionDuration": ("soon", "interval 1 month", ""),
    "delta.checkpointInterval": ("0", "x"),
    "delta.dataSkippingNumIndexedCols": ("-2",),
    "delta.enableExpiredLogCleanup": ("perhaps",),
    "delta.isolationLevel": ("WriteSerializable",),
    "delta.noSuchProperty": ("1",),
    "delta.feature.noSuchFeature": ("supported",),
    "delta.feature.appendOnly": ("perhaps",),
}


def sink_of(path, properties, deletes_by):
    fits = DeltaSink(write=deletes_by, table_properties=properties)
    return SinkTable(str(path), COLUMNS, ("id",), ("id",), deletes_by=deletes_by, properties=fits.table_properties)


def builder_of(spark, make, path, sink):
    builder = make(spark).location(str(path)).addColumns(spark_schema(sink.stored_schema))
    for name, value in sink.stored_properties.items():
        builder = builder.property(name, value)
    return builder


def defined(path):
    """What a table's log says of it, in one form."""
    found = Snapshot.read(str(path), any_features=True)
    protocol = {name: sorted(value) if isinstance(value, list) else value for name, value in found.protocol.items()}
    schema = json.loads(found.metadata["schemaString"])
    return json.dumps(protocol, sort_keys=True), dict(found.configuration), schema["fields"], found.partitioned


def refuse_other(folder):
    """Refuse a table of ours that is another than Spark's."""
    for ours, theirs in zip(defined(folder / "ours"), defined(folder / "theirs"), strict=True):
        if isinstance(ours, dict):
            assert dict(ours.items() - theirs.items()) == {}, "ours alone"
            assert dict(theirs.items() - ours.items()) == {}, "theirs alone"
        assert ours == theirs


def hold_made(spark, folder, properties, deletes_by="vectors"):
    """Hold that a table is made, and replaced by an empty one, as Spark does it."""
    ours = sink_of(folder / "ours", properties, deletes_by)
    ours.create(InProcess())
    builder_of(spark, DeltaTable.createIfNotExists, folder / "theirs", ours).execute()
    refuse_other(folder)


@pytest.mark.parametrize("deletes_by", ["vectors", "rewrite"])
def test_sink_is_made_and_replaced_with_properties_as_spark_makes_it(spark, tmp_path, deletes_by):
    together = {name: text for name, text in TOGETHER.items() if name != "delta.enableDeletionVectors"}
    hold_made(spark, tmp_path / "plain", {}, deletes_by)
    hold_made(spark, tmp_path / "all", together, deletes_by)
    replaced = sink_of(tmp_path / "plain" / "ours", together, deletes_by)
    work = type("Work", (), {"executor": InProcess(), "facts": facts(1, "reset")})
    replaced.perform(Clear(), work)
    builder_of(spark, DeltaTable.replace, tmp_path / "plain" / "theirs", replaced).execute()
    refuse_other(tmp_path / "plain")


@pytest.mark.grid
@pytest.mark.parametrize("properties", CASES, ids=str)
def test_sink_is_made_with_each_property_as_spark_makes_it(spark, tmp_path, properties):
    hold_made(spark, tmp_path, properties)


def test_table_of_spark_is_extended_as_spark_alters_it(spark, tmp_path):
    properties = {name: text for name, text in TOGETHER.items() if "." in name}
    for name in ("ours", "theirs"):
        columns = "id BIGINT NOT NULL COMMENT 'the key', v STRING, day DATE"
        spark.sql(f"CREATE TABLE delta.`{tmp_path / name}` ({columns}) USING delta PARTITIONED BY (day)")
    sink = sink_of(tmp_path / "ours", properties, "vectors")
    sink.extend(InProcess())
    table = f"delta.`{tmp_path / 'theirs'}`"
    nothing = spark.createDataFrame([], spark_schema(sink.stored_schema, nullable=True))
    nothing.write.format("delta").mode("append").option("mergeSchema", "true").save(str(tmp_path / "theirs"))
    settings = ", ".join(f"'{name}' = '{value}'" for name, value in sink.stored_properties.items())
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({settings})")
    refuse_other(tmp_path)
    version = sink.version()
    sink.extend(InProcess())
    assert sink.version() == version, "once"


@pytest.mark.parametrize(
    "name",
    [next(iter(REFUSED_BY_BOTH)), *(pytest.param(name, marks=pytest.mark.grid) for name in list(REFUSED_BY_BOTH)[1:])],
)
def test_value_that_spark_refuses_is_refused_when_a_spec_is_loaded(spark, tmp_path, name):
    for number, text in enumerate(REFUSED_BY_BOTH[name]):
        with pytest.raises(ValueError, match=name):
            DeltaSink(table_properties={name: text})
        builder = DeltaTable.create(spark).location(str(tmp_path / str(number))).addColumn("id", "BIGINT")
        with pytest.raises((PySparkException, Py4JJavaError)):
            builder.property(name, text).execute()


@pytest.mark.grid
def test_property_that_a_spec_may_have_changes_nothing_that_is_not_written(spark, tmp_path):
    """Whatever Spark brings into a table by a property that is let through is on our list."""
    assert judged_properties({**NOT_OF_SPARK, **TOGETHER})[1] == {}
    path = str(tmp_path / "t")
    Writer().create(path, Definition(COLUMNS, TOGETHER), name="t", info={})
    Snapshot.read(path).refuse_unwritable()
