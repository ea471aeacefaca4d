"""Which versions are judged together, without Spark; what is found in them is in `test_rules.py`."""

import shutil
from pathlib import Path

from deltalake import DeltaTable
from local.local_pipeline import up

from ebbtide.checks import Newest, VersionRange
from ebbtide.delta import Log, Snapshot
from ebbtide.delta._feed import feed_files


def begin(window):
    return window.sink_since, window.state_since


def test_window_follows_on_what_was_judged(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    first = VersionRange.after(pipeline.plan)
    assert begin(first) == (0, 0)
    pipeline.read(up(2, 2))
    assert begin(VersionRange.after(pipeline.plan, first.until)) == (1, 1)
    assert begin(VersionRange.after(pipeline.plan, {**first.until, "incarnation": "another"})) == (0, 0)


def test_window_begins_with_the_repair_of_a_sink_that_was_recreated(make):
    """Its versions count from 0 again: those that were judged are another table's."""
    pipeline = make()
    for n in range(1, 4):
        pipeline.read(up(n, n))
    judged = VersionRange.after(pipeline.plan).until
    rows = Snapshot.read(pipeline.plan.sink.path).rows(pipeline.plan.sink.schema)
    shutil.rmtree(pipeline.home / "sink")
    pipeline.repair(rows)
    pipeline.read(up(5, 5))
    window = VersionRange.after(pipeline.plan, judged)
    assert begin(window) == (1, pipeline.last.state.version)
    for n in range(6, 9):
        pipeline.read(up(n, n))
    assert begin(VersionRange.after(pipeline.plan, judged)) == begin(window)
    assert begin(VersionRange.after(pipeline.plan, window.until)) == (window.sink_until, window.state_until)


def test_window_ends_with_the_versions_asked_for_and_knows_the_steps_at_its_ends(make):
    pipeline = make()
    for n in range(1, 4):
        pipeline.read(up(n, n))
    plan = pipeline.plan
    first = VersionRange.after(plan, newest=Newest(sink=2, state=2))
    assert (first.until["sink"], first.until["state"]) == (2, 2)
    assert (first.step_since(plan), first.last_step(plan).step) == (0, 2)
    rest = VersionRange.after(plan, first.until)
    assert (rest.sink_until, rest.state_until) == (3, 3)
    assert (rest.step_since(plan), rest.last_step(plan).step) == (2, 3)


def test_window_begins_behind_the_changes_whose_files_are_gone_and_says_so(make):
    pipeline = make()
    for n in range(1, 4):
        pipeline.read(up(n, n))
    sink = pipeline.plan.sink.path
    whole = VersionRange.after(pipeline.plan)
    assert (whole.sink_since, whole.unreadable) == (0, "")
    for file in feed_files(sink, Log(sink).commit(1)):
        Path(file).unlink()
    window = VersionRange.after(pipeline.plan)
    assert window.sink_since == 1
    assert "changes of the sink in versions 1 to 1: " in window.unreadable


def test_last_step_is_known_where_the_commits_of_the_state_were_cleaned_up(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    pipeline.read(up(2, 2))
    state = pipeline.plan.state.path
    window = VersionRange.after(pipeline.plan)
    DeltaTable(state).create_checkpoint()
    for version in Log(state).versions():
        Path(Log(state).commit_file(version)).unlink()
    assert window.last_step(pipeline.plan).step == 2
