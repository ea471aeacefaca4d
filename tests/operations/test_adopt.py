"""Adoption without Spark: the rows of another client's table come before all changes of the source."""

import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from frame.interrupting import killed_before
from frame.limits import set_limits
from local.local_pipeline import up
from local.local_run import ADOPTED, START, make_table
from local.support import envelope
from pyroaring import BitMap64

from ebbtide import MaterializedView
from ebbtide.delta import DataFile, LostRows, Snapshot, Writer
from ebbtide.errors import AdoptionError, LeaseHeldError, TableMismatchError
from ebbtide.ledger import Lease
from ebbtide.storage import Location

VIEW = MaterializedView(name="v", query="SELECT id FROM t", inputs=["t"], schema="id BIGINT NOT NULL", key=["id"])
SCHEMA = {"schema": "id BIGINT, v STRING, n BIGINT"}
TRANSFORM = {
    "schema": "id BIGINT, v STRING, n BIGINT",
    "select": {"id": "id", "v": "upper(v)", "n": "n"},
    "key": ["id"],
}
ROWS = {row["id"]: row["n"] for row in ADOPTED}


def adoptable(make, **fields):
    pipeline = make(**{**SCHEMA, **fields})
    pipeline.do("table")
    return pipeline


def adopted(pipeline):
    report = pipeline.do("adopt")
    return report["rows"], tuple(report["steps"])


@pytest.mark.parametrize("order", [{}, {"order": "arrival", "materializer": {"emission": "every"}}])
def test_rows_are_adopted_in_steps_and_shown_as_they_were(make, order):
    pipeline = adoptable(make, **order)
    report = pipeline.do("adopt", START)
    assert report.as_dict() == {"pipeline": "t", "rows": 5, "steps": [1, 2, 3], "step": 3}
    assert report.text() == "t: 5 rows adopted in 3 steps. The next run reads the source."
    assert pipeline.rows() == ROWS
    steps = [(facts.cause.what, facts.state.unadopted, facts.read.records) for _, facts in pipeline.plan.state.steps()]
    assert steps == [("adopt", left, 0) for left in (0, 1, 3)], "rows of a table are no records of the source"
    assert pipeline.last.now_ms == START
    changed_by = [row["_changed_by"] for row in pipeline.table("sink", pipeline.plan.sink.schema)]
    assert None not in changed_by
    left = {"ledger", "sink", "state"} | ({"changelog"} if order else set())
    assert {path.name for path in pipeline.home.iterdir()} == left, "nothing staged stays"
    assert pipeline.do("adopt").text() == "t: no row to adopt."


def test_by_sequence_a_row_stands_at_the_value_of_its_own_column(make):
    pipeline = adoptable(make)
    pipeline.do("adopt")
    pipeline.read(
        up(100, -2, v="older"), up(101, 0, v="newer"), up(102, -2, "-D", v=""), up(103, 0, "-D", v=""), up(9, 9, v="")
    )
    assert pipeline.rows() == {100: -1, 101: 0, 102: -1, 104: -1, 9: 9}


def test_by_arrival_a_row_is_retracted_by_its_content(make):
    pipeline = adoptable(make, order="arrival")
    pipeline.do("adopt")
    pipeline.read(up(100, -1, "-D", v="old0"), up(101, 7, "+U", v="new"))
    assert pipeline.rows() == {101: 7, **dict.fromkeys((102, 103, 104), -1)}


def test_adoption_that_died_is_gone_on_with_and_no_run_begins_before(make):
    pipeline = adoptable(make)
    with killed_before("files are deleted"):
        pipeline.do("adopt")
    with pytest.raises(TableMismatchError, match=r"Not all rows .* Got: 3 left"):
        pipeline.run()
    assert adopted(pipeline) == (3, (2, 3))
    assert pipeline.rows() == ROWS
    pipeline.read(up(9, 9, v="new"))
    assert pipeline.rows() == {**ROWS, 9: 9}


def test_adoption_of_which_others_have_deleted_the_rows_that_were_left_ends(make):
    pipeline = adoptable(make)
    with killed_before("files are deleted"):
        pipeline.do("adopt")
    sink = Snapshot.read(pipeline.plan.sink.path)
    were_there = {file.path for file in Snapshot.read(pipeline.plan.sink.path, 1).files.values()}
    theirs = [file for file in sink.files.values() if file.path in were_there]
    Writer().commit(sink, DataFile.replacing(theirs, []), {"operation": "DELETE"})
    assert adopted(pipeline) == (0, (2,))
    pipeline.read(up(9, 9, v="new"))
    assert pipeline.rows() == {100: -1, 101: -1, 9: 9}
    assert pipeline.is_idle()


def test_open_step_of_an_adoption_is_finished_by_the_next_and_its_rows_are_not_adopted_again(make):
    pipeline = adoptable(make)
    with killed_before("a decided step is published"):
        pipeline.do("adopt")
    assert adopted(pipeline) == (3, (2, 3))
    assert sorted(row["id"] for row in pipeline.table("sink", pipeline.plan.sink.schema)) == sorted(ROWS)


def test_adoption_waits_for_no_run_and_leaves_a_lease_free(make):
    pipeline = adoptable(make)
    assert pipeline.act("adopt", "plan").text() == "t: 5 rows to adopt.\n  To do it: 'ebbtide adopt --apply'."
    with Lease(pipeline.plan.at("ledger"), "t", 60), pytest.raises(LeaseHeldError):
        pipeline.do("adopt")
    pipeline.do("adopt")
    with Lease(pipeline.plan.at("ledger"), "t", 60):
        pass


@pytest.mark.parametrize(
    ("sequence", "of_row"),
    [(["n", "id"], lambda id_: {"n": -1, "id": id_}), (["_ts_ms", "_lsn"], lambda _: {"_ts_ms": 0, "_lsn": 0})],
)
def test_log_positions_are_those_before_all_changes_and_own_columns_are_their_values(make, sequence, of_row):
    pipeline = adoptable(make, format={"type": "debezium"}, order={"sequence": sequence})
    pipeline.do("adopt")
    adopted_rows = pipeline.table("sink", pipeline.plan.sink.schema)
    assert {row["id"]: {name: row["_sequence"][name] for name in sequence} for row in adopted_rows} == {
        id_: of_row(id_) for id_ in ROWS
    }


def test_change_of_the_log_is_newer_than_an_adopted_row(make):
    pipeline = adoptable(make, format={"type": "debezium"}, order={"sequence": ["_lsn"]})
    pipeline.do("adopt")
    pipeline.read(json.dumps(envelope("u", 1, after={"id": 100, "v": "new", "n": 5})))
    assert pipeline.rows() == {**ROWS, 100: 5}


def refused(pipeline):
    with pytest.raises(AdoptionError) as raised:
        pipeline.act("adopt", "plan")
    assert not Location(pipeline.plan.state.path).exists()
    return str(raised.value)


def test_what_cannot_be_adopted_is_refused_with_the_way_out(make, tmp_path):
    pipeline = make(**SCHEMA)
    assert refused(pipeline) == (
        f"There is no table to adopt for 't'. Got: none at '{pipeline.plan.sink.path}'."
        " Move or clone the table there first (CREATE TABLE ... DEEP CLONE)."
    )
    pipeline.do("table")
    pipeline.spec = pipeline.with_fields(transform=TRANSFORM)
    assert refused(pipeline) == (
        "The sink of 't' is selected by a transform: it does not determine the source's rows. Allowed: an upsert pipeline without a"
        " transform. Let the pipeline create a sink from the source."
    )
    pipeline.spec = VIEW
    make_table(pipeline.plan.sink.path, VIEW.sink_table.columns)
    assert refused(pipeline) == (
        "'v' is a materialized view: its rows follow from its query. Allowed: an upsert pipeline."
        " Give the view another name, or move the table away."
    )
    of_function = make(function="victims:Totals", ttl={"total": "2h", "seen": "2h"})
    assert refused(of_function) == (
        "The sink of 't' is a function's output: its rows do not determine the state. Allowed: an upsert pipeline."
    )


def test_pipeline_that_has_made_steps_adopts_nothing(make):
    pipeline = make(**SCHEMA)
    pipeline.read(up(1, 1))
    pipeline.read(up(1, 2))
    for action in ("plan", "apply"):
        with pytest.raises(AdoptionError) as raised:
            pipeline.act("adopt", action)
        assert str(raised.value) == (
            "'t' has already made steps. Got: step 2. Allowed: a pipeline that has read nothing yet."
        )


@pytest.mark.parametrize(
    ("rows", "got"),
    [
        (
            pa.table({"id": pa.array([1], pa.int32()), "v": ["a"], "more": [2]}),
            "id INT; more is not in the spec; n is missing. Allowed: id BIGINT, v STRING, n BIGINT",
        ),
        (
            pa.table({"id": [1, 2, 1, None], "v": ["a", "b", "x", ""], "n": [10, 20, None, 1]}),
            "2 with a null in key or sequence, 1 key with several rows",
        ),
    ],
)
@pytest.mark.parametrize("rows_in_part", [500_000, 1])
def test_table_that_does_not_fit_is_refused(make, rows, got, rows_in_part):
    set_limits(rewriting_rows_in_part=rows_in_part)
    pipeline = make(**SCHEMA, order={"sequence": ["n"]})
    write_deltalake(pipeline.plan.sink.path, rows)
    assert f"Got: {got}." in refused(pipeline)


def test_rows_that_another_client_has_deleted_are_not_adopted_and_its_columns_keep_their_order(make):
    pipeline = make(**SCHEMA)
    rows = pa.table({"n": [1, 2, 3], "id": [1, 2, 3], "v": ["a", "b", "c"]})
    path = pipeline.plan.sink.path
    write_deltalake(path, rows, configuration={"delta.logRetentionDuration": "interval 9 days"})
    theirs = Snapshot.read(path)
    [file] = theirs.files.values()
    Writer().commit(
        theirs,
        [*theirs.with_vectors(), *theirs.deleting([LostRows(file, BitMap64([1]), is_whole=False)])],
        {"operation": "DELETE"},
    )
    assert adopted(pipeline) == (2, (1,))
    assert pipeline.rows() == {1: 1, 3: 3}
    sink = Snapshot.read(path)
    assert list(sink.column_types) == ["n", "id", "v", "_sequence", "_changed_by"]
    assert sink.configuration["delta.logRetentionDuration"] == "interval 9 days"
    assert {"changeDataFeed", "deletionVectors"} <= set(sink.protocol["writerFeatures"])
    assert DeltaTable(path).version() == sink.version, "another client reads it"
