"""Undoing a migration, without Spark: all tables are as before it, or it is refused with the way out."""

import contextlib
from pathlib import Path

import pytest
from frame.interrupting import killed_before
from local.local_pipeline import up
from local.local_run import HOUR, START, change_state, spoil

from ebbtide.delta import Snapshot
from ebbtide.errors import LeaseHeldError, MigrationError, TableMismatchError
from ebbtide.ledger import Lease

BACK = "Change the spec back and migrate again: removed stamps and values do not come back."
WIDER = {"schema": "id BIGINT NOT NULL, n BIGINT"}
RENAMED = {"schema": "id BIGINT NOT NULL, amount INT", "columns": {"amount": {"renamed_from": "n"}}, "order": "arrival"}


def undo(pipeline):
    return pipeline.act("migrate", "undo")


def contents(pipeline, *names):
    """Files of tables, and the columns that they say they have."""
    found = {}
    for name in names:
        snapshot = Snapshot.read(pipeline.plan.at(name))
        found[name] = (snapshot.files.keys(), snapshot.metadata["schemaString"])
    return found


def migrated(pipeline, **fields):
    pipeline.spec = pipeline.with_fields(**fields)
    return pipeline.do("migrate", START)


def test_tables_are_as_before_a_migration_that_is_undone_and_runs_go_on(make):
    pipeline = make(order="arrival", materializer={"emission": "every"})
    pipeline.read(up(1, 1, "+I"), up(2, 2, "+I"), clock_ms=START)
    before, spec = contents(pipeline, "state", "sink", "changelog"), pipeline.spec
    assert migrated(pipeline, **RENAMED).step == 2
    assert all(contents(pipeline, name)[name] != before[name] for name in before)
    undone = undo(pipeline)
    assert (undone["changes"], undone.step) == (["the tables are as before the migration"], 3)
    assert contents(pipeline, "state", "sink", "changelog") == before
    assert (pipeline.last.cause.what, pipeline.last.state.spec) == ("migration", spec.identity)
    pipeline.spec = spec
    assert pipeline.act("migrate", "plan")["changes"] == []
    pipeline.read(up(1, 1, "-D"), clock_ms=START)
    assert pipeline.rows() == {2: 2}


def test_ttl_alone_is_undone_in_the_state_alone(make):
    pipeline = make()
    pipeline.read(up(1, 1), clock_ms=START)
    before, sink, spec = contents(pipeline, "state"), pipeline.versions()["sink"], pipeline.spec
    migrated(pipeline, ttl={"ttl": "1h", "expire_live": True})
    undo(pipeline)
    assert contents(pipeline, "state") == before
    assert pipeline.versions()["sink"] == sink
    pipeline.spec = spec
    pipeline.run(START + 9 * HOUR)
    assert pipeline.rows() == {1: 1}


def test_columns_that_were_taken_in_are_so_again(make):
    pipeline = make(schema_evolution_mode="evolve")
    pipeline.read(up(1, 1))
    pipeline.read(up(2, 2, more=7))
    before, spec = pipeline.last.state.evolved, pipeline.spec
    assert before.keys() == {"more"}
    migrated(pipeline, schema="id BIGINT NOT NULL, n INT, more BIGINT, other INT DEFAULT 1")
    assert pipeline.last.state.evolved == {}
    undo(pipeline)
    assert pipeline.last.state.evolved == before
    pipeline.spec = spec
    pipeline.read(up(3, 3, more=8))
    assert pipeline.last.step == 6, "no column is taken in again"


def refused(pipeline):
    versions = pipeline.versions()
    with pytest.raises(MigrationError) as raised:
        undo(pipeline)
    assert pipeline.versions() == versions
    return str(raised.value)


def test_only_a_migration_that_was_the_last_step_is_undone(make):
    pipeline = make()
    pipeline.plan.state.create()
    none = (
        "There is no migration of 't' to undo. Got: step {}. Allowed: a migration as the last step, not an undone one. "
        + BACK
    )
    assert refused(pipeline) == none.format("0, none")
    pipeline.read(up(1, 1))
    assert refused(pipeline) == none.format("1, batch")
    migrated(pipeline, **WIDER)
    with Lease(pipeline.plan.at("ledger"), "t", 60), pytest.raises(LeaseHeldError):
        undo(pipeline)


@pytest.mark.parametrize("reaches_sink", [True, False])
def test_undoing_is_not_undone_since_only_the_state_would_take_the_columns_again(make, reaches_sink):
    pipeline = make(order="arrival")
    pipeline.read(up(1, 1, "+I"))
    spec = pipeline.spec
    with contextlib.nullcontext() if reaches_sink else killed_before("the sink is altered"):
        migrated(pipeline, **RENAMED)
    undo(pipeline)
    assert "Got: step 3, migration. Allowed: a migration as the last step, not an undone one" in refused(pipeline)
    pipeline.spec = spec
    pipeline.read(up(2, 2, "+I"))
    assert pipeline.rows() == {1: 1, 2: 2}


@pytest.mark.parametrize("table", ["sink", "changelog"])
def test_migration_is_not_undone_over_what_others_have_changed_since(make, table):
    pipeline = make(order="arrival", materializer={"emission": "every"})
    pipeline.read(up(1, 1, "+I"))
    migrated(pipeline, **RENAMED)
    changed = Snapshot.read(pipeline.plan.at(table))
    spoil(pipeline.plan.at(table))
    assert refused(pipeline) == (
        f"The migration cannot be undone: '{changed.table}' was changed by another client since. Got: version"
        f" {changed.version + 1}. Allowed: the content of version {changed.version}. {BACK}"
    )


def test_migration_whose_old_files_are_gone_is_not_undone(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    sink = Snapshot.read(pipeline.plan.sink.path)
    migrated(pipeline, schema="id BIGINT NOT NULL, n INT, more INT DEFAULT 3")
    for file in sink.files.values():
        Path(file.location(sink.table)).unlink()
    assert refused(pipeline).endswith(f" {BACK}")


def test_undoing_that_died_is_finished_by_the_next_run(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    before, spec = contents(pipeline, "sink"), pipeline.spec
    migrated(pipeline, schema="id BIGINT NOT NULL, n INT, more INT DEFAULT 3")
    with killed_before("the sink is restored"):
        undo(pipeline)
    pipeline.spec = spec
    pipeline.run()
    assert contents(pipeline, "sink") == before
    assert pipeline.rows() == {1: 1}


def test_migration_of_a_pipeline_without_a_step_does_nothing(make):
    pipeline = make()
    for _ in ("without a state", "with an empty one"):
        assert pipeline.act("migrate", "plan")["changes"] == []
        assert pipeline.do("migrate")["changes"] == []
        pipeline.plan.state.create()
    assert list(pipeline.versions()) == ["state"]


def test_what_no_migration_changes_is_named_before_and_after(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    pipeline.spec = pipeline.with_fields(key=["n"])
    with pytest.raises(MigrationError) as raised:
        pipeline.act("migrate", "plan")
    allowed = ", ".join(sorted(pipeline.spec.migrates))
    assert str(raised.value) == (
        "The stored state of 't' cannot be migrated to the spec. Got: key: ['id'] -> ['n']."
        f" Allowed: a change of {allowed}. Run 'ebbtide refresh' to rebuild the sink from the source."
    )


def test_migration_finishes_the_open_step_and_is_refused_over_a_state_of_others(make):
    pipeline = make()
    pipeline.put(up(1, 1))
    with killed_before("the sink is written"):
        pipeline.run()
    migrated(pipeline, ttl="1h")
    assert pipeline.rows() == {1: 1}
    change_state(pipeline.plan)
    with pytest.raises(TableMismatchError, match="was changed by another client"):
        migrated(pipeline, ttl="2h")
