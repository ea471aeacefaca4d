"""Savepoints: copies of a pipeline as of one step, taken while runs go on, from which a pipeline elsewhere starts."""

import json
import shutil
import signal
import threading
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from frame.limits import set_limits
from frame.waiting import until
from local.local_pipeline import LATER, LocalPipeline, up
from local.local_run import HOUR, START

from ebbtide.cli import main
from ebbtide.delta import Log, Snapshot
from ebbtide.errors import ConfigError, DamagedFileError, SpecChangedError, StoredFormatError, TableMismatchError
from ebbtide.runtime._following import Following

FIELDS = {"order": "arrival", "ttl": "1d", "materializer": {"emission": "every"}}


def elsewhere(pipeline, root):
    """The same pipeline, below another root."""
    other = LocalPipeline(pipeline.source.parent, **pipeline.fields)
    other.root = str(root)
    return other


def rows_of(plan, name, version=None):
    """A table's rows as of a version, in order."""
    snapshot = Snapshot.read(plan.at(name), version)
    columns = {"sink": plan.sink.schema, "state": plan.state.schema, "changelog": plan.changelog.schema}
    schema = columns.get(name, plan.quarantine.schema)
    return [] if snapshot is None else sorted(map(repr, snapshot.rows(schema).to_pylist()))


def tables(plan, versions):
    return {name: rows_of(plan, name, version) for name, version in versions.items()}


def newest_versions(plan):
    found = {name: Log(plan.at(name)).versions() for name in ("state", "sink", "changelog", "quarantine")}
    return {name: versions[-1] for name, versions in found.items() if versions}


@contextmanager
def under_load(pipeline):
    """A continuous run that finds a file after the other, and is always behind by two or three."""
    stop = threading.Event()

    def write():
        number = 1
        while not stop.is_set():
            key = number % 7
            pipeline.put(up(key, number, "+I"), up(key, number, "-D" if number % 3 else "+U"), "{")
            number += 1
            while pipeline.last.step + 3 < number and not stop.is_set():
                stop.wait(0.02)

    follow = Following(interval_ms=10, tick_every_ms=100)
    run = threading.Thread(target=pipeline.follow, args=(follow, lambda _: None, stop))
    writer = threading.Thread(target=write)
    run.start()
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()
        run.join()


def taken_under_load(make, tmp_path, n):
    pipeline = make(**FIELDS)
    pipeline.read(up(1, 1, "+I"))
    reports = []
    with under_load(pipeline):
        for number in range(n):
            after = pipeline.last.step
            until(lambda after=after: pipeline.last.step > after)
            reports.append(pipeline.act("savepoint", to=str(tmp_path / "kept" / str(number))))
    steps = [report["savepoint_step"] for report in reports]
    assert steps == sorted(set(steps)), "each of a later step"
    pipeline.run()
    for number, report in enumerate(reports):
        fork = elsewhere(pipeline, tmp_path / f"fork-{number}")
        fork.act("savepoint", "start", to=str(tmp_path / "kept" / str(number)))
        assert fork.last.step == report["savepoint_step"]
        versions = report["versions"]
        assert newest_versions(fork.plan) == versions
        assert tables(fork.plan, versions) == tables(pipeline.plan, versions), "as the pipeline was after that step"
        if number in (0, n - 1):
            fork.run()
            assert fork.rows() == pipeline.rows(), "it reads on from there"
            assert len(rows_of(fork.plan, "quarantine")) == len(rows_of(pipeline.plan, "quarantine"))


@pytest.mark.demand("ttl-savepoint")
def test_savepoints_taken_under_load_are_the_pipeline_at_their_step(make, tmp_path):
    taken_under_load(make, tmp_path, 3)


@pytest.mark.grid
def test_fifty_savepoints_taken_under_load_are_the_pipeline_at_their_step(make, tmp_path):
    taken_under_load(make, tmp_path, 50)


@pytest.fixture
def pipeline(make):
    made = make(**FIELDS)
    made.read(up(1, 1, "+I"), up(2, 2, "+I"), "{")
    made.read(up(1, 1, "-D"), up(3, 3, "+I"))
    return made


@pytest.fixture
def kept(tmp_path):
    return str(tmp_path / "kept" / "one")


def test_savepoint_is_described_listed_and_deleted(pipeline, kept, tmp_path):
    done = pipeline.act("savepoint", to=kept, clock_ms=START)
    assert done.text().startswith("t: savepoint of step 2, taken 1970-02-11T16:00:00+00:00 by ann: ")
    assert done.text().endswith(f"To start from it: 'ebbtide run SPEC --root OTHER --from {kept}'.")
    shown = pipeline.act("savepoint", "show", to=kept)
    assert (shown["savepoint_step"], shown["files"]) == (2, done["files"])
    assert shown.text().endswith("All files are as they were copied.")
    pipeline.act("savepoint", to=str(tmp_path / "kept" / "two"), clock_ms=START + HOUR)
    listed = pipeline.act("savepoint", "show", to=str(tmp_path / "kept"))
    assert [each["name"] for each in listed["listed"]] == ["one", "two"]
    pipeline.act("savepoint", "delete", to=kept)
    assert [each["name"] for each in pipeline.act("savepoint", "show", to=str(tmp_path / "kept"))["listed"]] == ["two"]
    with pytest.raises(ConfigError, match="There is no savepoint of 't'"):
        pipeline.act("savepoint", "show", to=kept)


def test_savepoint_is_a_root_that_can_be_looked_at(pipeline, kept):
    pipeline.act("savepoint", to=kept)
    assert elsewhere(pipeline, kept).rows() == pipeline.rows()


def test_files_on_one_disk_are_shared_and_outlive_those_of_the_pipeline(pipeline, kept, tmp_path):
    pipeline.act("savepoint", to=kept)
    file, *_ = pipeline.home.glob("sink/*.parquet")
    assert file.stat().st_nlink == 2
    rows = pipeline.rows()
    shutil.rmtree(pipeline.root)
    fork = elsewhere(pipeline, tmp_path / "fork")
    fork.act("savepoint", "start", to=kept)
    assert fork.rows() == rows
    assert fork.read(up(9, 9, "+I"))[-1].step == 3


def test_tables_with_checkpoints_vectors_and_a_cut_log_start_elsewhere(make, kept, tmp_path):
    set_limits(checkpoint_interval=2, width=100)
    pipeline = make(ttl="1h")
    pipeline.read(*(up(n, n, "-D" if n < 3 else "+U") for n in range(20)), clock_ms=START)
    for n in range(20, 26):
        pipeline.read(up(n, n), up(n - 10, n), clock_ms=START)
    pipeline.do("cleanup", START + 2 * HOUR)
    pipeline.do("vacuum")
    pipeline.read(up(30, 30), clock_ms=START + 2 * HOUR)
    state = pipeline.plan.state.snapshot()
    assert any(file.vector for file in state.files.values())
    assert Log(state.table).versions()[0] > 0
    pipeline.act("savepoint", to=kept)
    fork = elsewhere(pipeline, tmp_path / "fork")
    fork.act("savepoint", "start", to=kept)
    versions = newest_versions(pipeline.plan)
    assert tables(fork.plan, versions) == tables(pipeline.plan, versions)
    fork.read(up(31, 31), clock_ms=START + 3 * HOUR)
    assert fork.rows() == {**pipeline.rows(), 31: 31}
    fork.do("compaction")
    fork.run(START + 3 * HOUR)
    assert fork.rows() == {**pipeline.rows(), 31: 31}


def test_pipeline_and_fork_go_on_apart(pipeline, kept, tmp_path):
    pipeline.act("savepoint", to=kept)
    before = pipeline.rows()
    fork = elsewhere(pipeline, tmp_path / "fork")
    fork.act("savepoint", "start", to=kept)
    fork.read(up(9, 9, "+I"))
    assert fork.rows() == {**before, 9: 9}
    assert pipeline.rows() == before
    pipeline.act("savepoint", "show", to=kept)  # all its files are as they were
    fork.act("savepoint", "start", to=kept)  # it has begun with it
    assert fork.rows() == {**before, 9: 9}


def at_each_write(killer, pipeline, tmp_path, work, fresh, to, every):
    """Yield a folder in which a work was killed at one of its writes, for each of them or some; the last one is not killed."""
    spec = pipeline.spec.model_dump_json(by_alias=True)
    counted = tmp_path / f"counted-{work}"

    def order(root, write):
        works = [["arrival", work, spec, LATER, {"to": to(root)}]]
        return killer.order(root=str(root), works=works, write=write, counted=str(counted))["code"]

    whole = fresh("whole")
    assert order(whole, None) == 0
    n_events = int(counted.read_bytes())
    assert n_events > 20
    for write in range(1, n_events, every):
        root = fresh(f"{work}-{write}")
        assert order(root, write) == -signal.SIGKILL
        yield root
        assert order(root, None) == 0


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.grid), 9])
def test_savepoint_that_was_killed_is_taken_again(killer, pipeline, tmp_path, every):
    def fresh(name):
        return shutil.copytree(pipeline.root, tmp_path / name)

    def to(root):
        return f"{root}-kept"

    want = tables(pipeline.plan, newest_versions(pipeline.plan))
    for root in at_each_write(killer, pipeline, tmp_path, "savepoint", fresh, to, every):
        with pytest.raises(ConfigError, match="There is no savepoint of 't'"):
            elsewhere(pipeline, tmp_path / "none").act("savepoint", "start", to=to(root))
    for kept in tmp_path.glob("*-kept"):
        pipeline.act("savepoint", "show", to=str(kept))
        copy = elsewhere(pipeline, kept)
        assert tables(copy.plan, newest_versions(copy.plan)) == want


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.grid), 9])
def test_start_that_was_killed_is_done_again_and_no_run_takes_its_tables_for_whole(
    killer, pipeline, kept, tmp_path, every
):
    pipeline.act("savepoint", to=kept)

    def fresh(name):
        (tmp_path / name).mkdir()
        return tmp_path / name

    want = tables(pipeline.plan, newest_versions(pipeline.plan))
    roots = []
    for root in at_each_write(killer, pipeline, tmp_path, "start", fresh, lambda _: kept, every):
        copy = elsewhere(pipeline, shutil.copytree(root, f"{root}-left"))
        has_state = bool(Log(copy.plan.state.path).versions())
        if not has_state and Log(copy.plan.sink.path).last_step():
            with pytest.raises(TableMismatchError):
                copy.run()
        elif not has_state:
            copy.run()  # from the beginning: nothing has a step yet
            with pytest.raises(ConfigError, match="'t' has tables"):
                copy.act("savepoint", "start", to=kept)
        roots.append(root)
    for root in roots:
        fork = elsewhere(pipeline, root)
        assert tables(fork.plan, newest_versions(fork.plan)) == want
        assert fork.read(up(9, 9, "+I"))[-1].step == 3
        pipeline.source.joinpath("0002.jsonl").unlink()


def test_savepoint_that_was_damaged_is_named_and_never_started_from(pipeline, kept, tmp_path):
    pipeline.act("savepoint", to=kept)
    shutil.copytree(kept, tmp_path / "copied")
    kept = str(tmp_path / "copied")
    for number, path in enumerate(sorted((tmp_path / "copied").rglob("*.parquet"))):
        whole = path.read_bytes()
        for damaged in (whole[:-1], whole[:50] + bytes([whole[50] ^ 1]) + whole[51:], None):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            with pytest.raises(DamagedFileError):
                pipeline.act("savepoint", "show", to=kept)
            with pytest.raises(DamagedFileError):
                elsewhere(pipeline, tmp_path / f"fork-{number}").act("savepoint", "start", to=kept)
            path.write_bytes(whole)
        elsewhere(pipeline, tmp_path / f"fork-{number}").act("savepoint", "start", to=kept)


def test_savepoint_of_another_spec_starts_and_is_migrated(pipeline, kept, tmp_path):
    pipeline.act("savepoint", to=kept)
    fork = elsewhere(pipeline, tmp_path / "fork")
    fork.spec = pipeline.with_fields(ttl="2d")
    fork.act("savepoint", "start", to=kept)
    with pytest.raises(SpecChangedError):
        fork.run()
    fork.do("migrate")
    fork.run()
    assert fork.rows() == pipeline.rows()


def test_savepoint_of_a_newer_release_is_refused(pipeline, kept, tmp_path):
    pipeline.act("savepoint", to=kept)
    file = tmp_path / "kept" / "one" / "t" / "savepoint.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "ebbtide": 99}))
    with pytest.raises(StoredFormatError):
        elsewhere(pipeline, tmp_path / "fork").act("savepoint", "start", to=kept)
    assert not (tmp_path / "fork").exists()


def test_erased_keys_stay_refused_in_a_pipeline_that_starts_from_a_savepoint(pipeline, kept, tmp_path):
    pipeline.do("erase", keys=[3])
    pipeline.run()
    pipeline.act("savepoint", to=kept)
    fork = elsewhere(pipeline, tmp_path / "fork")
    fork.act("savepoint", "start", to=kept)
    [step] = fork.read(up(3, 3, "+I"), up(4, 4, "+I"))
    assert step.metrics["erased"] == 1
    assert fork.rows() == {2: 2, 4: 4}


def test_paused_pipeline_has_a_savepoint_that_starts(pipeline, kept, tmp_path):
    pipeline.act("pause", reason="the database moves")
    pipeline.act("savepoint", to=kept)
    fork = elsewhere(pipeline, tmp_path / "fork")
    fork.act("savepoint", "start", to=kept)
    fork.read(up(9, 9, "+I"))
    assert 9 in fork.rows()


def test_places_that_hold_something_are_refused(pipeline, kept):
    pipeline.act("savepoint", to=kept)
    with pytest.raises(ConfigError, match=r"There is a folder of 't' already\. .* Allowed: another --to for each"):
        pipeline.act("savepoint", to=kept)
    with pytest.raises(ConfigError, match="There is a folder of 't' already"):
        pipeline.act("savepoint", to=pipeline.root)
    with pytest.raises(ConfigError, match="'t' has tables, and does not start from a savepoint"):
        pipeline.act("savepoint", "start", to=kept)
    with pytest.raises(ConfigError, match=r"There is no savepoint of 't'\."):
        pipeline.act("savepoint", "start", to=kept + "-none")


def test_commands_take_a_savepoint_and_run_from_it(pipeline, kept, tmp_path):
    spec = tmp_path / "defs.yaml"
    spec.write_text(json.dumps({"type": "ebbtide.dagster.UpsertPipeline", "attributes": spec_of(pipeline)}))

    def call(*arguments):
        called = CliRunner().invoke(main, arguments)
        assert called.exit_code == 0, called.output
        return called.output

    assert "savepoint of step 2" in call("savepoint", str(spec), "--root", pipeline.root, "--to", kept)
    pipeline.read(up(4, 4, "+I"))
    fork = tmp_path / "fork"
    for said in ("starts from the savepoint of step 2", "has started from the savepoint of step 2"):
        assert said in call("run", str(spec), "--root", str(fork), "--from", kept, "--engine", "local")
        assert elsewhere(pipeline, fork).rows() == pipeline.rows()
    assert "All files are as they were copied." in call(
        "savepoint", str(spec), "--root", str(fork), "--to", kept, "--show"
    )
    call("savepoint", str(spec), "--root", str(fork), "--to", kept, "--delete")
    refused = CliRunner().invoke(main, ["run", str(spec), "--root", str(tmp_path / "other"), "--from", kept])
    assert (refused.exit_code, "There is no savepoint of 't'" in refused.output) == (2, True)


def spec_of(pipeline):
    return json.loads(pipeline.spec.model_dump_json(by_alias=True, exclude_unset=True))
