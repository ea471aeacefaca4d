"""Changelog and quarantine that were deleted, replaced or put back: what is said of it, and what comes back, without Spark."""

import shutil
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from frame.interrupting import killed_before
from frame.limits import limits, set_limits
from frame.thinned import thinned
from local.local_pipeline import Kept, LocalPipeline, up
from local.local_run import START

from ebbtide.delta import Log, Snapshot, Writer
from ebbtide.errors import DeltaLogError, TableMismatchError

EVERY = {"order": "arrival", "materializer": {"emission": "every"}}
APPENDED = ("changelog", "quarantine")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    with limits():
        set_limits(width=4)  # the state's files of four steps are joined: no version that is needed names them
        pipeline = LocalPipeline(tmp_path_factory.mktemp("appended"), **EVERY)
        pipeline.read(up(1, 1, "+I"), "{")
        pipeline.read(up(2, 2, "+I"))
        shutil.copytree(pipeline.home, pipeline.home.with_name("earlier"))
        pipeline.read(up(3, 3, "+I"), "[")
        pipeline.read(up(4, 4, "+I"))
        pipeline.read(up(5, 5, "+I"))
    return Kept(pipeline)


@pytest.fixture
def five_steps(kept):
    """A pipeline after five steps that emitted, two of them with a bad record, and one with none; as it was after two beside it."""
    return kept.again()


def put_back(pipeline, name, *, with_files=False):
    here = pipeline.home / name
    files = [(path.name, path.read_bytes()) for path in here.glob("*.parquet")]
    shutil.rmtree(here)
    shutil.copytree(pipeline.home.with_name("earlier") / name, here)
    for file_name, content in files if with_files else ():
        (here / file_name).write_bytes(content)


def findings(pipeline):
    """The findings of a repair; a second repair has none."""
    report = pipeline.repair()
    assert pipeline.repair()["findings"] == []
    return list(report.lines[1:-1])


def contents(pipeline):
    changelog = [row["id"] for row in pipeline.table("changelog", pipeline.plan.changelog.schema)]
    quarantine = [row["raw"] for row in pipeline.table("quarantine", pipeline.plan.quarantine.schema)]
    return sorted(changelog), sorted(quarantine)


GONE = "lost: the files that held them are gone"
WHOLE = ([1, 2, 3, 4, 5], [b"[", b"{"])


def test_whole_tables_have_lost_nothing(five_steps):
    sink = five_steps.versions()["sink"]
    assert findings(five_steps) == []
    assert five_steps.versions()["sink"] == sink
    assert contents(five_steps) == WHOLE


def test_what_an_older_copy_lacks_is_appended_again(five_steps):
    put_back(five_steps, "changelog")
    put_back(five_steps, "quarantine", with_files=True)
    assert findings(five_steps) == [
        "changelog: put back from step 4 to step 2; 3 rows of step 3, 4, 5 can be appended again",
        "quarantine: put back from step 3 to step 1; 1 row of step 3 can be appended again",
    ]
    assert contents(five_steps) == WHOLE
    assert five_steps.run().steps == []


def test_what_is_nowhere_is_counted(five_steps):
    put_back(five_steps, "changelog")
    put_back(five_steps, "quarantine")
    version = next(version for version, facts in five_steps.plan.state.steps() if facts.step == 4)
    for location in Log(five_steps.plan.state.path).added(version):
        Path(location).unlink()
    assert findings(five_steps) == [
        f"changelog: put back from step 4 to step 2; 2 rows of step 3, 5 can be appended again; 1 row of step 4 {GONE}",
        f"quarantine: put back from step 3 to step 1; 1 row of step 3 {GONE}",
    ]
    assert contents(five_steps) == ([1, 2, 3, 5], [b"{"])


@pytest.mark.parametrize("place", ["missed rows are appended", "a stage is appended"])
def test_repair_that_was_killed_behind_its_decision_is_finished_by_the_next_run(five_steps, place):
    put_back(five_steps, "changelog")
    with killed_before(place):
        five_steps.repair()
    assert not five_steps.is_idle()
    five_steps.run()
    assert contents(five_steps) == WHOLE


def test_deleted_tables_are_made_again(five_steps):
    for name in APPENDED:
        shutil.rmtree(five_steps.home / name)
    assert findings(five_steps) == [
        "changelog: gone; 5 rows of step 1, 2, 3, 4, 5 can be appended again",
        f"quarantine: gone; 2 rows of step 1, 3 {GONE}",
    ]
    assert contents(five_steps) == ([1, 2, 3, 4, 5], [])


def test_quarantine_that_was_deleted_behind_its_first_step_is_missed(make):
    """The facts of that step were written before there was one."""
    pipeline = make()
    pipeline.read(up(1, 1), "{")
    shutil.rmtree(pipeline.home / "quarantine")
    with pytest.raises(TableMismatchError, match="lacks the bad records of step 1"):
        pipeline.run()
    assert findings(pipeline) == [f"quarantine: gone; 1 row of step 1 {GONE}"]


@pytest.mark.parametrize("name", APPENDED)
def test_another_table_is_moved_aside(five_steps, name):
    snapshot = Snapshot.read(five_steps.plan.at(name))
    Writer().commit(snapshot, [{"metaData": {**snapshot.metadata, "id": "another"}}], {"operation": "REPLACE"})
    [said] = findings(five_steps)
    assert said.startswith(f"{name}: another table is in its place; to be moved aside and recreated; ")
    assert "lost" not in said
    assert contents(five_steps) == WHOLE
    assert moved_aside(five_steps) == [f"{name}.aside-1"]


@pytest.mark.parametrize("name", APPENDED)
def test_older_copy_from_before_a_rewind_is_moved_aside(five_steps, name):
    five_steps.do("rewind")
    five_steps.read(up(6, 6, "+I"), "x")
    put_back(five_steps, name)
    [said] = findings(five_steps)
    assert "to be moved aside and recreated" in said
    assert said.endswith("what steps up to 6 wrote there is lost: the state does not hold it")
    assert "10" in said or "11" in said


def test_records_that_have_left_do_not_come_back(five_steps):
    five_steps.do("drop")
    put_back(five_steps, "quarantine", with_files=True)
    [said] = findings(five_steps)
    assert said == "quarantine: put back from step 3 to step 1; 1 row of step 3 can be appended again"
    assert contents(five_steps)[1] == [b"["]


@pytest.mark.parametrize(("joined", "with_files"), thinned(product((False, True), repeat=2), 3))
def test_records_stay_where_it_is_not_told_any_more_which_of_a_file_have_left(make, joined, with_files):
    """The older copy lacks the vector that deleted the row."""
    set_limits(width=2 if joined else 9)
    pipeline = make()
    pipeline.read(up(1, 1), "{", "{2")
    shutil.copytree(pipeline.home, pipeline.home.with_name("earlier"))
    pipeline.read(up(2, 2), "[")
    pipeline.act("quarantine.drop", limit=1, note="given up")
    assert contents(pipeline)[1] == [b"[", b"{2"]
    put_back(pipeline, "quarantine", with_files=with_files)
    again = "1 row of step 2 can be appended again" if with_files else f"1 row of step 2 {GONE}"
    assert findings(pipeline) == [
        (
            f"quarantine: put back from step 2 to step 1; {again};"
            " 1 row of step 3, which left then, may be there again: the files that named them are gone"
        )
    ]
    assert contents(pipeline)[1] == ([b"[", b"{", b"{2"] if with_files else [b"{", b"{2"])


def tear(folder):
    newest = max((folder / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:20])


def lose(folder):
    first, *_ = sorted((folder / "_delta_log").glob("*.json"))
    first.unlink()


DAMAGES = [tear, lose]


def moved_aside(pipeline):
    """The folders that were moved aside, each with a log."""
    return sorted(log.parent.name for log in pipeline.home.glob("*.aside-*/_delta_log"))


@pytest.mark.parametrize(("name", "damage"), thinned(product(APPENDED, DAMAGES), 3))
def test_table_whose_log_cannot_be_read_is_moved_aside_and_made_again(five_steps, name, damage):
    damage(five_steps.home / name)
    with pytest.raises(DeltaLogError, match="run 'ebbtide repair --apply' or 'ebbtide refresh'"):
        five_steps.run()
    [said] = findings(five_steps)
    assert said.startswith(f"{name}: its log cannot be read; to be moved aside and recreated; ")
    assert contents(five_steps) == WHOLE
    assert moved_aside(five_steps) == [f"{name}.aside-1"]


@pytest.mark.parametrize("place", ["files are set aside", "a table is set aside"])
def test_files_of_a_quarantine_are_appended_again_though_setting_it_aside_was_killed(five_steps, place):
    tear(five_steps.home / "quarantine")
    with killed_before(place):
        findings(five_steps)
    [said] = findings(five_steps)
    assert "; 2 rows of step 1, 3 can be appended again" in said
    assert contents(five_steps) == WHOLE


@pytest.mark.parametrize(("name", "damage"), thinned(product(("sink", *APPENDED), DAMAGES), 3))
def test_refresh_moves_a_table_aside_whose_log_cannot_be_read(five_steps, name, damage):
    rows = five_steps.rows()
    damage(five_steps.home / name)
    five_steps.do("refresh")
    assert (five_steps.rows(), contents(five_steps)) == (rows, WHOLE)
    assert moved_aside(five_steps) == [f"{name}.aside-1"]
    assert five_steps.run().steps == []


def ask_anew(pipeline):
    pipeline.act("pause", clock_ms=START, reason="the ledger was torn")
    pipeline.act("resume", clock_ms=START)


@pytest.mark.parametrize(
    ("name", "way_out"), [("state", lambda pipeline: pipeline.do("refresh")), ("ledger", ask_anew)]
)
def test_what_is_said_of_a_torn_state_or_ledger_works(five_steps, name, way_out):
    rows = five_steps.rows()
    tear(five_steps.home / name)
    for attempt in ("run", "refresh"):
        with pytest.raises(DeltaLogError, match=rf"of a {name} move its folder away and run"):
            five_steps.do(attempt)
    (five_steps.home / name).rename(five_steps.home / "away")
    way_out(five_steps)
    assert (five_steps.rows(), contents(five_steps)) == (rows, WHOLE)
    five_steps.read(up(6, 6, "+I"))
    assert five_steps.rows() == {**rows, 6: 6}


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-30])])
def test_quarantine_keeps_the_records_whose_files_are_whole_and_counts_the_rest(tmp_path, damage):
    pipeline = LocalPipeline(tmp_path)
    for number in (1, 2, 3):
        pipeline.read(up(number, number), "{")

    def steps():
        table = Snapshot.read(pipeline.plan.at("quarantine"))
        asked = pa.schema([("step", pa.int64())])
        return {
            Path(file.location(table.table)): table.rows(asked, [file])["step"].to_pylist()
            for file in table.files.values()
        }

    [second] = [file for file, found in steps().items() if found == [2]]
    damage(second)
    planned = pipeline.act("repair", "plan").text()
    assert "quarantine: files are gone or cut off" in planned
    assert "1 row of step 2 lost" in planned
    pipeline.act("repair")
    assert sorted(steps().values()) == [[1], [3]]
    assert "nothing to repair" in pipeline.act("repair", "plan").text()
    pipeline.read(up(4, 4), "{")
    assert len(steps()) == 3
