"""A run looks at the tables' logs as often when they are long as when they are short."""

import sys
from collections import Counter
from contextlib import contextmanager

import pytest
from local.local_pipeline import LocalPipeline, up

from ebbtide.delta import Log

FIRST, LATER = 2, 24
_counted = None


def _count(event, given):
    if _counted is not None and event in ("os.scandir", "os.listdir"):
        _counted[str(given[0])] += 1


sys.addaudithook(_count)


@contextmanager
def listings():
    """Count the listings of each folder."""
    global _counted  # noqa: PLW0603 - an audit hook cannot be taken back
    _counted = found = Counter()
    try:
        yield found
    finally:
        _counted = None


@pytest.fixture
def pipeline(tmp_path):
    return LocalPipeline(tmp_path)


def run(pipeline, number):
    """Make a run that reads one more file; return the listings of the log of each table."""
    with listings() as found:
        pipeline.read(up(number % 5, number))
    return {name: found[str(Log(pipeline.plan.at(name)).folder)] for name in ("ledger", "state", "sink")}


def test_run_lists_a_long_log_as_often_as_a_short_one(pipeline):
    counts = [run(pipeline, number) for number in range(LATER + 1)]
    assert len(Log(pipeline.plan.at("state")).versions()) > LATER
    for name, count in counts[LATER].items():
        assert count <= counts[FIRST][name] + 1, name  # a fold commits once more
        assert count <= 9, name
