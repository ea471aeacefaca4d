"""Tables that do not belong together are refused with the way out, without Spark: what was deleted, replaced, put back, changed by another client."""

import json
import shutil
from pathlib import Path

import pytest
from crashes.damages import alters, put_earlier_back
from deltalake import DeltaTable
from local.local_pipeline import up

from ebbtide.delta import DataFile, Log, Snapshot, Writer
from ebbtide.errors import RepairError, TableMismatchError
from ebbtide.ledger import Cause
from ebbtide.runtime import AtRest

REPAIR = "Run 'ebbtide repair' to restore it from the state, or 'ebbtide refresh' to rebuild it from the source."
REFRESH = "Restore the state table, or run 'ebbtide refresh' to rebuild all tables from the source."
REWIND = "Restore the state table; or run 'ebbtide rewind --to-step 1 --apply' to restore the other tables to it, and read later records again; or 'ebbtide refresh' to rebuild all tables from the source."


@pytest.fixture
def two_steps(make):
    """A pipeline after two steps; its folder as it was after the first is beside it."""
    pipeline = make()
    pipeline.read(up(1, 1), "{")
    shutil.copytree(pipeline.home, pipeline.home.with_name("earlier"))
    pipeline.read(up(1, 2), "[")
    return pipeline


def refused(pipeline):
    """What a run says, which must change nothing."""
    before = pipeline.versions()
    with pytest.raises(TableMismatchError) as raised:
        pipeline.run()
    assert pipeline.versions() == before
    return str(raised.value)


@pytest.mark.parametrize("name", ["sink", "quarantine"])
def test_table_that_was_deleted_is_not_made_again(two_steps, name):
    shutil.rmtree(two_steps.home / name)
    assert refused(two_steps) == (
        f"The table at '{two_steps.plan.at(name)}' is gone. Allowed: the table that the pipeline has written. {REPAIR}"
    )


def test_sink_that_was_deleted_behind_the_first_step_is_missed(make):
    """The facts of that step were written before there was one."""
    pipeline = make()
    pipeline.read(up(1, 1))
    shutil.rmtree(pipeline.home / "sink")
    assert "sink' is gone" in refused(pipeline)


def test_table_that_another_stands_in_the_place_of_is_refused(two_steps):
    sink = Snapshot.read(two_steps.plan.sink.path)
    metadata = {**sink.metadata, "id": "another"}
    Writer().commit(sink, [{"metaData": metadata}], {"operation": "REPLACE"})
    assert refused(two_steps) == (
        f"The table at '{sink.table}' is another one than the pipeline's. Got: id another. Allowed: id {sink.id}. {REPAIR}"
    )


def test_table_that_was_put_back_is_refused(two_steps):
    two_steps.read(up(1, 3))  # its facts know that the sink had step 2
    put_earlier_back(two_steps, "sink")
    assert refused(two_steps) == (
        f"The table at '{two_steps.plan.sink.path}' is older than the state: it was put back to an earlier version."
        f" Got: step 1. Allowed: step 2 or the one after it. {REPAIR}"
    )


def test_table_that_lacks_only_the_last_step_gets_it(two_steps):
    put_earlier_back(two_steps, "sink")
    assert two_steps.rows() == {1: 1}
    two_steps.run()
    assert two_steps.rows() == {1: 2}


def test_state_that_was_put_back_is_refused(two_steps):
    put_earlier_back(two_steps, "state")
    assert refused(two_steps) == (
        f"The state at '{two_steps.plan.state.path}' is older than '{two_steps.plan.sink.path}'."
        f" Got: step 1 in the state, 2 in the other. Allowed: the state of the last step. {REWIND}"
    )
    two_steps.do("rewind")
    assert (two_steps.rows(), two_steps.last.step) == ({1: 1}, 3), (
        "steps go on counting after those of the other tables"
    )
    two_steps.run()
    assert two_steps.rows() == {1: 2}
    assert len(two_steps.table("quarantine", two_steps.plan.quarantine.schema)) == 2


def test_state_that_was_deleted_is_not_made_again(two_steps):
    shutil.rmtree(two_steps.home / "state")
    message = refused(two_steps)
    assert message == (
        f"The state at '{two_steps.plan.state.path}' has no steps, but '{two_steps.plan.sink.path}' has."
        f" Got: step 2. Allowed: the state that wrote it. {REFRESH}"
    )
    assert not (two_steps.home / "state").exists()
    two_steps.plan.state.create()
    assert refused(two_steps) == message


def test_table_of_others_with_rows_is_never_taken_for_the_sink(make):
    pipeline = make()
    pipeline.do("table")
    path = pipeline.plan.sink.path
    assert refused(pipeline) == (
        f"There is a table at '{path}' that 't' has not written. Got: 1 data file, and no step."
        " Allowed: no table, or an empty one. Run 'ebbtide adopt' to make it the sink with its rows; or give the pipeline"
        " another name or root, or move the table away."
    )


def test_sink_of_others_is_known_though_it_has_features_that_are_not_read_here(make):
    pipeline = make()
    pipeline.do("table")
    features = {"readerFeatures": ["fromLater"], "writerFeatures": ["fromLater"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    Writer().commit_version(pipeline.plan.sink.path, 2, [{"protocol": protocol}], {"operation": "UPGRADE"})
    assert "has not written" in refused(pipeline)


def test_sink_whose_adoption_is_not_done_is_refused(two_steps):
    with two_steps.stepper() as stepper:
        facts = stepper.facts(Cause(what="adopt"))
        stepper.commit(facts.model_copy(update={"state": facts.state.model_copy(update={"unadopted": 3})}), [])
    assert refused(two_steps) == (
        f"Not all rows of '{two_steps.plan.sink.path}' were adopted. Got: 3 left."
        " Run 'ebbtide adopt --apply' again: it continues where it ended."
    )


def test_what_is_known_of_tables_is_what_wrote_them_last(two_steps):
    tables = AtRest.of(two_steps.spec, two_steps.root).tables
    assert tables.facts().keys() == {"sink", "quarantine"}
    assert tables.last_step() == 2
    two_steps.read(up(1, 3))
    assert (tables.last_step(), tables.last_step("sink"), tables.last_step("quarantine")) == (3, 3, 2)
    assert AtRest.of(two_steps.spec, two_steps.root).tables.last_step("changelog") == 0


def change_by_another_client(pipeline, *, data_change=True, removes=False, operation="DELETE"):
    """Change the state as another client does: a file of rows comes twice, or goes; without a change of data a copy takes its place."""
    state = pipeline.plan.state.snapshot()
    file = next(iter(state.files.values()))
    add = {**file.add, "path": f"copy-{state.version}.parquet", "dataChange": data_change}
    shutil.copy(file.location(state.table), pipeline.home / "state" / add["path"])
    actions = [file.removed(0, data_change=data_change)] if removes or not data_change else []
    if not removes:
        actions.append({"add": add})
    Writer().commit(state, actions, {"operation": operation})


def test_state_that_others_changed_is_refused_until_it_is_as_it_was(two_steps):
    state = two_steps.plan.state.path
    decided, _ = two_steps.plan.state.last()
    before = two_steps.plan.state.snapshot()
    change_by_another_client(two_steps)
    changed = Log(state).versions()[-1]
    message = (
        f"The state at '{state}' was changed by another client. Got: version {changed}, DELETE."
        f" Allowed: the rows of version {decided}. Run 'ebbtide repair --apply' to bring it back,"
        " or 'ebbtide refresh' to rebuild all tables from the source."
    )
    assert refused(two_steps) == message
    change_by_another_client(two_steps, data_change=False, operation="OPTIMIZE")
    assert refused(two_steps) == message, "who joins files behind it does not make it right"
    now = two_steps.plan.state.snapshot()
    Writer().commit(now, now.restoring(before.version), {"operation": "RESTORE"})
    assert two_steps.run().steps == []


@pytest.mark.parametrize("joined", [False, True])
def test_state_that_others_changed_is_brought_back_to_the_rows_of_the_last_step(two_steps, joined):
    if joined:  # the files of the step itself are not needed then
        change_by_another_client(two_steps, data_change=False, operation="OPTIMIZE")
        change_by_another_client(two_steps, data_change=False, operation="OPTIMIZE")
    right = two_steps.plan.state.snapshot()
    change_by_another_client(two_steps, removes=True)
    assert two_steps.do("restore") == right.version
    assert two_steps.do("restore") is None
    assert two_steps.plan.state.snapshot().files.keys() == right.files.keys()
    assert two_steps.run().steps == []


def named_as_lost(pipeline, n_files):
    """What a repair says of a state that has lost the files of its first steps, or of its last."""
    with pytest.raises(RepairError) as raised:
        pipeline.repair(action="plan")
    message = str(raised.value)
    assert message.count(".parquet") == n_files
    return message.partition("Restore them from a copy, or run ")[2]


def test_lost_file_of_the_state_is_named_with_the_step_that_can_be_gone_back_to(two_steps):
    with two_steps.stepper() as stepper:
        first = Snapshot.read(two_steps.plan.state.path, stepper.version - 1)
        later = [file for id_, file in stepper.newest().files.items() if id_ not in first.files]
    for file in later:
        Path(file.location(two_steps.plan.state.path)).unlink()
    refresh = "'ebbtide refresh' to rebuild all tables from the source."
    assert named_as_lost(two_steps, len(later)) == (
        "'ebbtide rewind --to-step 1 --apply': the files of that step are complete, and later records are read again;"
        f" or {refresh}"
    )
    two_steps.do("rewind")
    two_steps.run()
    assert two_steps.rows() == {1: 2}
    file = next(iter(first.files.values()))
    location = Path(file.location(two_steps.plan.state.path))
    data = bytearray(location.read_bytes())
    data[len(data) // 3] ^= 0xFF
    location.write_bytes(data)
    assert named_as_lost(two_steps, 1) == refresh


def test_change_of_somebody_who_does_not_say_what_it_was_is_refused_too(two_steps):
    state = two_steps.plan.state.snapshot()
    file = next(iter(state.files.values()))
    Writer().commit(state, [file.removed(0, data_change=True)], {})
    assert f"Got: version {state.version + 1}, unknown." in refused(two_steps)


def test_state_that_is_joined_and_changed_and_brought_back_to_the_joined_files_is_right(two_steps):
    change_by_another_client(two_steps, data_change=False, operation="OPTIMIZE")
    joined = two_steps.plan.state.snapshot()
    change_by_another_client(two_steps)
    assert "changed by another client" in refused(two_steps)
    now = two_steps.plan.state.snapshot()
    back = [file.removed(0, data_change=True) for id_, file in now.files.items() if id_ not in joined.files]
    Writer().commit(now, back, {"operation": "RESTORE"})
    with two_steps.stepper():
        pass


@pytest.fixture
def four_files(make):
    """A pipeline that has four files to read, of which the last one is late: one a step."""
    pipeline = make()
    for n, id_ in ((5, 1), (1, 2), (1, 3), (3, 1)):
        pipeline.put(up(id_, n))
    return pipeline


def behind_first_step(work):
    """What does something once the first step is made."""

    def on_progress(progress):
        if progress.step == 1:
            work()

    return on_progress


def test_state_that_others_change_during_a_run_is_refused_before_the_next_step(four_files):
    changes = behind_first_step(lambda: change_by_another_client(four_files, removes=True))
    with pytest.raises(TableMismatchError) as raised:
        four_files.run(on_progress=changes)
    assert str(raised.value) == refused(four_files)
    assert "Got: version 2, DELETE. Allowed: the rows of version 1. Run 'ebbtide repair --apply'" in str(raised.value)
    assert four_files.last.step == 1
    four_files.do("restore")
    four_files.run()
    assert four_files.rows() == {1: 5, 2: 1, 3: 1}


def joined_by_another_client(table, schema):
    """Join the files of a table as another client does; its commit has none of our facts."""
    found = Snapshot.read(table)
    files = list(found.files.values())
    rows = found.rows(schema, files)
    add = DataFile.write(table, "joined.parquet", rows, bounded=(), data_change=False)
    Writer().join(found, files, [add], {})


def test_facts_outlive_the_log_s_cleanup(two_steps):
    """As after a foreign OPTIMIZE and quiet days: a checkpoint, and no commit of ours before it."""
    two_steps.read(up(2, 3))
    for table in (two_steps.plan.state, two_steps.plan.sink):
        joined_by_another_client(table.path, table.schema)
        DeltaTable(table.path).create_checkpoint()
        *older, _ = sorted(Path(table.path, Log.FOLDER).glob("0*.json"))
        for file in older:
            file.unlink()
    assert two_steps.is_idle()
    two_steps.read(up(9, 9))
    assert two_steps.last.step == 4
    assert two_steps.rows() == {1: 2, 2: 3, 9: 9}


def test_files_of_the_state_may_be_joined_by_others_during_a_run(four_files):
    state = four_files.plan.state
    joins = behind_first_step(lambda: joined_by_another_client(state.path, state.schema))
    four_files.run(on_progress=joins)
    assert four_files.rows() == {1: 5, 2: 1, 3: 1}


def test_state_that_others_change_while_a_step_is_decided_is_refused(two_steps):
    with two_steps.stepper() as stepper:
        stepper.newest()
        change_by_another_client(two_steps, removes=True)
        with pytest.raises(TableMismatchError, match="changed by another client"):
            stepper.commit(stepper.facts(Cause(what="cleanup")), [])
        with pytest.raises(TableMismatchError, match="changed by another client"):
            stepper.newest()
    assert two_steps.last.step == 2


def test_state_that_others_change_before_its_first_step_is_refused_with_the_way_out_that_there_is(make):
    pipeline = make()
    pipeline.plan.state.create()
    with pipeline.stepper() as stepper:
        empty = stepper.newest()
        state = pipeline.plan.state
        row = state.add_rows(state.noted_files([("0000.jsonl", 1)], step=1), data_change=True)
        Writer().commit(empty, [row], {"operation": "WRITE"})
        facts = stepper.facts(Cause(what="cleanup"))
        with pytest.raises(TableMismatchError) as raised:
            pipeline.plan.state.perform([], facts, empty)
    assert str(raised.value) == (
        f"The state at '{empty.table}' was changed by another client. Got: version 1, WRITE. Allowed: the rows of version 0."
        " Run 'ebbtide refresh' to rebuild all tables from the source."
    )


@pytest.fixture
def emitting(make):
    """A pipeline of four files, each with a bad record, that writes all of its tables."""
    pipeline = make(order="arrival", materializer={"emission": "every"})
    for id_ in range(4):
        pipeline.put(up(id_, 1, "+I"), "{" * (1 + id_))
    return pipeline


OTHER_TABLES = ["sink", pytest.param("changelog", marks=pytest.mark.grid), "quarantine"]
"""A changelog is appended to as a quarantine is."""


@pytest.mark.parametrize("name", OTHER_TABLES)
def test_table_that_is_deleted_during_a_run_is_neither_written_to_nor_made_again(emitting, name):
    deletes = behind_first_step(lambda: shutil.rmtree(emitting.home / name))
    with pytest.raises(TableMismatchError) as raised:
        emitting.run(on_progress=deletes)
    gone = (
        f"The table at '{emitting.plan.at(name)}' is gone. Allowed: the table that the pipeline has written. {REPAIR}"
    )
    assert str(raised.value) == gone == refused(emitting)
    assert Log(emitting.plan.at(name)).versions() == []
    emitting.do("refresh")
    assert emitting.rows() == dict.fromkeys(range(4), 1)
    assert len(emitting.table("quarantine", emitting.plan.quarantine.schema)) == 4
    assert len(emitting.table("changelog", emitting.plan.changelog.schema)) == 4


def test_state_that_is_deleted_during_a_step_is_not_made_again(two_steps):
    state = two_steps.plan.state.path
    with two_steps.stepper() as stepper:
        facts = stepper.facts(Cause(what="cleanup"))
        shutil.rmtree(two_steps.home / "state")
        with pytest.raises(TableMismatchError, match=f"^The table at '{state}' is gone. Got: no version 2 in its log."):
            stepper.commit(facts, [])
    assert Log(state).versions() == []
    assert "has no steps" in refused(two_steps)


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({"theirs": {}}, "theirs is not the pipeline's"),
        pytest.param({"n": {"type": None}}, "n is missing", marks=pytest.mark.grid),
        ({"n": {"type": "date"}}, "n has type date"),
    ],
)
def test_sink_that_others_gave_other_columns_is_refused(two_steps, change, got):
    sink = two_steps.plan.sink.path
    alters(sink, **change)
    message = (
        f"The table at '{sink}' has other columns than the pipeline has given it. Got: {got}."
        f" Allowed: {', '.join(two_steps.plan.sink.schema.names)}. Undo the change (RESTORE TABLE, ALTER TABLE),"
        " or run 'ebbtide refresh' to rebuild it from the source. Put your own columns into a separate table or view."
    )
    two_steps.put(up(2, 1))
    assert refused(two_steps) == message
    two_steps.do("refresh")
    assert two_steps.rows() == {1: 2, 2: 1}


@pytest.mark.parametrize("name", OTHER_TABLES)
def test_table_that_others_give_a_column_during_a_run_is_refused_before_it_is_written(emitting, name):
    table = emitting.plan.at(name)
    with pytest.raises(TableMismatchError, match=f"^The table at '{table}' has other columns .* theirs is not"):
        emitting.run(on_progress=behind_first_step(lambda: alters(table, theirs={})))
    newest = Log(table).versions()[-1]
    assert Log(table).commit(newest).info()["operation"] == "ALTER TABLE"
    emitting.do("refresh")
    assert emitting.rows() == dict.fromkeys(range(4), 1)


def test_values_in_a_column_of_others_do_not_go_with_a_compaction(two_steps):
    two_steps.read(up(2, 1))
    alters(two_steps.plan.sink.path, theirs={})
    before = Snapshot.read(two_steps.plan.sink.path)
    assert len(before.files) > 1
    with pytest.raises(TableMismatchError, match="has other columns"):
        two_steps.do("compaction")
    assert Snapshot.read(two_steps.plan.sink.path).files == before.files


def test_comments_and_the_order_of_columns_are_anybodys_to_change(two_steps):
    snapshot = Snapshot.read(two_steps.plan.sink.path)
    schema = json.loads(snapshot.metadata["schemaString"])
    schema["fields"] = [{**field, "metadata": {"comment": "theirs"}} for field in reversed(schema["fields"])]
    metadata = {**snapshot.metadata, "description": "theirs", "schemaString": json.dumps(schema)}
    Writer().commit(snapshot, [{"metaData": metadata}], {"operation": "CHANGE COLUMN"})
    two_steps.read(up(2, 1))
    assert two_steps.rows() == {1: 2, 2: 1}


def test_null_for_a_column_that_others_let_have_none_is_refused_until_they_let_it(make):
    pipeline = make(schema="id BIGINT NOT NULL, n BIGINT, v STRING")
    pipeline.read(up(1, 1, v="a"))
    alters(pipeline.plan.sink.path, v={"nullable": False})
    pipeline.read(up(2, 1, v="b"))
    with pytest.raises(TableMismatchError) as raised:
        pipeline.read(up(3, 1, v=None))
    assert str(raised.value) == (
        f"The column 'v' of the table at '{pipeline.plan.sink.path}' takes no null, though the pipeline's may be null. Got: 1 null."
        " Allowed: a column that takes nulls. Allow them (ALTER TABLE ... ALTER COLUMN v DROP NOT NULL), then run again:"
        " the step is finished then."
    )
    assert pipeline.rows() == {1: 1, 2: 1}
    alters(pipeline.plan.sink.path, v={"nullable": True})
    pipeline.run()
    assert pipeline.rows() == {1: 1, 2: 1, 3: 1}
