"""A log that begins again, over runs: what was acknowledged holds for the records of all later steps."""

import json

import pytest
from local_run import SPARK, START
from support import envelope, spec

from ebbtide.delta.snapshot import Snapshot
from ebbtide.delta.table import read_rows
from ebbtide.errors import ConfigError
from ebbtide.ledger.facts import Cause
from ebbtide.operations.repair import repair
from ebbtide.operations.stepping import stepping
from ebbtide.runtime import driver
from ebbtide.runtime.plan import Plan


def record(lsn, ms, key, n):
    return json.dumps(envelope("u", lsn, after={"id": key, "n": n}, ts_ms=ms)) + "\n"


def test_changes_after_an_acknowledged_switch_win_in_every_later_step(tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    of = spec(source={"path": str(source), "records": "value"})
    root = str(tmp_path / "root")

    def run(name, *records):
        (source / name).write_text("".join(records))
        return driver.run(SPARK, of, root, clock=lambda: START)

    def shown():
        sink = Plan.under(root, of).sink.path
        return {row["id"]: row["n"] for row in read_rows(Snapshot.read(sink), of.sink_table.columns).to_pylist()}

    old = [record(900 + key, 10, key, 0) for key in (1, 2, 3)]
    run("a.jsonl", *old)
    with stepping(SPARK, Plan.under(root, of)) as stepper:
        facts = stepper.facts(Cause(what="acknowledge", why="a switch"))
        begun = facts.frontier.with_log_begun(20)
        stepper.commit(facts.model_copy(update={"frontier": begun}), [])
    run("b.jsonl", record(5, 20, 1, 1))
    run("c.jsonl", *old, record(6, 30, 2, 2))
    assert shown() == {1: 1, 2: 2, 3: 0}


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
