"""Views over inputs that go back, are put back, repaired and migrated, and over views: right from step to step."""

import os

import pytest
from frame.limits import set_limits
from oracles.view_histories import History

N_HISTORIES = int(os.environ.get("EBBTIDE_VIEW_HISTORIES", "20"))
N_EVENTS = int(os.environ.get("EBBTIDE_VIEW_ROUNDS", "30"))


@pytest.fixture(autouse=True)
def _inputs_without_spark():
    set_limits(rows_in_driver=10_000)


def test_views_are_right_after_each_event_that_comes_to_an_input(spark, tmp_path):
    history = History(spark, tmp_path, seed=10, kept=(), n_followed=3, is_read_by_spark=False)
    for event in ("rewind", "put back", "add a column"):
        history.go_on(event)
    assert history.n_partial


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(N_HISTORIES))
def test_views_are_right_after_each_event_of_a_random_history(spark, tmp_path, seed):
    if seed % 4 == 3:
        set_limits(view_table_bytes=-1)
    history = History(spark, tmp_path, seed)
    for _ in range(N_EVENTS):
        history.go_on()
