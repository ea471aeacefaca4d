"""A table that was there before becomes a sink: its rows stand before all that the source brings."""

import pyarrow as pa
import pytest
from clusters.spark_support import act, change, plain_spec, sink, write
from deltalake import DeltaTable, QueryBuilder
from frame.interrupting import killed_before
from frame.limits import set_limits
from oracles.judging import verdict_of

from ebbtide import run
from ebbtide.delta import Snapshot
from ebbtide.errors import AdoptionError, DeltaFeatureError, TableMismatchError
from ebbtide.runtime import Plan

ROWS = "SELECT * FROM VALUES (1L, 'a', 10L), (2L, 'b', 20L), (3L, 'c', 30L), (4L, 'd', 40L), (5L, 'e', 50L) AS t(id, v, seq)"
CHANGES = [
    change("+U", 1, "late", 5),
    change("+U", 2, "new", 60),
    change("-D", 3, "c", 61).replace('"seq": 61', '"seq": 30, "a.b": 7'),
    change("+I", 9, "z", 62),
]
MODES = {
    "sequence": {"order": {"sequence": ["seq"]}},
    "arrival": {},
    "partitioned": {"order": {"sequence": ["seq"]}, "sink": {"table_properties": {"team": "shop"}}},
}
AFTER = {
    "sequence": [(1, "a"), (2, "new"), (4, "d"), (5, "e"), (9, "z")],
    "arrival": [(1, "late"), (2, "new"), (4, "d"), (5, "e"), (9, "z")],
}
AFTER["partitioned"] = AFTER["sequence"]


def spec_of(tmp_path, mode, schema="id BIGINT, v STRING, seq BIGINT"):
    return plain_spec(write(tmp_path / "in", CHANGES), schema=schema, **MODES[mode])


def made(spark, tmp_path, spec, sql=ROWS):
    path = str(tmp_path / spec.name / "sink")
    by = ["v", "seq"] if spec.sink.table_properties else []
    spark.sql(sql).coalesce(1).write.format("delta").partitionBy(*by).save(path)
    return path


def rows(spark, tmp_path, spec):
    return [(row["id"], row["v"]) for row in sink(spark, tmp_path, spec)]


@pytest.mark.grid  # killed without Spark: tests/runtime/test_crashes.py
@pytest.mark.parametrize("mode", MODES)
def test_adoption_that_died_goes_on_where_it_was(spark, tmp_path, mode):
    set_limits(rows_per_step=2)
    spec = spec_of(tmp_path, mode, "id BIGINT, v STRING, seq BIGINT, `a.b` INT DEFAULT NULL")
    path = made(spark, tmp_path, spec, f"SELECT *, 7 AS `a.b` FROM ({ROWS})")
    before = rows(spark, tmp_path, spec)
    with pytest.raises(TableMismatchError, match="'ebbtide adopt'"):
        run(spark, spec, str(tmp_path))
    assert act(spark, spec, tmp_path, "adopt", "plan")["rows"] == 5
    with killed_before("files are deleted"):
        act(spark, spec, tmp_path, "adopt", clock_ms=0)
    with pytest.raises(TableMismatchError, match=r"Not all rows .* Got: 3 left"):
        run(spark, spec, str(tmp_path))
    assert act(spark, spec, tmp_path, "adopt", "plan")["rows"] == 3
    done = act(spark, spec, tmp_path, "adopt", clock_ms=0)
    assert (done["rows"], done["steps"]) == (3, [2, 3])
    assert rows(spark, tmp_path, spec) == before
    assert act(spark, spec, tmp_path, "adopt", "plan")["rows"] == 0
    run(spark, spec, str(tmp_path))
    assert rows(spark, tmp_path, spec) == AFTER[mode]
    tables = Plan.under(str(tmp_path), spec)
    assert {name: verdict_of(spark, tables, name).passed for name in ("complete", "unique_key")} == {
        "complete": True,
        "unique_key": True,
    }
    assert "nothing to repair" in act(spark, spec, tmp_path, "repair", "plan").text()
    assert len(spark.read.format("delta").option("versionAsOf", 0).load(path).columns) == 4, "its history stays"
    theirs = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT id, v FROM t ORDER BY id").read_all()
    assert [tuple(row.values()) for row in pa.table(theirs).to_pylist()] == AFTER[mode]
    described = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").first()
    assert described["partitionColumns"] == (["v", "seq"] if mode == "partitioned" else [])
    assert described["properties"].get("team") == ("shop" if mode == "partitioned" else None)
    with pytest.raises(AdoptionError, match="has already made steps"):
        act(spark, spec, tmp_path, "adopt", "plan")


def test_table_with_mapped_columns_is_adopted_once_that_feature_is_dropped(spark, tmp_path):
    spec = spec_of(tmp_path, "sequence")
    path = made(spark, tmp_path, spec)
    mapped = "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({mapped})")
    with pytest.raises(DeltaFeatureError, match="Got: columnMapping"):
        act(spark, spec, tmp_path, "adopt", "plan")
    spark.sql(f"ALTER TABLE delta.`{path}` DROP FEATURE columnMapping")
    assert "checkpointProtection" in Snapshot.read(path).protocol["writerFeatures"]
    act(spark, spec, tmp_path, "adopt", clock_ms=0)
    run(spark, spec, str(tmp_path))
    assert rows(spark, tmp_path, spec) == AFTER["sequence"]
    assert spark.read.format("delta").option("versionAsOf", 0).load(path).count() == 5, "its history stays"
