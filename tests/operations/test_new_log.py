"""A log that begins again, over runs: what was acknowledged holds for the records of all later steps."""

import json

import pytest
from local_run import SPARK
from support import envelope, spec

from ebbtide.errors import BackfillError, ConfigError
from ebbtide.operations._repair import repair


def record(lsn, ms, key, n):
    return json.dumps(envelope("u", lsn, after={"id": key, "n": n}, ts_ms=ms))


OLD = [record(900 + key, 10, key, 0) for key in (1, 2, 3)]
"""Changes of the first log."""


@pytest.fixture
def switched(make, monkeypatch):
    """A pipeline that has read the first log; and what acknowledges that another one began, without a look at the sink's rows."""
    pipeline = make(format={"type": "debezium"}, order={"sequence": ["_lsn"]})
    pipeline.read(*OLD)
    monkeypatch.setattr(repair, "is_kept", lambda _: False)
    return pipeline


def acknowledge(pipeline, event_ms=20):
    repair.acknowledge(SPARK, pipeline.spec, pipeline.root, "failover", event_ms)


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
    assert switched.table("sink", switched.plan.sink.columns) == [
        {name: row[name] for name in switched.plan.sink.columns.names} for row in rows
    ]
    switched.read(*OLD, record(7, 40, 3, 3))
    assert switched.rows() == {1: 1, 2: 2, 3: 3}


def test_backfill_that_does_not_know_of_the_switch_is_refused(switched):
    switched.read(record(5, 20, 1, 1))
    switched.do("backfill")
    acknowledge(switched)
    for work in ("backfill", "swap"):
        with pytest.raises(BackfillError, match="has changed since its backfill was begun"):
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


@pytest.mark.parametrize(
    "fields",
    [
        {"order": {"sequence": ["n"]}},
        {"order": "arrival"},
        {"order": {"sequence": ["source.commit_ts"]}},
        {"schema": "id BIGINT NOT NULL, at TIMESTAMP", "event_time": "at"},
    ],
)
def test_log_of_what_is_not_ordered_by_one_cannot_begin_again(fields, tmp_path):
    with pytest.raises(ConfigError, match="not ordered by a log that could begin again"):
        repair.acknowledge(SPARK, spec(**fields), str(tmp_path), "why", 5)
