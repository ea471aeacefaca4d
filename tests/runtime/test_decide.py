"""A step is decided alike in the driver and dealt out to tasks, with what its keys wait for, and the sink's rows where entries expired."""

from types import SimpleNamespace

import pytest
from crashes.disk import DiskPipeline
from frame.limits import set_limits
from local.local_pipeline import up
from local.local_run import HOUR, START
from local.quarantine_support import by_seq
from local.support import change, envelope, record, spec

from ebbtide import InProcess
from ebbtide.delta import IndexCache
from ebbtide.runtime._decide import partitions
from ebbtide.tables import StateTable

UNSENT = "__debezium_unavailable_value"


@pytest.fixture(params=[0, 20_000], ids=["dealt out", "in the driver"])
def rows_in_driver(request):
    set_limits(rows_in_driver=request.param)
    return request.param


@pytest.mark.parametrize(
    ("parallelism", "rows", "tasks"), [(8, 0, 8), (8, 400_000, 8), (8, 400_001, 9), (1, 50_000, 1), (1, 50_001, 2)]
)
def test_many_rows_go_to_more_tasks_than_run_at_a_time(parallelism, rows, tasks):
    assert partitions(SimpleNamespace(MOST_ROWS=50_000, parallelism=parallelism), rows) == tasks


def test_threads_take_equal_shares_however_many_rows():
    assert partitions(InProcess(threads=3), 400_001) == 3


def test_batch_is_decided_alike_wherever(tmp_path, rows_in_driver):
    disk = DiskPipeline(by_seq(), tmp_path, tasks=3)
    disk.step([change("+I", id=n, n=n, seq=n) for n in range(20)])
    disk.step([change("+U", id=n, n=-n, seq=100) for n in range(0, 20, 2)])
    assert [row["n"] for row in disk.rows()] == [n if n % 2 else -n for n in range(20)]
    assert disk.metrics["inserted"] == 20
    assert disk.metrics["updated"] == 10
    n_shares = disk.dealt_out if rows_in_driver == 0 else []
    assert len(n_shares) == (3 if rows_in_driver == 0 else 0)


def test_limit_is_the_most_that_the_driver_decides(tmp_path):
    set_limits(rows_in_driver=2)
    disk = DiskPipeline(by_seq(), tmp_path, tasks=3)
    disk.step([change("+I", id=n, n=n, seq=n) for n in range(2)])
    assert not hasattr(disk, "dealt_out")
    disk.step([change("+I", id=n, n=n, seq=n) for n in range(3, 6)])
    assert len(disk.dealt_out) == 3


def test_tick_expires_all_that_is_due_wherever(tmp_path, rows_in_driver):
    disk = DiskPipeline(by_seq(ttl={"ttl": "1h", "expire_live": True}), tmp_path, tasks=3)
    disk.step([change("+I", id=n, n=n, seq=n) for n in range(7)], now_ms=0)
    version = disk.snapshot.version
    disk.tick(now_ms=HOUR - 1)
    assert disk.snapshot.version == version, "nothing is due, and nothing is written"
    disk.tick(now_ms=HOUR)
    assert disk.metrics["expired"] == 7
    if rows_in_driver == 0:
        assert [len(group) for group in disk.dealt_out] == [3, 3, 1]
    disk.tick(now_ms=2 * HOUR)
    assert disk.metrics["expired"] == 7


def test_tick_leaves_out_no_key_where_there_are_more_tasks_than_keys(tmp_path):
    set_limits(rows_in_driver=0)
    disk = DiskPipeline(by_seq(ttl={"ttl": "1h", "expire_live": True}), tmp_path, tasks=9)
    disk.step([change("+I", id=n, n=n, seq=n) for n in range(7)], now_ms=0)
    disk.tick(now_ms=HOUR)
    assert [len(group) for group in disk.dealt_out] == [1] * 7
    assert disk.metrics["expired"] == 7


def test_as_many_keys_as_the_driver_takes_expire_without_a_task(make):
    set_limits(rows_in_driver=3)
    pipeline = make(ttl={"ttl": "1h", "expire_live": True})
    pipeline.read(up(1, 1), up(2, 2), up(3, 3), clock_ms=START)
    [tick] = pipeline.run(START + HOUR).steps
    assert tick.metrics["expired"] == 3


def test_sink_s_row_stands_in_for_an_entry_that_has_expired(tmp_path):
    disk = DiskPipeline(by_seq(ttl={"ttl": "1h", "expire_live": True}), tmp_path)
    disk.step([change("+I", id=1, n=1, seq=5)], now_ms=0)
    disk.tick(now_ms=HOUR)
    disk.step([change("+U", id=1, n=9, seq=4)], now_ms=HOUR)
    assert disk.rows() == [{"id": 1, "n": 1, "seq": 5}]
    disk.step([change("+U", id=1, n=9, seq=6)], now_ms=HOUR)
    assert disk.rows() == [{"id": 1, "n": 9, "seq": 6}]


def test_sink_that_a_reset_has_emptied_stands_in_for_nothing(make):
    pipeline = make(ttl={"ttl": "1h", "expire_live": True})
    pipeline.read(up(1, 5), clock_ms=START)
    pipeline.do("refresh", START)
    assert pipeline.rows() == {1: 5}


def moved(lsn, old, new, body=UNSENT):
    """A change of a key that may leave the value out."""
    return record(envelope("u", lsn, before={"id": old}, after={"id": new, "body": body}), lsn)


def created(lsn, id_, body):
    return record(envelope("c", lsn, after={"id": id_, "body": body}), lsn)


SCHEMA = "id BIGINT NOT NULL, body STRING"


def shown(disk):
    """The sink's rows; a step has written at most one entry of a key."""
    state = disk.plan.state.snapshot().rows(disk.plan.state.schema).to_pylist()
    written = [(row["id"], row["_step"]) for row in state if row["_entry"] == "row"]
    assert len(set(written)) == len(written)
    return {row["id"]: row["body"] for row in disk.rows()}


def test_row_whose_key_changed_takes_its_value_from_the_old_key_within_a_step(tmp_path, rows_in_driver):
    disk = DiskPipeline(spec(SCHEMA), tmp_path, tasks=3)
    disk.step([created(1, 1, "a"), moved(2, 1, 2), created(3, 9, "z")])
    assert shown(disk) == {2: "a", 9: "z"}


def test_row_that_waits_takes_its_value_from_a_later_step(tmp_path, rows_in_driver):
    disk = DiskPipeline(spec(SCHEMA), tmp_path, tasks=3)
    disk.step([moved(2, 1, 2)])
    assert disk.head.facts.state.pending_key_changes
    disk.step([created(1, 1, "a"), created(3, 9, "z")])
    assert shown(disk) == {2: "a", 9: "z"}
    assert not disk.head.facts.state.pending_key_changes


def test_row_that_waits_is_found_behind_files_in_which_none_does(tmp_path, rows_in_driver):
    disk = DiskPipeline(spec(SCHEMA), tmp_path, tasks=3)
    disk.step([created(5, 8, "x")])
    disk.step([moved(2, 1, 2)])
    disk.step([created(1, 1, "a")])
    assert shown(disk) == {2: "a", 8: "x"}


def test_row_that_waits_over_two_keys_takes_its_value_from_the_first(tmp_path, rows_in_driver):
    disk = DiskPipeline(spec(SCHEMA), tmp_path, tasks=3)
    disk.step([moved(3, 2, 3)])
    disk.step([moved(2, 1, 2)])
    disk.step([created(1, 1, "a")])
    assert shown(disk) == {3: "a"}


def test_row_that_leaves_by_a_delete_is_found_by_a_create_of_a_later_step(tmp_path, rows_in_driver):
    disk = DiskPipeline(spec(SCHEMA), tmp_path, tasks=3)
    disk.step([created(1, 1, "a"), created(3, 9, "z")])
    disk.step([record(envelope("d", 5, before={"id": 1}), 5, new_key='{"id": 2}')])
    disk.step([record(envelope("c", 5, after={"id": 2, "body": UNSENT}), 6, old_key='{"id": 1}')])
    assert shown(disk) == {2: "a", 9: "z"}
    assert not disk.head.facts.state.pending_key_changes


def test_late_change_of_an_old_key_reaches_the_row_under_its_new_keys(tmp_path, rows_in_driver):
    disk = DiskPipeline(spec(SCHEMA), tmp_path, tasks=3)
    disk.step([created(10, 1, "old"), created(3, 9, "z")])
    disk.step([moved(30, 1, 2)])
    disk.step([moved(40, 2, 3)])
    disk.step([created(41, 8, "y")])
    disk.step([record(envelope("u", 12, after={"id": 1, "body": "new"}), 12)])
    assert shown(disk) == {3: "new", 8: "y", 9: "z"}


def test_keys_that_rows_left_are_decided_on_alone_where_a_step_is_not_about_those_rows(tmp_path, rows_in_driver):
    disk = DiskPipeline(spec(SCHEMA), tmp_path, tasks=3)
    disk.step([created(10, 1, "old")])
    disk.step([moved(30, 1, 2)])
    disk.step([created(50, 1, "another")])
    written = disk.plan.state.snapshot().rows(disk.plan.state.schema).to_pylist()
    assert {row["id"] for row in written if row["_step"] == 3 and row["_entry"] == "row"} == {1}
    assert shown(disk) == {1: "another", 2: "old"}


def test_record_that_an_earlier_step_has_read_is_not_applied_again(make):
    placed = {"format": {"type": "plain", "position": ["p", "o"]}, "order": "arrival"}
    pipeline = make(**placed)
    lines = [f'{{"p": 0, "o": {n}, "kind": "+I", "row": {{"id": 1, "n": {n}}}}}' for n in range(2)]
    pipeline.read(lines[0])
    [step] = pipeline.read(*lines)
    assert step.metrics["redelivered"] == 1
    assert step.metrics["updated"] == 1


def pipeline_head(pipeline):
    with pipeline.stepper() as stepper:
        return stepper.head


def test_by_sequence_no_offsets_are_kept(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    assert pipeline.plan.offsets_read(pipeline_head(pipeline)) is None


@pytest.mark.parametrize("shown", [1, 2])
def test_state_of_an_older_version_takes_in_rows_that_lose_ties(make, monkeypatch, shown):
    pipeline = make(schema="id BIGINT NOT NULL, n BIGINT, v BIGINT")
    with monkeypatch.context() as older:
        schema = pipeline.plan.state.schema
        older.setattr(StateTable, "schema", schema.remove(schema.get_field_index("_tied")))
        older.setattr(IndexCache, "indexed", lambda *_: None)
        pipeline.read(up(1, 1, v=0), up(2, 1, v=1))
    assert "_tied" not in pipeline.plan.state.snapshot().column_types
    pipeline.read(up(2, 1, v=2))
    assert "_tied" in pipeline.plan.state.snapshot().column_types
    pipeline.read(up(2, 1, "-U", v=3 - shown))
    sink = pipeline.table("sink", pipeline.spec.sink_table.columns)
    assert sorted(row["v"] for row in sink) == [0, shown]


def test_files_that_were_read_are_noted_with_the_step_that_read_them(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    pipeline.read(up(2, 2))
    state = pipeline.table("state", pipeline.plan.state.schema)
    assert sorted(row["_step"] for row in state if row["_entry"] == "file") == [1, 2]


def test_counts_that_are_not_0_stand_in_the_step_s_facts(make):
    pipeline = make()
    pipeline.read(up(1, 1), up(2, 2))
    pipeline.read(up(1, 0), up(2, 3))
    assert pipeline.last.decision.counts == {"changes": 2, "updated": 1, "superseded": 1}
