"""Which versions are judged together, without Spark; what is found in them is in `tests/spark/test_rules.py`."""

import shutil

from local_pipeline import up

from ebbtide.delta.snapshot import Snapshot
from ebbtide.delta.table import read_rows
from ebbtide.rules.version_range import VersionRange


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


def test_window_begins_with_the_repair_of_a_sink_that_was_made_anew(make):
    """Its versions count from 0 again: those that were judged are another table's."""
    pipeline = make()
    for n in range(1, 4):
        pipeline.read(up(n, n))
    judged = VersionRange.after(pipeline.plan).until
    rows = read_rows(Snapshot.read(pipeline.plan.sink.path), pipeline.plan.sink.schema)
    shutil.rmtree(pipeline.home / "sink")
    pipeline.repair(rows)
    pipeline.read(up(5, 5))
    window = VersionRange.after(pipeline.plan, judged)
    assert begin(window) == (1, pipeline.last.state_version)
    for n in range(6, 9):
        pipeline.read(up(n, n))
    assert begin(VersionRange.after(pipeline.plan, judged)) == begin(window)
    assert begin(VersionRange.after(pipeline.plan, window.until)) == (window.sink_until, window.state_until)
