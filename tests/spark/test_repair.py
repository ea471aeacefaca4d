"""What others did to a sink is found, then repaired from the state or acknowledged; the checks are green again after it."""

import shutil
from pathlib import Path

import pytest
from clusters.spark_support import LOCAL, act, change, plain_spec, sink, write
from local.local_run import spoil
from oracles.judging import verdict_of

from ebbtide import run
from ebbtide.delta import Snapshot
from ebbtide.inspect import status
from ebbtide.ledger import DataCommit
from ebbtide.runtime import Plan, SinkHistory

FILES = (
    [change("+I", 1, "a", 1), change("+I", 2, "b", 2), change("+I", 3, "c", 3), "{"],
    [change("+U", 1, "d", 4), change("-D", 2, "b", 2).replace('"n": 2', '"n": 5')],
)
ROWS = [(1, "d"), (3, "c")]
BY_SEQUENCE = {"order": {"sequence": ["seq"]}}
MODES = {"sequence": BY_SEQUENCE, "arrival": {}}
JUDGED = ("complete", "unique_key", "foreign_writes")
ALL_JUDGED = ("ordering", *JUDGED)


@pytest.fixture(scope="module", params=["sequence", pytest.param("arrival", marks=pytest.mark.grid)])
def home(request, spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    spec = plain_spec(write(folder / "in", *FILES), **MODES[request.param])
    run(LOCAL, spec, str(folder / "root"))
    return folder, spec


@pytest.fixture
def here(home, tmp_path):
    folder, spec = home
    shutil.copytree(folder / "root", tmp_path / "root")
    return tmp_path / "root", spec


def rows(spark, root, spec):
    return [(row["id"], row["v"]) for row in sink(spark, root, spec)]


def red(spark, root, spec, judged=JUDGED):
    tables = Plan.under(str(root), spec)
    return {name for name in judged if not verdict_of(spark, tables, name).passed}


CHANGES = {
    "DELETE FROM {} WHERE id = 1": {"missing": 1},
    "UPDATE {} SET v = 'x' WHERE id = 3": {"other": 1},
    "INSERT INTO {} SELECT 9, v, seq, at, * EXCEPT (id, v, seq, at) FROM {} WHERE id = 1": {"extra": 1},
    "INSERT INTO {} SELECT * FROM {} WHERE id = 1": {"repeated": 1},
    "DELETE FROM {}": {"missing": 2},
    "RESTORE TABLE {} TO VERSION AS OF 1": {"missing": 0, "other": 1, "extra": 1},
}
"""What Spark does to a sink, and what it differs in from its state then."""
SOME, *OTHERS = CHANGES


@pytest.mark.parametrize("sql", [SOME, *(pytest.param(sql, marks=pytest.mark.grid) for sql in OTHERS)])
def test_foreign_change_is_found_and_repaired(spark, here, sql):
    root, spec = here
    name = f"delta.`{root / spec.name / 'sink'}`"
    spark.sql(sql.format(name, name))
    found_by = ("complete", "foreign_writes")
    assert red(spark, root, spec, found_by) == set(found_by)
    planned = act(spark, spec, root, "repair", "plan")
    [finding] = planned["findings"]
    assert finding["found"].startswith("other clients changed rows: version ")
    assert planned.step is None
    done = act(spark, spec, root, "repair")
    assert done.step == status(spec, str(root)).last.step
    assert rows(spark, root, spec) == ROWS
    assert red(spark, root, spec, ALL_JUDGED) == set()


@pytest.mark.grid
@pytest.mark.parametrize("sql", CHANGES)
def test_difference_that_leaves_no_trace_in_the_log_is_written_from_the_state(spark, here, monkeypatch, sql):
    """As of a commit of Spark's that a power cut has torn between two lines."""
    root, spec = here
    name = f"delta.`{root / spec.name / 'sink'}`"
    spark.sql(sql.format(name, name))
    monkeypatch.setattr(DataCommit, "of_table", lambda *_: [])
    planned = act(spark, spec, root, "repair", "plan")
    wanted = {"missing": 0, "other": 0, "extra": 0, "repeated": 0} | CHANGES[sql]
    assert {field: planned[field] for field in wanted} == wanted
    assert planned["findings"] == []
    act(spark, spec, root, "repair")
    assert rows(spark, root, spec) == ROWS
    assert "nothing to repair" in act(spark, spec, root, "repair", "plan").text()


@pytest.mark.grid  # the comparison is that of the repair above; without Spark: tests/ledger/test_foreign_writes.py
def test_rows_that_are_gone_are_acknowledged_and_judged_right(spark, here):
    root, spec = here
    sink_table = Plan.under(str(root), spec).sink.path
    spoil(sink_table)
    left = rows(spark, root, spec)
    done = act(spark, spec, root, "acknowledge", reason="asked to be forgotten")
    assert done["missing"] == len(ROWS) - len(left) == 1
    _, facts = Plan.under(str(root), spec).state.last()
    assert (facts.cause.what, facts.cause.why) == ("acknowledge", "asked to be forgotten")
    assert red(spark, root, spec, ALL_JUDGED) == set()
    assert "nothing to repair" in act(spark, spec, root, "repair", "plan").text(), "a repair leaves it alone"


DAMAGED_FILES = {
    "gone": lambda path: path.unlink(),
    "overwritten": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


@pytest.mark.grid  # by the sink's own versions, without Spark: tests/operations/test_repair_damages.py
@pytest.mark.parametrize("damage", DAMAGED_FILES)
def test_rows_of_a_damaged_data_file_of_the_sink_come_back_from_the_state(spark, here, monkeypatch, damage):
    root, spec = here
    path = str(root / spec.name / "sink")
    first, *_ = Snapshot.read(path).files.values()
    DAMAGED_FILES[damage](Path(first.location(path)))
    monkeypatch.setattr(SinkHistory, "way_back", lambda *_: None)
    [finding] = act(spark, spec, root, "repair", "plan")["findings"]
    assert first.location(path) in finding["found"]
    act(spark, spec, root, "repair")
    monkeypatch.undo()
    assert rows(spark, root, spec) == ROWS
    assert red(spark, root, spec) == set()
    assert "nothing to repair" in act(spark, spec, root, "repair", "plan").text()
    assert run(spark, spec, str(root)).steps == []
