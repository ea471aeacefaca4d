"""A data file of state or sink that is gone is named before a run says that all is well, whether it would read it or not; without Spark."""

from pathlib import Path

import pytest
from local.local_pipeline import up

from ebbtide.delta import Snapshot
from ebbtide.errors import DamagedFileError
from ebbtide.inspect import status
from ebbtide.ledger import Head
from ebbtide.runtime import Diagnosis
from ebbtide.runtime._own_tables import OwnTables


@pytest.fixture
def pipeline(make):
    """A pipeline of several data files, one of them with a deletion vector; it has read all."""
    pipeline = make()
    for number in range(4):
        pipeline.read(*[up(10 * number + key, number + 1) for key in range(5)])
    pipeline.read(up(0, 9))
    assert pipeline.is_idle()
    return pipeline


def first_of(pipeline, name):
    snapshot = Snapshot.read(pipeline.plan.at(name))
    return Path(next(iter(snapshot.files.values())).location(snapshot.table))


@pytest.mark.parametrize("name", ["state", "sink"])
def test_data_file_that_is_gone_is_named_whether_there_is_something_to_read_or_not(pipeline, name):
    file = first_of(pipeline, name)
    away = file.rename(file.with_suffix(".away"))
    for begin in (pipeline.is_idle, pipeline.run, lambda: pipeline.read(up(99, 1))):
        before = pipeline.versions()
        with pytest.raises(DamagedFileError) as raised:
            begin()
        said = str(raised.value)
        assert status(pipeline.spec, pipeline.root).misfit == said
        assert said.startswith(
            f"1 file of the {name} at '{pipeline.plan.at(name)}' is gone. Got: no {file}. Allowed: the files that version"
        )
        assert "'ebbtide repair" in said
        assert pipeline.versions() == before
    away.rename(file)
    pipeline.run()
    assert pipeline.rows()[99] == 1
    assert status(pipeline.spec, pipeline.root).misfit is None


@pytest.mark.parametrize("look", ["is_idle", "status"])
def test_no_table_s_log_is_read_again_for_its_files(pipeline, monkeypatch, look):
    tables = []
    read = Snapshot.read
    monkeypatch.setattr(
        Snapshot, "read", lambda table, *given, **named: tables.append(table) or read(table, *given, **named)
    )
    looks = {"is_idle": pipeline.is_idle, "status": lambda: status(pipeline.spec, pipeline.root)}
    looks[look]()
    assert tables.count(pipeline.plan.at("sink")) == 1
    assert tables.count(pipeline.plan.at("state")) == 1


def looked_at(pipeline, state, sink):
    """The diagnosis of a process that has read these versions of state and sink."""

    class TablesThen(OwnTables):
        def sink(self):
            return sink

    return Diagnosis(pipeline.plan, TablesThen(pipeline.plan), Head(0), lambda: state)


def test_file_that_went_with_a_version_that_was_replaced_meanwhile_is_not_missed(pipeline):
    before = Snapshot.read(pipeline.plan.at("state")), Snapshot.read(pipeline.plan.at("sink"))
    diagnosis = looked_at(pipeline, *before)
    diagnosis.refuse("files")
    pipeline.do("compaction")
    for snapshot in before:
        left = Snapshot.read(snapshot.table).files
        replaced = [file for key, file in snapshot.files.items() if key not in left]
        assert replaced
        for file in replaced:
            Path(file.location(snapshot.table)).unlink()
    diagnosis.refuse("files")


def test_deletion_vector_that_is_gone_is_named(pipeline):
    sink = Snapshot.read(pipeline.plan.sink.path)
    [location] = [file.vector_location(sink.table) for file in sink.files.values() if file.vector]
    Path(location).unlink()
    with pytest.raises(DamagedFileError, match=Path(location).name):
        pipeline.run()


def test_most_of_many_missing_files_are_counted(pipeline):
    sink = Snapshot.read(pipeline.plan.sink.path)
    for file in sink.files.values():
        Path(file.location(sink.table)).unlink()
    n_files = len(sink.files)
    with pytest.raises(
        DamagedFileError, match=rf"^{n_files} files of the sink .* are gone\. Got: no .*\.parquet"
    ) as raised:
        pipeline.run()
    assert (" more" in str(raised.value)) == (n_files > 3)


def test_function_s_sink_is_made_again_by_a_refresh(make):
    pipeline = make(function="victims:Totals")
    pipeline.read(up(1, 1, "+I"))
    first_of(pipeline, "sink").unlink()
    with pytest.raises(DamagedFileError, match="without one run 'ebbtide refresh'"):
        pipeline.run()
    pipeline.do("refresh")
    assert pipeline.is_idle()


def test_files_in_folders_below_the_table_are_found(pipeline):
    sink = Snapshot.read(pipeline.plan.sink.path)
    [file, *_] = sink.files.values()
    folder = Path(sink.table, "Ab")
    folder.mkdir()
    Path(file.location(sink.table)).rename(folder / file.path)
    moved = type(file)({**file.add, "path": f"Ab/{file.path}"})
    kept = {key: each for key, each in sink.files.items() if each is not file}
    found = Snapshot(**{**vars(sink), "files": {**kept, ("Ab", None): moved}})
    looked_at(pipeline, None, found).refuse("files")
    (folder / file.path).unlink()
    with pytest.raises(DamagedFileError, match=f"Got: no {sink.table}/Ab/{file.path}"):
        looked_at(pipeline, None, found).refuse("files")
