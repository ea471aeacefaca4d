"""`order: upsert` over records that a map describes, on Spark: the rows that the local engine has, and a transform of them."""

import random

from clusters.spark_support import sink, write
from inputs.tool_records import WRITERS, lines, records

from ebbtide import InProcess, UpsertPipeline, run
from ebbtide.delta import Snapshot
from ebbtide.runtime import Plan

FORMAT = {
    "type": "mapped",
    "operation": {"field": "action", "insert": ["insert"], "update": ["update"], "delete": ["delete"]},
    "row": "record",
    "before": "changes",
}
DOUBLED = {
    "schema": "id BIGINT NOT NULL, doubled DECIMAL(13,2)",
    "select": {"id": "id", "doubled": "total * 2"},
    "where": "v = 'a'",
    "key": ["id"],
}


def upserts(folder, name, **fields):
    return UpsertPipeline(
        name=name,
        source={"path": str(folder), "records": "value", "max_files_per_step": 1},
        format=FORMAT,
        schema="id BIGINT NOT NULL, v STRING, total DECIMAL(12,2)",
        key=["id"],
        order="upsert",
        **fields,
    )


def test_upserts_on_spark_are_those_of_the_local_engine_and_a_transform_shows_the_last_writes(spark, tmp_path):
    written, rows = records(WRITERS["sequin"], seed=5, n=80)
    all_lines = lines(written)
    cut = random.Random(5).randrange(1, len(all_lines))
    folder = write(tmp_path / "in", all_lines[:cut], all_lines[cut:])
    here, there, doubled = (
        upserts(folder, "here"),
        upserts(folder, "there", engine="spark"),
        upserts(folder, "doubled", transform=DOUBLED),
    )
    run(InProcess(), here, str(tmp_path))
    for of in (there, doubled):
        run(spark, of, str(tmp_path))
    expected = [{name: row[name] for name in ("id", "v", "total")} for row in rows]
    local = Snapshot.read(Plan.under(str(tmp_path), here).sink.path).rows(here.sink_table.columns).to_pylist()
    assert sorted(local, key=lambda row: row["id"]) == expected
    assert sink(spark, tmp_path, there) == expected
    assert {row["id"]: row["doubled"] for row in sink(spark, tmp_path, doubled)} == {
        row["id"]: row["total"] * 2 for row in rows if row["v"] == "a"
    }
