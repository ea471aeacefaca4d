"""A log that begins again, over runs: what was acknowledged holds for the records of all later steps."""

import json

import pytest
from local.local_run import time_text
from local.support import envelope, spec

from ebbtide.errors import BackfillError, ConfigError, SourceLogError
from ebbtide.runtime import SinkHistory


def record(lsn, ms, key, n):
    return json.dumps(envelope("u", lsn, after={"id": key, "n": n}, ts_ms=ms))


OLD = [record(900 + key, 10, key, 0) for key in (1, 2, 3)]
"""Changes of the first log."""


@pytest.fixture(autouse=True)
def _without_a_look_at_rows(monkeypatch):
    """Have acknowledgements compare no rows: that is done by Spark."""
    monkeypatch.setattr(SinkHistory, "is_kept", False)


@pytest.fixture
def switched(make):
    """A pipeline that has read the first log."""
    pipeline = make(format={"type": "debezium"}, order={"sequence": ["_lsn"]})
    pipeline.read(*OLD)
    return pipeline


def acknowledge(pipeline, event_ms=20):
    pipeline.act("acknowledge", reason="failover", new_log=time_text(event_ms))


def test_changes_after_an_acknowledged_switch_win_in_every_later_step(switched):
    acknowledge(switched)
    switched.read(record(5, 20, 1, 1))
    switched.read(*OLD, record(6, 30, 2, 2))
    assert switched.rows() == {1: 1, 2: 2, 3: 0}


def test_backfill_and_refresh_give_the_rows_of_a_pipeline_whose_log_began_again(switched):
    acknowledge(switched)
    switched.read(record(5, 20, 1, 1))
    switched.read(record(6, 30, 2, 2))
    rows = switched.table("sink", switched.plan.sink.schema)
    switched.do("backfill")
    report = switched.do("swap")
    assert (report["added"], report["changed"], report["deleted"]) == (0, 0, 0)
    assert switched.last.frontier.log_begins == (20,)
    switched.do("refresh")
    refreshed = switched.table("sink", switched.plan.sink.columns)
    expected = [{name: row[name] for name in switched.plan.sink.columns.names} for row in rows]
    assert sorted(refreshed, key=by_id) == sorted(expected, key=by_id)
    switched.read(*OLD, record(7, 40, 3, 3))
    assert switched.rows() == {1: 1, 2: 2, 3: 3}


def test_backfill_that_does_not_know_of_the_switch_is_refused(switched):
    switched.read(record(5, 20, 1, 1))
    switched.do("backfill")
    acknowledge(switched)
    for work in ("backfill", "swap"):
        with pytest.raises(BackfillError, match="have changed since its backfill was begun"):
            switched.do(work)


def test_rewind_to_before_the_acknowledgement_takes_it_back(switched):
    acknowledge(switched)
    switched.do("rewind")
    assert switched.last.frontier.log_begins == ()
    switched.do("refresh")
    assert switched.last.frontier.log_begins == ()


def test_refresh_in_another_order_forgets_the_switch(switched):
    acknowledge(switched)
    switched.spec = switched.with_fields(order={"sequence": ["n"]})
    switched.do("refresh")
    assert switched.last.frontier.log_begins == ()


def by_id(row):
    return row["id"]


def binlog_record(file, position, second, key, n, *, server=1, connector="shop"):
    """A change of MySQL, whose times are whole seconds."""
    event = envelope("u", None, after={"id": key, "n": n}, ts_ms=second * 1_000)
    event["source"] |= {"name": connector, "file": file, "pos": position, "row": 0, "server_id": server}
    return json.dumps(event)


@pytest.fixture
def of_mysql(make):
    """A pipeline that has read a change of MySQL."""
    pipeline = make(format={"type": "debezium"}, order={"sequence": ["_file", "_pos", "_row"]})
    pipeline.read(binlog_record("mysql-bin.000120", 400, 10, 1, 0))
    return pipeline


@pytest.mark.parametrize(
    "switched",
    [
        {"file": "binlog.000003", "server": 2},
        {"file": "binlog.000900", "server": 1},
        {"file": "mysql-bin.000003", "server": 2},
    ],
)
def test_step_of_another_log_is_refused_until_its_first_time_is_acknowledged(of_mysql, switched):
    file, server = switched["file"], switched["server"]
    # Keys that are new lose to no row: nothing else would show the switch.
    new_rows = [binlog_record(file, place, 20, place, 1, server=server) for place in (900, 901)]
    of_mysql.put(*new_rows)
    for _ in range(2):
        with pytest.raises(SourceLogError, match=r"of another log .*--new-log 1970-01-01T00:00:20Z'"):
            of_mysql.run()
    assert of_mysql.last.step == 1
    acknowledge(of_mysql, 20_000)
    of_mysql.run()
    of_mysql.read(binlog_record(file, 902, 30, 1, 7, server=server), binlog_record("mysql-bin.000120", 400, 10, 1, 0))
    assert of_mysql.rows() == {1: 7, 900: 1, 901: 1}
    of_mysql.do("refresh")
    assert of_mysql.rows() == {1: 7, 900: 1, 901: 1}


def test_servers_of_a_ring_and_connectors_of_other_servers_go_on(of_mysql):
    of_mysql.read(binlog_record("mysql-bin.000121", 4, 20, 2, 1, server=2))
    of_mysql.read(binlog_record("mysql-bin.000120", 300, 9, 3, 1, server=3))
    of_mysql.read(
        binlog_record("mysql-bin.000121", 9, 30, 1, 2), binlog_record("mysql-bin.000122", 4, 30, 2, 2, server=2)
    )
    of_mysql.read(binlog_record("other.000001", 4, 40, 5, 1, connector="users"))
    assert of_mysql.rows() == {1: 2, 2: 2, 3: 1, 5: 1}
    [shop, users] = of_mysql.last.frontier.logs
    assert (shop.bases, shop.servers, shop.highest) == (("mysql-bin",), ("1", "2", "3"), (122, 4))
    assert (users.connector, users.bases) == ("users", ("other",))


def test_record_of_another_log_is_not_replayed_from_the_quarantine(of_mysql):
    of_mysql.read(json.dumps({"op": "u"}))
    with pytest.raises(SourceLogError):
        of_mysql.do("replay", mended=[binlog_record("binlog.000003", 1, 20, 2, 1)])
    of_mysql.do("replay", mended=[binlog_record("mysql-bin.000121", 1, 20, 2, 1)])
    assert of_mysql.rows() == {1: 0, 2: 1}


@pytest.mark.parametrize(
    "fields",
    [
        {"order": {"sequence": ["n"]}},
        {"order": "arrival"},
        {"order": {"sequence": ["source.commit_ts"]}},
        {"schema": "id BIGINT NOT NULL, at TIMESTAMP", "event_time": "at"},
    ],
)
def test_log_of_what_is_not_ordered_by_one_cannot_begin_again(fields, make):
    pipeline = make()
    pipeline.spec = spec(**fields)
    with pytest.raises(ConfigError, match="not ordered by a log that could begin again"):
        acknowledge(pipeline)
