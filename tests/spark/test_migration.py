"""Stored state under another TTL: refused, planned, migrated, undone; and read as rows."""

import json

import pytest
from clusters.spark_support import LOCAL, change, plain_spec, sink, write
from servers.store_support import line, stateful

from ebbtide import run
from ebbtide.errors import ConfigError, MigrationError, QuarantineThresholdError, SpecChangedError
from ebbtide.inspect import create_view, state
from ebbtide.operations import maintain
from ebbtide.operations._migration import migrate as migration
from ebbtide.operations._migration.undo import undo as undo_migration
from ebbtide.runtime import Plan
from ebbtide.spec._parts import QuarantineConfig

DAY = 86_400_000
NOW = 20_000 * DAY


def at(ms):
    return lambda: ms


def counting(source, **more):
    fields = {"ttl": {"recent": None}, **more}
    return stateful(
        "user_functions:Everything", source={"path": str(source), "records": "value", "max_files_per_step": 1}, **fields
    )


def stamps(spark, root, spec, name):
    rows = state(spark, spec, str(root), state=name).collect()
    return {row["accessed"] and int(row["accessed"].timestamp() * 1000) for row in rows}


@pytest.mark.grid  # without Spark: tests/operations/test_state_migration.py and test_migration.py
def test_ttl_switched_on_changed_off_and_back(spark, tmp_path):
    root = str(tmp_path)
    source = write(tmp_path / "in", [line(1, v="a", seq=5, day="2026-01-01"), line(2, v="b", seq=6, day="2026-01-01")])
    without = counting(source)
    first = run(LOCAL, without, root)
    assert migration.plan(spark, without, root)["changes"] == []
    assert stamps(spark, tmp_path, without, "recent") == {None}

    with_ttl = counting(source, ttl={"recent": "1d"})
    with pytest.raises(SpecChangedError, match="run 'ebbtide migrate' to see what it would do"):
        run(LOCAL, with_ttl, root)
    planned = migration.plan(spark, with_ttl, root)
    assert (planned["stamped"], planned["unstamped"], planned["revived"], planned.step) == (2, 0, 0, None)
    assert planned["changes"] == ["state recent: ttl none -> 1d (ON_CREATE_AND_WRITE, PROCESSING_TIME)"]
    now = first.steps[-1].clock.now_ms + 1000
    done = migration.apply(spark, with_ttl, root, now)
    assert (done["stamped"], done.step) == (2, 2)
    assert stamps(spark, tmp_path, with_ttl, "recent") == {now}, "stamped with the time of the migration"
    assert migration.plan(spark, with_ttl, root)["changes"] == []
    write(source, [line(1, v="a", seq=7, day="2026-01-01")], first=1)
    run(LOCAL, with_ttl, root, clock=at(now))
    assert sink(spark, tmp_path, with_ttl)[0]["recent"] == [5, 7]

    off = migration.apply(spark, without, root, now)
    assert (off["unstamped"], off["stamped"]) == (3, 0)
    assert stamps(spark, tmp_path, without, "recent") == {None}
    undone = undo_migration(spark, without, root)
    assert undone["changes"] == ["the tables are as before the migration"]
    assert None not in stamps(spark, tmp_path, with_ttl, "recent")
    run(LOCAL, with_ttl, root, clock=at(now + 3 * DAY))
    with pytest.raises(MigrationError, match="no migration of 't' to undo"):
        undo_migration(spark, with_ttl, root)


@pytest.mark.grid
def test_longer_ttl_brings_back_what_is_still_stored(spark, tmp_path):
    root = str(tmp_path)
    source = write(tmp_path / "in", [change("+I", 1, "a", 1)], [change("-D", 1, "a", 2)])
    short = plain_spec(source, order={"sequence": ["seq"]}, ttl="1d")
    now = run(LOCAL, short, root).steps[-1].clock.now_ms
    write(source, [change("+I", 2, "b", 3)], first=2)
    longer = plain_spec(source, order={"sequence": ["seq"]}, ttl="9d")
    assert migration.plan(spark, longer, root)["changes"] == [
        "ttl 1d (ON_CREATE_AND_WRITE, PROCESSING_TIME) -> 9d (ON_CREATE_AND_WRITE, PROCESSING_TIME)"
    ]
    migration.apply(spark, longer, root, now)
    assert [step.kind for step in run(LOCAL, longer, root, clock=at(now + 2 * DAY)).steps] == ["batch"], (
        "nothing due yet"
    )
    rows = state(spark, longer, root, now_ms=now + 10 * DAY).orderBy("id").collect()
    assert [(row["id"], row["tombstone"], row["live"]) for row in rows] == [(1, True, False), (2, False, True)]
    none = plain_spec(source, order={"sequence": ["seq"]})
    plan = migration.plan(spark, none, root)
    assert (plan["unstamped"], plan["revived"]) == (2, 0)
    with pytest.raises(MigrationError, match="Allowed: a change of columns, ttl"):
        migration.plan(spark, plain_spec(source), root)


@pytest.mark.grid
def test_state_is_read_as_rows_as_of_a_step_and_as_a_view(spark, tmp_path):
    root = str(tmp_path)
    parts = [[line(1, v="a", seq=5, day="2026-01-01")], [line(1, v="b", seq=6, day="2026-01-02")]]
    spec = counting(write(tmp_path / "in", *parts), ttl={"recent": "1d"})
    last = run(LOCAL, spec, root).steps[-1].clock.now_ms
    [row] = state(spark, spec, root, state="profile").collect()
    assert (row["id"], row["state"], row["value"]["tags"], row["live"], row["expires"]) == (
        1,
        "profile",
        ["a", "b"],
        True,
        None,
    )
    assert [r["value"] for r in state(spark, spec, root, state="recent").orderBy("position").collect()] == [5, 6]
    assert {r["live"] for r in state(spark, spec, root, state="recent", now_ms=last + DAY).collect()} == {False}
    assert state(spark, spec, root, as_of_step=1).where("map_key = 'b'").count() == 0
    name = create_view(spark, spec, root)
    rows = spark.sql(f"SELECT state, map_key, value FROM {name} WHERE map_key IS NOT NULL ORDER BY map_key").collect()
    assert [(r["state"], r["map_key"], json.loads(r["value"])) for r in rows] == [
        ("per_word", "a", 1),
        ("per_word", "b", 1),
    ]
    with pytest.raises(ConfigError, match=r"Got: nope\. Allowed: profile, recent, per_word"):
        state(spark, spec, root, state="nope")
    with pytest.raises(ConfigError, match=r"Got: 9\. Allowed: 1 to 2"):
        state(spark, spec, root, as_of_step=9)


@pytest.mark.grid
def test_downtime_ages_nothing(spark, tmp_path):
    root = str(tmp_path)
    source = write(tmp_path / "in", [line(1, v="a")])
    spec = stateful(
        "ebbtide.functions:Deduplicate",
        source={"path": str(source), "records": "value", "max_files_per_step": 1},
        ttl={"first": {"ttl": "1d", "update_type": "ON_CREATE"}},
        downtime_over="1h",
    )
    now = run(LOCAL, spec, root).steps[-1].clock.now_ms
    maintain(spark, spec, root, "cleanup")
    write(source, ["{", line(2, v="b")], first=1)
    with pytest.raises(QuarantineThresholdError):
        run(LOCAL, spec.model_copy(update={"quarantine": QuarantineConfig(max_rows_per_step=0)}), root)
    batch, tick = run(LOCAL, spec, root, clock=at(now + 5 * DAY)).steps
    assert batch.kind == "batch"
    assert (tick.kind, tick.metrics) == ("tick", {}), "five days down: nothing has aged, the downtime is written down"
    facts = Plan.under(root, spec).state.last()[1]
    assert abs(facts.frontier.clock.downtime_ms - 5 * DAY) < DAY
    assert facts.now_ms - now < DAY
    counted = spec.model_copy(update={"downtime_over": None})
    assert run(LOCAL, counted, root, clock=at(now + 12 * DAY)).totals["expired"] == 2


@pytest.mark.grid
def test_states_are_added_dropped_and_widened_by_a_migration_only(spark, tmp_path):
    root = str(tmp_path)
    source = write(tmp_path / "in", [line(1, v="a", seq=5)])
    of = {"source": {"path": str(source), "records": "value"}}
    run(LOCAL, stateful("user_functions:Narrow", **of), root)
    wide = stateful("user_functions:Wide", **of)
    with pytest.raises(SpecChangedError, match="ebbtide migrate"):
        run(LOCAL, wide, root)
    plan = migration.plan(spark, wide, root)
    assert plan["changes"][:2] == ["state new: added", "state old: removed"]
    assert plan["changes"][2].startswith("state kept: struct<a: int32")
    assert plan["dropped"] == 1
    with pytest.raises(MigrationError, match="State 'kept' of 't' cannot be migrated"):
        migration.plan(spark, stateful("user_functions:Other", **of), root)
    migration.apply(spark, wide, root, 0)
    write(source, [line(1, v="b", seq=6)], first=1)
    run(LOCAL, wide, root)
    assert sink(spark, tmp_path, wide)[0]["shown"] == "{'a': 5, 'm': [{'x': 1, 'y': None}], 'b': None}"
    assert [row["value"]["a"] for row in state(spark, wide, root, state="kept").collect()] == [2**40]
