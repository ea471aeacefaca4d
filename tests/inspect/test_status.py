"""Where a pipeline stands, by its tables' logs."""

import json
import os
import shutil
import socket
from dataclasses import asdict

import pytest
from frame.limits import set_limits
from local.local_pipeline import LATER, up

from ebbtide.delta import Snapshot
from ebbtide.errors import TableMismatchError
from ebbtide.inspect import status
from ebbtide.ledger import Holder, LastVerdict, Lease, Ledger, LedgerFacts
from ebbtide.ledger._turns import commit_turn, newest_turn
from ebbtide.users import user_name


def test_sink_is_told_with_its_version_and_its_rows(make):
    pipeline = make()
    pipeline.read(up(1, 1), up(2, 2))
    pipeline.read(up(1, 3, "-D", colour="red"))
    found = status(pipeline.spec, pipeline.root)
    assert (found.last.step, found.read.records, found.sink.rows) == (2, 3, 1)
    assert "columns not in the schema: colour" in found.text()
    assert (found.sink.version, found.state.version) == (pipeline.versions()["sink"], pipeline.versions()["state"])
    assert f"version {found.sink.version}, 1 row, changed last by step 2" in found.text()


def test_sink_that_is_gone_has_neither(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    shutil.rmtree(pipeline.home / "sink")
    found = status(pipeline.spec, pipeline.root)
    assert (found.sink.version, found.sink.rows) == (None, None)
    assert f"  the next run is refused: The table at '{pipeline.home}/sink' is gone." in found.text()
    assert "Run 'ebbtide repair'" in found.misfit


@pytest.mark.parametrize("lost", ["state", "ledger", "sink"])
def test_table_that_was_deleted_is_named_as_the_next_run_names_it(make, lost):
    pipeline = make()
    pipeline.read(up(1, 1))
    shutil.rmtree(pipeline.home / lost)
    found = status(pipeline.spec, pipeline.root)
    with pytest.raises(TableMismatchError) as refused:
        pipeline.run()
    assert found.misfit == str(refused.value)
    assert found.misfit in found.text()
    assert "no step yet" not in found.text()


def test_tables_that_fit_have_no_misfit(make):
    pipeline = make()
    assert status(pipeline.spec, pipeline.root).text() == "t: no step yet. Run 'ebbtide run'."
    pipeline.read(up(1, 1))
    found = status(pipeline.spec, pipeline.root)
    assert (found.misfit, found.lease.holder, found.foreign_writes) == (None, None, ())
    found = status(pipeline.spec, pipeline.root, clock_ms=LATER)
    assert len(found.text().splitlines()) == 2


def test_holder_of_the_lease_is_named_while_it_lives(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    with Lease(pipeline.plan.at("ledger"), "t", 60) as lease:
        found = status(pipeline.spec, pipeline.root)
        assert (found.lease.holder.host, found.lease.holder.process) == (socket.gethostname(), str(os.getpid()))
        assert (found.lease.holder.user, found.lease.holder.since_ms) == (user_name(), lease.facts.taken_ms)
        line = f"  held by process {os.getpid()} of {user_name()} on '{socket.gethostname()}' since "
        assert line in found.text()
    assert status(pipeline.spec, pipeline.root).lease.holder is None


def test_holder_that_took_the_lease_by_an_earlier_release_has_neither_user_nor_time(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    ledger = pipeline.plan.at("ledger")
    version, newest = newest_turn(ledger)
    turn = {"pipeline": "t", "incarnation": newest.incarnation, "epoch": newest.epoch + 1, "heartbeat": 0}
    commit_turn(ledger, version + 1, LedgerFacts(**turn, holder="elsewhere@0-1:7:1/x"))
    assert "  held by process 7 on 'elsewhere'\n" in status(pipeline.spec, pipeline.root).text()
    assert Holder.of(LedgerFacts(**turn, holder="")) is None


def test_foreign_write_is_said_with_what_to_do(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    pipeline.do("spoil")
    found = status(pipeline.spec, pipeline.root)
    [write] = found.foreign_writes
    assert (write.table, write.version, write.is_own) == ("sink", pipeline.versions()["sink"], False)
    assert f"  1 commit of other clients changed rows: sink version {write.version} (" in found.text()
    assert "'ebbtide repair'" in found.text()
    assert "'ebbtide acknowledge'" in found.text()
    printed = json.loads(json.dumps(found.as_dict(), default=str))
    assert printed["foreign_writes"] == [write.as_dict()]


def test_pipeline_whose_records_were_all_bad_is_said_with_the_first_reason(make):
    pipeline = make()
    pipeline.read("{}")
    found = status(pipeline.spec, pipeline.root)
    assert found.all_bad.startswith(
        "All records that 't' has read were bad: 1 record in quarantine, and no row in the sink. Got: "
    )
    assert found.all_bad in found.text()
    pipeline.read(up(1, 1))
    assert status(pipeline.spec, pipeline.root).all_bad is None


def test_records_of_all_steps_are_summed_up_though_few_steps_are_looked_at(make):
    pipeline = make()
    for number in range(4):
        pipeline.read(up(number, number), "{")
    set_limits(steps_looked_back=1)
    found = status(pipeline.spec, pipeline.root)
    assert (found.read.records, found.read.quarantined) == (8, 4)


def test_json_has_all_in_one_level(make):
    pipeline = make()
    pipeline.read(up(1, 1), up(2, 2), "bad")
    pipeline.do("spoil")
    ledger = pipeline.plan.at("ledger")
    Ledger(ledger, "t").pause("ann", "longer", 2000, 60)
    LastVerdict(check="expiry", outcome="failed", broken=2, at_ms=1000).note(str(pipeline.home), {"expiry"})
    with Lease(ledger, "t", 60) as lease:
        found = status(pipeline.spec, pipeline.root)
        holder = asdict(Holder.of(lease.facts))
    state, sink = (pipeline.plan.at(name) for name in ("state", "sink"))
    versions = pipeline.versions()
    printed = json.loads(json.dumps(found.as_dict(), default=str))
    [write] = printed.pop("foreign_writes")
    waiting = json.loads(json.dumps(found.next_run.waiting.as_dict()))
    assert waiting["files"] == 0
    assert write["version"] == versions["sink"]
    assert list(printed.items()) == [
        ("pipeline", "t"),
        ("root", str(pipeline.home)),
        ("step", 1),
        ("kind", "batch"),
        ("sink_step", 1),
        ("now", "1970-02-11 16:00:00+00:00"),
        ("clock_ahead_ms", 0),
        ("clock_held_ms", 0),
        ("watermark", None),
        ("newest_event", None),
        ("records", 3),
        ("last_read", "1970-02-11 16:00:00+00:00"),
        ("quarantined", 1),
        ("in_quarantine", 1),
        ("other_tables", 0),
        ("ignored_columns", []),
        ("evolved", {}),
        ("sink_type", "delta"),
        ("sink_version", versions["sink"]),
        ("state_version", versions["state"]),
        ("sink_rows", Snapshot.read(sink).live_rows),
        ("sink_bytes", data_bytes(sink)),
        ("state_rows", Snapshot.read(state).live_rows),
        ("state_bytes", data_bytes(state)),
        ("outputs", {}),
        ("paused_by", "ann"),
        ("paused_since", "1970-01-01 00:00:02+00:00"),
        ("pause_reason", "longer"),
        ("held_by", holder),
        ("lease_epoch", 2),
        ("checks", [{"check": "expiry", "outcome": "failed", "broken": 2, "at_ms": 1000}]),
        ("level", "paused"),
        ("misfit", None),
        ("unavailable", None),
        ("waiting", waiting),
        ("all_bad", None),
        ("free_bytes", found.free_bytes),
        ("late", []),
        ("last_run", found.last_run.as_dict()),
    ]


def data_bytes(table):
    return sum(file.size for file in Snapshot.read(table).files.values())
