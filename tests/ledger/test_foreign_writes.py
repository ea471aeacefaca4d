"""Foreign writes by the tables' logs: which commits count, until when, and how many are read."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import Schema
from frame.limits import set_limits
from local.local_pipeline import LATER, up

from ebbtide.checks import VersionRange
from ebbtide.delta import DataFile, Log, Snapshot, Writer
from ebbtide.ledger import Cause, DataCommit, ForeignWrites, Ledger
from ebbtide.model import Decision
from ebbtide.storage import Location

MOST_NAMED = 5


def write_as_another_client(table, operation="DELETE", *, data_change=True):
    """Remove all files of a table by a commit without our identity; return its version."""
    snapshot = Snapshot.read(table)
    removes = [file.removed(0, data_change=data_change) for file in snapshot.files.values()]
    return Writer().commit(snapshot, removes, {"operation": operation})


def rewrite_as_another_client(table, change):
    """Put other rows in the place of all, by a commit that says that no row changes."""
    snapshot = Snapshot.read(table)
    columns = pa.schema(Schema.from_json(snapshot.metadata["schemaString"]).to_arrow())
    rows = change(snapshot.rows(columns).to_pylist())
    name = f"theirs-{snapshot.version}.parquet"
    adds = [DataFile.write(table, name, pa.Table.from_pylist(rows, columns), bounded=())] if rows else []
    actions = DataFile.replacing(snapshot.files.values(), adds, data_change=False)
    for action in actions:
        for kind in {"add", "remove"} & action.keys():
            action[kind]["dataChange"] = False
    Writer().commit(snapshot, actions, {"operation": "OPTIMIZE"})


LIES = {
    "a row more": lambda rows: [*rows, {**rows[0], "id": 99}],
    "a row twice": lambda rows: [*rows, rows[0]],
    "a row less": lambda rows: rows[1:],
    "none left": lambda rows: [],
}


def found_afresh(pipeline):
    writes = pipeline.plan.look_for_foreign_writes(None).writes
    return [(write.table, write.version, write.operation) for write in writes]


def found(pipeline):
    """The foreign writes, the same whether the look goes on from what a run has noted or not."""
    plan = pipeline.plan
    afresh = plan.look_for_foreign_writes(None)
    further = plan.look_for_foreign_writes(plan.ledger.turn)
    assert further == afresh
    assert ForeignWrites.found("t", plan.state.path, plan.sink.path, afresh.looked) == afresh
    return found_afresh(pipeline)


@pytest.fixture
def pipeline(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    return pipeline


def test_own_commits_are_none(pipeline):
    pipeline.read(up(1, 2))
    pipeline.do("compaction")
    pipeline.do("cleanup")
    assert found(pipeline) == []


def test_commits_of_other_clients_count_in_both_tables(pipeline):
    write_as_another_client(pipeline.plan.sink.path)
    pipeline.read(up(2, 2))
    write_as_another_client(pipeline.plan.sink.path, "UPDATE")
    write_as_another_client(pipeline.plan.state.path, "MERGE")
    versions = pipeline.versions()
    [(first, _, _), *newer] = found(pipeline)
    assert first == "sink"
    assert newer == [("sink", versions["sink"], "UPDATE"), ("state", versions["state"], "MERGE")]


def test_joined_files_and_changed_properties_are_no_foreign_writes(pipeline):
    sink = pipeline.plan.sink.path
    Writer().commit(Snapshot.read(sink), [], {"operation": "SET TBLPROPERTIES"})
    rewrite_as_another_client(sink, lambda rows: rows)
    assert found(pipeline) == []


@pytest.mark.parametrize("order", [{"order": {"sequence": ["n"]}}, {"order": "arrival", "ttl": "30d"}], ids=str)
@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("table", ["sink", "state"])
def test_commit_that_says_no_row_changes_and_changes_their_number_is_a_foreign_write(make, order, table, name):
    pipeline = make(**order)
    pipeline.read(up(1, 1, "+I"), up(2, 2, "+I"), up(3, 3, "+I"))
    right = pipeline.rows()
    rewrite_as_another_client(pipeline.plan.at(table), LIES[name])
    version = pipeline.versions()[table]
    assert found(pipeline) == [(table, version, "OPTIMIZE")]
    pipeline.repair()
    assert (pipeline.rows(), found(pipeline)) == (right, [])


@pytest.mark.parametrize("way_out", ["repair", "refresh", "undo"])
def test_they_are_gone_after_a_repair_a_refresh_and_a_rewind(pipeline, way_out):
    rows = Snapshot.read(pipeline.plan.sink.path).rows(pipeline.plan.sink.schema)
    pipeline.do("spoil")
    assert len(pipeline.run().foreign_writes) == len(found(pipeline)) == 1
    if way_out == "repair":
        pipeline.repair(rows)
    else:
        pipeline.do(way_out)
    assert found(pipeline) == []
    assert pipeline.rows() == {1: 1}


def test_they_are_gone_once_they_were_acknowledged(pipeline):
    pipeline.do("spoil")
    assert len(pipeline.run().foreign_writes) == 1
    with pipeline.stepper() as stepper:
        accepts = Decision(accepts_sink=pipeline.versions()["sink"])
        stepper.commit(stepper.facts(Cause(what="acknowledge", why="meant so"), decision=accepts), [])
    assert found(pipeline) == []
    pipeline.read(up(2, 2))
    write_as_another_client(pipeline.plan.sink.path, "UPDATE")
    assert [operation for _, _, operation in found(pipeline)] == ["UPDATE"]


def test_no_more_than_the_newest_commits_are_read(pipeline, monkeypatch):
    sink = pipeline.plan.sink.path
    pipeline.do("spoil")
    spoilt = pipeline.versions()["sink"]
    for number in range(2, 6):
        pipeline.read(up(number, number))
    newest = pipeline.versions()["sink"]
    read = []
    commit = Log.commit
    monkeypatch.setattr(Log, "commit", lambda log, version: read.append((log.table, version)) or commit(log, version))
    set_limits(most_commits=newest - spoilt)
    assert found_afresh(pipeline) == []
    assert [version for table, version in read if table == sink] == list(range(newest, spoilt, -1))
    set_limits(most_commits=newest - spoilt + 1)
    assert [version for _, version, _ in found_afresh(pipeline)] == [spoilt]
    commits = DataCommit.of_table("t", "sink", sink, range(newest + 1))
    assert [commit.version for commit in commits if not commit.is_own] == [spoilt]


def test_noted_foreign_write_is_reported_after_many_commits(pipeline):
    set_limits(most_commits=2)
    pipeline.do("spoil")
    spoilt = pipeline.versions()["sink"]
    for number in range(2, 6):
        pipeline.put(up(number, number))
        [write] = pipeline.run().foreign_writes
        assert write.version == spoilt
    assert found_afresh(pipeline) == []


def test_commits_that_a_run_has_looked_at_are_not_read_again(pipeline, monkeypatch):
    read = []
    read_bytes = Location.read_bytes
    monkeypatch.setattr(Location, "read_bytes", lambda location: read.append(location) or read_bytes(location))

    def reads_of_sink():
        turn = pipeline.plan.ledger.turn
        read.clear()
        pipeline.plan.look_for_foreign_writes(turn)
        return sum(location.startswith(pipeline.plan.sink.path) for location in read)

    assert reads_of_sink() == 1, "the newest, for its checksum"
    for number in range(2, 8):
        pipeline.read(up(number, number))
    assert reads_of_sink() == 1
    assert len(read) <= 6
    pipeline.do("spoil")
    assert reads_of_sink() == 3, "the foreign write too, and its checksum"
    pipeline.read(up(8, 8))
    assert reads_of_sink() == 2, "the foreign write"
    ledger = pipeline.plan.at("ledger")
    Ledger(ledger, "t").pause("me", "to look", LATER, 60)
    Ledger(ledger, "t").resume(LATER)
    pipeline.do("cleanup")
    assert reads_of_sink() == 2, "turns of another run repeat the noted scan"


def test_table_that_was_put_back_is_looked_at_from_the_beginning(pipeline, tmp_path):
    sink = Path(pipeline.plan.sink.path)
    shutil.copytree(sink, tmp_path / "copy")
    rewrite_as_another_client(str(sink), lambda rows: rows)
    pipeline.run()
    assert found(pipeline) == []
    shutil.rmtree(sink)
    shutil.copytree(tmp_path / "copy", sink)
    assert found(pipeline) == []
    pipeline.do("spoil")
    assert len(found(pipeline)) == 1
    assert pipeline.run().foreign_writes == pipeline.plan.look_for_foreign_writes(None).writes


def test_commits_before_an_adoption_are_none(make):
    pipeline = make(schema="id BIGINT, v STRING, n BIGINT")
    pipeline.do("table")
    assert found(pipeline) == []
    pipeline.do("adopt")
    assert found(pipeline) == []
    window = VersionRange.after(pipeline.plan)
    assert window.sink_since == 3, "the table's own, its rows, the columns of the pipeline, the first rows adopted"
    pipeline.do("spoil")
    assert len(found(pipeline)) == 1


def test_text_names_some_and_counts_the_rest(pipeline):
    for number in range(7):
        pipeline.read(up(number, number))
        pipeline.do("spoil")
    text = pipeline.plan.look_for_foreign_writes(None).text()
    assert text.startswith("7 commits of other clients changed rows: sink version ")
    assert text.count("sink version") == MOST_NAMED
    assert " and 2 more. Run 'ebbtide repair'" in text
