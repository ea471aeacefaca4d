"""Tables made before the first step follow the spec, without Spark; once another client has touched them, or a step was made, they do not."""

import json
import shutil

import pytest
from local.local_pipeline import up

from ebbtide.delta import DataFile, Definition, Log, Snapshot, Writer
from ebbtide.errors import SpecChangedError, TableMismatchError

ID_AND_N = "id BIGINT NOT NULL, n BIGINT"
WITH_W = "id BIGINT NOT NULL, n BIGINT, w STRING"
BY_ARRIVAL = {"order": "arrival"}
EVERY = {"order": "arrival", "materializer": {"emission": "every"}}
OTHER_FIELDS = {
    "column": {"schema": WITH_W},
    "type": {"schema": "id BIGINT NOT NULL, n INT"},
    "key that may be null": {"schema": "id BIGINT, n BIGINT"},
    "order": BY_ARRIVAL,
    "changelog": EVERY,
    "key": {"key": ["n"]},
}


@pytest.mark.parametrize("changed", OTHER_FIELDS.values(), ids=OTHER_FIELDS)
@pytest.mark.parametrize("fields", [{}, EVERY], ids=["by sequence", "emits every"])
def test_spec_that_changes_before_the_first_step_has_tables_of_its_own(make, fields, changed):
    pipeline = make(**{"schema": ID_AND_N, **fields})
    pipeline.run()
    pipeline.spec = pipeline.with_fields(**changed)
    row = {"w": "x"} if changed.get("schema") == WITH_W else {}
    pipeline.read(up(1, 1, "+I", **row))
    [shown] = pipeline.table("sink", pipeline.spec.sink_table.columns)
    assert shown == {"id": 1, "n": 1, **row}
    assert pipeline.plan.spec.emits_every == bool(Log(pipeline.plan.at("changelog")).versions())


def test_tables_of_the_same_spec_stay(make):
    pipeline = make(schema=ID_AND_N)
    pipeline.run()
    ids = {name: Snapshot.read(pipeline.plan.at(name)).id for name in ("state", "sink")}
    pipeline.run()
    assert {name: Snapshot.read(pipeline.plan.at(name)).id for name in ids} == ids


def test_run_that_died_between_its_tables_is_followed_by_one_that_makes_them(make):
    pipeline = make(schema=ID_AND_N)
    pipeline.run()
    shutil.rmtree(pipeline.home / "sink")
    pipeline.spec = pipeline.with_fields(schema=WITH_W)
    pipeline.read(up(1, 1, w="x"))
    assert pipeline.rows() == {1: 1}


def test_spec_that_changes_behind_a_step_is_refused_as_ever(make):
    pipeline = make(schema=ID_AND_N)
    pipeline.read(up(1, 1))
    pipeline.spec = pipeline.with_fields(schema=WITH_W)
    with pytest.raises(SpecChangedError):
        pipeline.run()
    assert pipeline.rows() == {1: 1}


def test_table_that_was_altered_by_another_client_is_refused_not_dropped(make):
    pipeline = make(schema=ID_AND_N)
    pipeline.run()
    sink = Snapshot.read(pipeline.plan.sink.path)
    schema = json.loads(sink.metadata["schemaString"])
    schema["fields"].append({"name": "theirs", "type": "string", "nullable": True, "metadata": {}})
    metadata = {**sink.metadata, "schemaString": json.dumps(schema)}
    Writer().commit(sink, [{"metaData": metadata}], {"operation": "ADD COLUMNS"})
    pipeline.spec = pipeline.with_fields(schema=WITH_W)
    with pytest.raises(TableMismatchError, match="has other columns"):
        pipeline.run()


def test_rows_of_another_client_are_refused_not_dropped(make):
    pipeline = make(schema=ID_AND_N)
    pipeline.run()
    sink = Snapshot.read(pipeline.plan.sink.path)
    rows = pipeline.plan.sink.schema.empty_table()
    Writer().commit(sink, [DataFile.write(sink.table, "theirs.parquet", rows, bounded=())], {"operation": "WRITE"})
    pipeline.spec = pipeline.with_fields(schema=WITH_W)
    with pytest.raises(TableMismatchError, match="has not written"):
        pipeline.run()
    assert (pipeline.home / "sink" / "theirs.parquet").exists()


def test_empty_table_of_another_client_is_refused_not_dropped(make):
    pipeline = make(schema=WITH_W)
    table = pipeline.plan.sink.path
    Writer().create(table, Definition(make(schema=ID_AND_N).spec.sink_table.columns), name="theirs", info={})
    with pytest.raises(TableMismatchError, match="has other columns"):
        pipeline.run()
    assert Log(table).versions() == [0]


def test_refresh_over_unused_tables_makes_a_step(make):
    pipeline = make(schema=ID_AND_N)
    pipeline.run()
    pipeline.spec = pipeline.with_fields(schema=WITH_W)
    pipeline.do("refresh")
    assert (pipeline.last.step, pipeline.is_idle()) == (1, False)
