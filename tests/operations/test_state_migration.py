"""Migration of states without Spark: what becomes of stored entries under another time to live, or of states that have changed."""

import pytest
from frame.interrupting import killed_before
from local.local_pipeline import up
from local.local_run import HOUR, START
from servers.store_support import line, stateful

from ebbtide.errors import MigrationError, SpecChangedError
from ebbtide.ledger import Cause

ONE_HOUR = "1h (ON_CREATE_AND_WRITE, PROCESSING_TIME)"


def planned(pipeline):
    return pipeline.act("migrate", "plan")


def to(pipeline, clock_ms, **fields):
    """Migrate to a spec with some other fields; returns the plan and what was done, which are of the same counts."""
    pipeline.spec = pipeline.with_fields(**fields)
    version = pipeline.versions()
    plan = planned(pipeline)
    assert plan.step is None
    assert pipeline.versions() == version, "a plan changes nothing"
    done = pipeline.do("migrate", clock_ms)
    assert done.as_dict() == {**plan.as_dict(), "step": pipeline.last.step}
    assert planned(pipeline).text() == "t: stored data fits the spec; nothing to migrate."
    counts = (
        f"t: {done['stamped']} entries stamped, {done['unstamped']} unstamped,"
        f" {done['revived']} expired ones brought back, {done['dropped']} dropped"
    ).replace(" 1 entries", " 1 entry")
    changes = "".join(f"  {change}\n" for change in done["changes"])
    assert plan.text().startswith(f"{counts}.\n{changes}")
    assert plan.text().endswith("\n  To do it: 'ebbtide migrate --apply'.")
    assert done.text().endswith(
        f"\n  Done in step {done.step}. To undo it before the next run: 'ebbtide migrate --undo'."
    )
    return done


def entries(pipeline):
    """Stamp by key of the live entries."""
    rows = pipeline.table("state", pipeline.plan.state.schema)
    rows = sorted((row for row in rows if row["_entry"] == "row"), key=lambda row: row["_step"])
    newest = {row["id"]: row for row in rows}
    return {id_: row["_stamp_ms"] for id_, row in newest.items() if not row["_removed"]}


@pytest.mark.demand("ttl-migration")
def test_ttl_switched_on_stamps_entries_with_the_time_of_the_migration(make):
    pipeline = make()
    pipeline.read(up(1, 1), up(2, 2, "-D"), clock_ms=START)
    done = to(pipeline, START + 5 * HOUR, ttl={"ttl": "1h", "expire_live": True})
    assert done["changes"] == [f"ttl none -> {ONE_HOUR}"]
    assert (done["stamped"], done["unstamped"], done["revived"], done["dropped"]) == (2, 0, 0, 0)
    assert entries(pipeline) == {1: START + 5 * HOUR, 2: START + 5 * HOUR}
    assert (pipeline.last.cause.what, pipeline.last.now_ms) == ("migration", START + 5 * HOUR)
    pipeline.run(START + 6 * HOUR - 1)
    assert entries(pipeline).keys() == {1, 2}
    pipeline.run(START + 6 * HOUR)
    assert entries(pipeline) == {}


def test_ttl_by_event_time_stamps_with_the_watermark_or_where_there_is_none_with_the_clock(make):
    schema = {
        "schema": "id BIGINT NOT NULL, n INT, at TIMESTAMP DEFAULT NULL",
        "event_time": "at",
        "allowed_delay": "0s",
    }
    ttl = {"ttl": "1h", "time_characteristic": "EVENT_TIME", "expire_live": True}
    pipeline = make(**schema)
    pipeline.read(up(1, 1), clock_ms=START)
    to(pipeline, START + HOUR, ttl=ttl)
    assert entries(pipeline) == {1: START + HOUR}
    to(pipeline, START + HOUR)
    pipeline.read(up(2, 2, at="1970-01-03T00:00:00Z"), clock_ms=START + HOUR)
    pipeline.read(up(3, 3, at="1970-01-03T00:00:00Z"), clock_ms=START + HOUR)
    assert pipeline.last.frontier.watermark_ms == 2 * 24 * HOUR
    to(pipeline, START + HOUR, ttl=ttl)
    assert set(entries(pipeline).values()) == {2 * 24 * HOUR}


@pytest.mark.parametrize(("stored", "wanted"), [(None, "1h"), ("1h", None), ("1h", "2h")])
@pytest.mark.demand("ttl-refused", "ttl-reinterpret")
def test_ttl_switched_on_off_or_changed_over_stored_state_is_refused_until_it_is_migrated(make, stored, wanted):
    pipeline = make(ttl=stored)
    pipeline.read(up(1, 1, "-D"), clock_ms=START)
    pipeline.fields["ttl"] = wanted
    pipeline.spec = pipeline.with_fields()
    with pytest.raises(SpecChangedError):
        pipeline.read(up(2, 2), clock_ms=START)
    pipeline.do("migrate", START)
    pipeline.read(up(3, 3), clock_ms=START)
    assert pipeline.rows() == {2: 2, 3: 3}


@pytest.mark.demand("ttl-migration")
def test_ttl_switched_off_takes_stamps_and_what_has_expired_and_is_stored_comes_back(make):
    pipeline = make(ttl="1h")
    pipeline.read(up(1, 1), up(2, 2, "-D"), clock_ms=START)
    with pipeline.stepper() as stepper:
        stepper.commit(stepper.facts(Cause(what="cleanup"), stepper.next_clock(START + HOUR)), [])
    pipeline.fields["ttl"] = None
    done = to(pipeline, START + HOUR)
    assert done["changes"] == [f"ttl {ONE_HOUR} -> none"]
    assert (done["stamped"], done["unstamped"], done["revived"], done["dropped"]) == (0, 2, 1, 0), (
        "a live row does not expire"
    )
    pipeline.read(up(2, 1), clock_ms=START + 9 * HOUR)
    assert pipeline.rows() == {1: 1}, "the delete is known again"


@pytest.mark.demand("ttl-reinterpret")
def test_longer_ttl_keeps_stamps_and_brings_back_and_a_shorter_one_does_neither(make):
    pipeline = make(ttl={"ttl": "1h"})
    pipeline.read(up(1, 1, "-D"), clock_ms=START)
    with pipeline.stepper() as stepper:
        stepper.commit(stepper.facts(Cause(what="cleanup"), stepper.next_clock(START + HOUR)), [])
    done = to(pipeline, START + HOUR, ttl={"ttl": "2h"})
    assert (done["stamped"], done["unstamped"], done["revived"], done["dropped"]) == (0, 0, 1, 0)
    assert done["changes"] == [f"ttl {ONE_HOUR} -> 2h (ON_CREATE_AND_WRITE, PROCESSING_TIME)"]
    assert entries(pipeline) == {1: START}
    done = to(pipeline, START + HOUR, ttl={"ttl": "1h"})
    assert (done["stamped"], done["unstamped"], done["revived"], done["dropped"]) == (0, 0, 0, 0)


def totals(pipeline):
    """Stamps by state of a function's entries."""
    rows = pipeline.table("state", pipeline.plan.state.schema)
    found = {}
    for row in rows:
        if row["_entry"] == "state" or row.get("_state"):
            found.setdefault(row["_state"], set()).add(row["_stamp_ms"])
    return found


@pytest.mark.demand("ttl-config")
def test_each_state_of_a_function_has_its_own_ttl(make):
    pipeline = make(function="victims:Totals", ttl={"total": "2h"})
    pipeline.read(up(1, 1, "+I"), up(2, 2, "+I"), clock_ms=START)
    before = totals(pipeline)
    assert before["total"] == {START}
    assert before["seen"] == {None}
    done = to(pipeline, START + HOUR, ttl={"seen": "1h"})
    assert done["changes"] == [
        f"state seen: ttl none -> {ONE_HOUR}",
        "state total: ttl 2h (ON_CREATE_AND_WRITE, PROCESSING_TIME) -> none",
    ]
    assert (done["stamped"], done["unstamped"], done["revived"], done["dropped"]) == (2, 2, 0, 0)
    after = totals(pipeline)
    assert (after["seen"], after["total"]) == ({START + HOUR}, {None})
    pipeline.run(START + 2 * HOUR)
    pipeline.read(up(1, 5, "+I"), clock_ms=START + 2 * HOUR)
    rows = pipeline.table("sink", pipeline.spec.sink_table.columns)
    assert [(row["total"], row["seen"]) for row in rows if row["id"] == 1] == [(6, [5])]


def test_state_whose_ttl_stays_keeps_its_stamps(make):
    pipeline = make(function="victims:Totals", ttl={"total": "2h"})
    pipeline.read(up(1, 1, "+I"), clock_ms=START)
    done = to(pipeline, START + HOUR, ttl={"total": "2h", "seen": "1h"})
    assert (done["stamped"], done["unstamped"]) == (1, 0)
    assert totals(pipeline) == {"total": {START}, "seen": {START + HOUR}}


def of_function(pipeline, function, **fields):
    """The same pipeline with another function."""
    pipeline.spec = stateful(f"user_functions:{function}", source=pipeline.spec.source.model_dump(), **fields)


def test_states_are_added_dropped_and_widened(make):
    pipeline = make()
    of_function(pipeline, "Narrow")
    pipeline.read(line(1, v="a", seq=5), clock_ms=START)
    of_function(pipeline, "Other")
    with pytest.raises(MigrationError) as raised:
        planned(pipeline)
    assert "State 'kept' of 't' cannot be migrated. Got: " in str(raised.value)
    assert str(raised.value).endswith(
        "Allowed: the same kind and key type; wider numbers, more fields in structs."
        " Declare it under another name, or run 'ebbtide refresh'."
    )
    of_function(pipeline, "Wide")
    done = pipeline.do("migrate", START)
    assert done["changes"][:2] == ["state new: added", "state old: removed"]
    assert done["changes"][2].startswith("state kept: struct<a: int32")
    assert (done["stamped"], done["unstamped"], done["revived"], done["dropped"]) == (0, 0, 0, 1)
    assert totals(pipeline).keys() == {"kept"}
    pipeline.read(line(1, v="b", seq=6), clock_ms=START)
    [row] = pipeline.table("sink", pipeline.spec.sink_table.columns)
    assert row["shown"] == "{'a': 5, 'm': [{'x': 1, 'y': None}], 'b': None}"


def test_other_function_options_and_kinds_are_refused_until_a_migration_takes_them_for_what_comes(make):
    pipeline = make()
    of_function(pipeline, "Counts", options={"by": 10})
    pipeline.read(line(1, seq=5), clock_ms=START)
    stored = pipeline.last.state.spec
    of_function(pipeline, "CountsToo", kinds=["+U"])
    with pytest.raises(
        SpecChangedError, match=r"function: user_functions:CountsToo; options: \{\}; kinds: .*'ebbtide migrate'"
    ):
        pipeline.read(line(1, seq=6), line(1, "+U", seq=7), clock_ms=START)
    done = pipeline.do("migrate", START)
    stays = "for later changes; state and sink do not change"
    assert done["changes"] == [
        f"function user_functions:Counts -> user_functions:CountsToo, {stays}",
        f"options {{'by': 10}} -> {{}}, {stays}",
        f"kinds ['+I', '+U', '-D', '-U'] -> ['+U'], {stays}",
    ]
    pipeline.act("migrate", "undo")
    assert pipeline.last.state.spec == stored
    pipeline.do("migrate", START)
    assert planned(pipeline)["changes"] == []
    pipeline.run(START)
    [row] = pipeline.table("sink", pipeline.spec.sink_table.columns)
    assert row["n"] == 11, "the insert is skipped, the update counts as one"


def test_option_that_is_named_like_a_credential_may_change_and_is_stored_nowhere():
    one, other = (stateful("user_functions:Counts", options={"token": token}) for token in ("first", "second"))
    assert one.identity == other.identity
    assert "first" not in str(one.identity)


def test_state_of_another_kind_is_refused(make):
    pipeline = make()
    of_function(pipeline, "Narrow")
    pipeline.read(line(1, v="a", seq=5), clock_ms=START)
    of_function(pipeline, "Listed")
    with pytest.raises(
        MigrationError, match=r"State 'kept' of 't' cannot be migrated\. Got: \['ValueState', .* -> \['ListState', "
    ):
        planned(pipeline)


def test_time_to_live_of_a_put_stays_where_the_state_keeps_one(make):
    pipeline = make()
    of_function(pipeline, "ShortLived", ttl={"one": "9h", "other": "9h"})
    pipeline.read(line(1, seq=5), clock_ms=START)
    of_function(pipeline, "ShortLived", ttl={"one": "9h"})
    assert pipeline.do("migrate", START)["unstamped"] == 1
    rows = pipeline.table("state", pipeline.plan.state.schema)
    assert {row["_state"]: row["_ttl_ms"] for row in rows if row["_state"]} == {"one": 500, "other": None}
    pipeline.read(line(1, seq=6), clock_ms=START)  # a second later
    [row] = pipeline.table("sink", pipeline.spec.sink_table.columns)
    assert row["shown"] == "None, 5"


def test_state_that_a_refresh_has_just_emptied_is_migrated(make):
    pipeline = make()
    pipeline.read(up(1, 1), clock_ms=START)
    with killed_before("a source is looked at"):
        pipeline.do("refresh", START)
    assert pipeline.plan.state.snapshot().files == {}
    done = to(pipeline, START, ttl="1h")
    assert (done["stamped"], done["unstamped"], done["revived"], done["dropped"]) == (0, 0, 0, 0)
    pipeline.run(START)
    assert entries(pipeline) == {1: pipeline.last.now_ms}
