"""Tables that do not belong together are refused with the way out: never made again in silence, never gone on with."""

import shutil

import pytest
from clusters.spark_support import LOCAL, change, plain_spec, sink, write
from deltalake import DeltaTable
from oracles.judging import verdict_of

from ebbtide import refresh, run
from ebbtide.delta import Snapshot
from ebbtide.errors import TableMismatchError
from ebbtide.operations import maintain
from ebbtide.operations._repair import repair as repairing
from ebbtide.runtime import Plan, idle_run

FILES = [
    [change("+I", 1, "a", 1), change("+I", 2, "b", 2), "{"],
    [change("+I", 3, "c", 3), "["],
    [change("+U", 1, "d", 4), change("-D", 2, "b", 5)],
]
ROWS = [(1, "d"), (3, "c")]


@pytest.fixture(scope="module")
def home(spark, tmp_path_factory):
    """A pipeline after three steps, and a copy of its folder as it was after the first."""
    folder = tmp_path_factory.mktemp("home")
    source = write(folder / "in", *FILES[:1])
    spec = plain_spec(source, order={"sequence": ["seq"]})
    run(LOCAL, spec, str(folder / "root"))
    shutil.copytree(folder / "root" / "plain", folder / "earlier")
    write(source, *FILES[1:], first=1)
    run(LOCAL, spec, str(folder / "root"))
    return folder, spec


@pytest.fixture
def copied(home, tmp_path):
    folder, spec = home
    shutil.copytree(folder / "root", tmp_path / "root")
    return tmp_path / "root" / "plain", folder / "earlier", spec


def put_back(here, earlier, *names):
    for name in names:
        shutil.rmtree(here / name)
        shutil.copytree(earlier / name, here / name)


DAMAGES = {
    "a deleted sink": (lambda here, _: shutil.rmtree(here / "sink"), r"sink' is gone\..*'ebbtide repair'"),
    "a deleted quarantine": (lambda here, _: shutil.rmtree(here / "quarantine"), r"quarantine' is gone\."),
    "an older sink": (
        lambda here, earlier: put_back(here, earlier, "sink"),
        r"older than the state.* Got: step \d\. Allowed: step \d or .*'ebbtide repair'",
    ),
    "a deleted state": (lambda here, _: shutil.rmtree(here / "state"), r"has no steps, but .*sink' has\. Got: step \d"),
    "an older state": (
        lambda here, earlier: put_back(here, earlier, "state"),
        r"state' is older than .*sink'\. Got: step 1 in the state, \d in the other",
    ),
}


HEALED = ("a deleted sink", "a deleted state")


@pytest.mark.grid  # without Spark: tests/runtime/test_belonging.py
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_refused_and_a_refresh_heals(spark, copied, damage):
    here, earlier, spec = copied
    do, message = DAMAGES[damage]
    do(here, earlier)
    root = str(here.parent)
    with pytest.raises(TableMismatchError, match=message):
        run(spark, spec, root)
    with pytest.raises(TableMismatchError, match=message):
        maintain(spark, spec, root, "compaction")
    assert (here / "state").exists() == ("deleted state" not in damage), "nothing is made again"
    if (here / "state").exists():
        with pytest.raises(TableMismatchError, match=message):
            idle_run(spec, root, 0)
    if damage in HEALED:
        refresh(spark, spec, root)
        assert [(row["id"], row["v"]) for row in sink(spark, here.parent, spec)] == ROWS


@pytest.mark.grid  # without Spark: tests/runtime/test_belonging.py
def test_another_table_in_the_sinks_place_is_refused(spark, copied, tmp_path):
    here, _, spec = copied
    path = str(here / "sink")
    own = Snapshot.read(path).id
    spark.read.format("delta").load(path).write.format("delta").save(str(tmp_path / "other"))
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "other", path)
    other = Snapshot.read(path).id
    with pytest.raises(
        TableMismatchError, match=rf"another one than the pipeline's\. Got: id {other}\. Allowed: id {own}"
    ):
        run(spark, spec, str(here.parent))


@pytest.mark.grid  # without Spark: tests/runtime/test_belonging.py
def test_a_table_of_somebody_elses_is_never_taken_for_the_sink(spark, copied, tmp_path):
    _, _, spec = copied
    root = tmp_path / "fresh"
    spark.range(3).write.format("delta").save(str(root / spec.name / "sink"))
    for start in (run, refresh):
        with pytest.raises(
            TableMismatchError,
            match=r"has not written\. .* Run 'ebbtide adopt' .* or give the pipeline another name or root",
        ):
            start(spark, spec, str(root))
    assert spark.read.format("delta").load(str(root / spec.name / "sink")).count() == 3


@pytest.mark.grid  # without Spark: tests/runtime/test_belonging.py, tests/operations/test_state_repair.py
def test_a_state_that_spark_changed_is_repaired(spark, copied):
    here, _, spec = copied
    root, state = str(here.parent), str(here / "state")
    spark.sql(f"DELETE FROM delta.`{state}` WHERE id = 3")
    with pytest.raises(TableMismatchError, match=r"changed by another client\. Got: version \d+, DELETE\."):
        run(LOCAL, spec, root)
    assert repairing.repair(spark, spec, root).state_version is not None
    assert run(LOCAL, spec, root).steps == []
    assert [(row["id"], row["v"]) for row in sink(spark, here.parent, spec)] == ROWS


@pytest.mark.grid  # parts of it are above and below; without Spark: tests/runtime/test_belonging.py
def test_a_state_that_others_changed_is_refused_until_it_is_brought_back(spark, copied):
    here, _, spec = copied
    root, state = str(here.parent), str(here / "state")
    spark.sql(f"OPTIMIZE delta.`{state}`")
    assert run(spark, spec, root).steps == [], "joined files are no change"
    version = Snapshot.read(state).version
    for mended_by_hand in (True, False):
        spark.sql(f"DELETE FROM delta.`{state}` WHERE id = 3")
        with pytest.raises(
            TableMismatchError,
            match=r"changed by another client\. Got: version \d+, DELETE\. .*'ebbtide repair --apply'",
        ):
            run(spark, spec, root)
        if mended_by_hand:
            spark.sql(f"RESTORE TABLE delta.`{state}` TO VERSION AS OF {version}")
        else:
            spark.sql(f"UPDATE delta.`{here / 'sink'}` SET v = 'x' WHERE id = 1")
            planned = repairing.plan(spark, spec, root)
            assert [finding.table for finding in planned.findings] == ["sink"]
            assert planned.state_version is not None
            assert repairing.repair(spark, spec, root).state_version == planned.state_version
        assert run(spark, spec, root).steps == []
    assert [(row["id"], row["v"]) for row in sink(spark, here.parent, spec)] == ROWS
    assert not any(finding.broken for finding in verdict_of(spark, Plan.under(root, spec), "foreign_writes").findings)


@pytest.mark.grid  # without Spark: tests/runtime/test_belonging.py
def test_facts_outlive_the_logs_cleanup(spark, copied):
    """As after a foreign OPTIMIZE and quiet days: a checkpoint, and no commit of ours before it."""
    here, _, spec = copied
    source = write(here.parent.parent / "in", *FILES)
    moved = spec.model_copy(update={"source": spec.source.model_copy(update={"path": str(source)})})
    run(LOCAL, moved, str(here.parent), accept_source_path=True)
    for name in ("state", "sink"):
        spark.sql(f"OPTIMIZE delta.`{here / name}`")
        DeltaTable(str(here / name)).create_checkpoint()
        *older, _ = sorted((here / name / "_delta_log").glob("0*.json"))
        for file in [*older, *(here / name / "_delta_log").glob(".0*.crc")]:
            file.unlink()
    assert idle_run(moved, str(here.parent), 0) is not None
    write(source, [change("+I", 9, "z", 9)], first=3)
    [step] = run(LOCAL, moved, str(here.parent)).steps
    assert (step.step, step.metrics["inserted"]) == (5, 1)
    assert [(row["id"], row["v"]) for row in sink(spark, here.parent, moved)] == [*ROWS, (9, "z")]


def test_a_sink_that_spark_replaces_is_still_the_pipelines(spark, tmp_path):
    """A refresh of a table with properties of the user's replaces it by Spark's own REPLACE."""
    source = write(tmp_path / "in", [line for file in FILES for line in file])
    spec = plain_spec(source, order={"sequence": ["seq"]}, sink={"table_properties": {"delta.checkpointInterval": "7"}})
    run(spark, spec, str(tmp_path / "root"))
    refresh(spark, spec, str(tmp_path / "root"))
    write(source, [change("+I", 9, "z", 9)], first=3)
    run(spark, spec, str(tmp_path / "root"))
    assert [(row["id"], row["v"]) for row in sink(spark, tmp_path / "root", spec)] == [*ROWS, (9, "z")]
