"""A repair, or an acknowledgement, that ends at any place is done when it is asked for again."""

import shutil
from pkgutil import resolve_name

import pytest
from clusters.spark_support import LOCAL, change, plain_spec, sink, write
from local.local_run import START
from victims import refuse_fed_twice

from ebbtide import run
from ebbtide.operations._repair import repair
from ebbtide.runtime import Plan

STATE = "ebbtide.tables._state.table:StateTable"
SINK = "ebbtide.tables._delta_sink:SinkTable"
FILES = [[change("+I", 1, "a", 1), change("+I", 2, "b", 2)], [change("+U", 1, "c", 3), change("+I", 3, "d", 4)]]
SHOWN = [(1, "c"), (2, "b"), (3, "d")]
PLACES = [
    (STATE, "perform", "before"),
    (STATE, "perform", "after"),
    (SINK, "restore_and_apply", "before"),
    (SINK, "restore_and_apply", "after"),
]


class KilledError(BaseException):
    """Nobody catches it."""


@pytest.fixture(scope="module")
def damaged(spark, tmp_path_factory):
    """A pipeline of whose sink somebody has deleted a row."""
    root = tmp_path_factory.mktemp("damaged")
    spec = plain_spec(write(root / "in", *FILES), order={"sequence": ["seq"]})
    run(LOCAL, spec, str(root), clock=lambda: START)
    spark.sql(f"DELETE FROM delta.`{Plan.under(str(root), spec).sink.path}` WHERE id = 2")
    return spec, root


@pytest.fixture
def copied(damaged, tmp_path):
    spec, root = damaged
    shutil.copytree(root / spec.name, tmp_path / spec.name)
    return spec, tmp_path


def dies(owner, name, when, work):
    holder = resolve_name(owner)
    call = getattr(holder, name)

    def fatal(*given, **options):
        if when == "after":
            call(*given, **options)
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holder, name, fatal)
        with pytest.raises(KilledError):
            work()


def rows(spark, root, spec):
    return [(row["id"], row["v"]) for row in sink(spark, root, spec)]


@pytest.mark.grid  # killed without Spark: tests/runtime/test_crashes.py
@pytest.mark.parametrize(("owner", "name", "when"), PLACES)
def test_repair_that_died_is_finished_by_the_next_run_or_repair(spark, copied, owner, name, when):
    spec, root = copied
    dies(owner, name, when, lambda: repair.repair(spark, spec, str(root)))
    is_decided = (owner, when) != (STATE, "before")
    if is_decided:
        run(spark, spec, str(root), clock=lambda: START)
    else:
        repair.repair(spark, spec, str(root))
    assert rows(spark, root, spec) == SHOWN
    refuse_fed_twice(Plan.under(str(root), spec))


@pytest.mark.grid  # without Spark: tests/operations/test_repair.py
@pytest.mark.parametrize(("owner", "name", "when"), PLACES[:2])
def test_acknowledgement_that_died_is_there_when_it_is_asked_for_again(spark, copied, owner, name, when):
    spec, root = copied
    dies(owner, name, when, lambda: repair.acknowledge(spark, spec, str(root), "meant so"))
    report = repair.acknowledge(spark, spec, str(root), "meant so")
    n_left = 1 if when == "before" else 0
    assert report.missing == n_left
    assert rows(spark, root, spec) == [row for row in SHOWN if row[0] != 2]
    refuse_fed_twice(Plan.under(str(root), spec))
