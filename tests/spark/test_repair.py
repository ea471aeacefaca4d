"""What others did to a sink is found, then repaired from the state or acknowledged; the checks are green again after it."""

import shutil
from pathlib import Path

import pytest
from clusters.spark_support import LOCAL, change, plain_spec, sink, table, write
from deltalake import DeltaTable
from frame.interrupting import killed_before
from local.local_run import spoil
from oracles.judging import verdict_of

from ebbtide import run
from ebbtide.checks import VersionRange
from ebbtide.checks.great_expectations.checks import CHECKS
from ebbtide.delta import Log, Snapshot
from ebbtide.errors import ConfigError, DeltaLogError, RepairError, TableMismatchError
from ebbtide.inspect import status
from ebbtide.ledger import DataCommit
from ebbtide.operations import maintain
from ebbtide.operations._repair import repair as repairing
from ebbtide.runtime import Plan, SinkDifference, SinkHistory, idle_run, system_clock

FILES = (
    [change("+I", 1, "a", 1), change("+I", 2, "b", 2), change("+I", 3, "c", 3), "{"],
    [change("+U", 1, "d", 4), change("-D", 2, "b", 2).replace('"n": 2', '"n": 5')],
)
MORE = [change("+U", 3, "e", 6), change("+I", 4, "f", 7)]
ROWS = [(1, "d"), (3, "c")]
BY_SEQUENCE = {"order": {"sequence": ["seq"]}}
MODES = {"sequence": BY_SEQUENCE, "arrival": {}, "merge": BY_SEQUENCE | {"sink": {"write": "merge"}}}
JUDGED = ("complete", "unique_key", "foreign_writes")
ALL_JUDGED = ("ordering", *JUDGED)


@pytest.fixture(
    scope="module", params=["sequence", *(pytest.param(mode, marks=pytest.mark.grid) for mode in ("arrival", "merge"))]
)
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
    planned = repairing.plan(spark, spec, str(root))
    [finding] = planned.findings
    assert finding.found.startswith("other clients changed rows: version ")
    assert planned.step is None
    done = repairing.repair(spark, spec, str(root))
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
    planned = repairing.plan(spark, spec, str(root))
    wanted = {"missing": 0, "other": 0, "extra": 0, "repeated": 0} | CHANGES[sql]
    assert {field: getattr(planned, field) for field in wanted} == wanted
    assert planned.findings == ()
    repairing.repair(spark, spec, str(root))
    assert rows(spark, root, spec) == ROWS
    assert not repairing.plan(spark, spec, str(root)).differs


@pytest.mark.grid  # the next test; without Spark: tests/operations/test_repair_damages.py
def test_foreign_change_is_acknowledged_until_the_key_changes_again(spark, here):
    root, spec = here
    name = f"delta.`{root / spec.name / 'sink'}`"
    spark.sql(
        f"MERGE INTO {name} USING (SELECT explode(array(1, 3)) AS k) AS theirs ON id = k "
        "WHEN MATCHED AND k = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'x'"
    )
    with pytest.raises(ConfigError, match="needs a reason"):
        repairing.acknowledge(spark, spec, str(root), " ")
    done = repairing.acknowledge(spark, spec, str(root), "asked to be forgotten")
    assert (done.missing, done.other) == (1, 1)
    _, facts = Plan.under(str(root), spec).state.last()
    assert (facts.cause.what, facts.cause.why) == ("acknowledge", "asked to be forgotten")
    assert red(spark, root, spec, ALL_JUDGED) == set()
    assert not repairing.plan(spark, spec, str(root)).differs, "a repair leaves it alone"
    maintain(spark, spec, str(root), "compaction")
    assert red(spark, root, spec, ("complete",)) == set(), "a compaction keeps what was acknowledged"
    moved = spec.model_copy(update={"source": spec.source.model_copy(update={"path": str(root.parent / "in")})})
    write(root.parent / "in", *FILES, MORE)
    run(LOCAL, moved, str(root), accept_source_path=True)
    assert rows(spark, root, spec) == [(3, "e"), (4, "f")]
    assert red(spark, root, moved) == set()
    spark.sql(f"DELETE FROM {name} WHERE id = 3")
    assert repairing.plan(spark, spec, str(root)).findings, "it has changed since"
    repairing.repair(spark, moved, str(root))
    assert rows(spark, root, spec) == [(3, "e"), (4, "f")], "what was accepted before stays"


def test_rows_that_are_gone_are_acknowledged_and_judged_right(spark, here):
    root, spec = here
    sink_table = Plan.under(str(root), spec).sink.path
    spoil(sink_table)
    left = rows(spark, root, spec)
    done = repairing.acknowledge(spark, spec, str(root), "asked to be forgotten")
    assert done.missing == len(ROWS) - len(left) == 1
    _, facts = Plan.under(str(root), spec).state.last()
    assert (facts.cause.what, facts.cause.why) == ("acknowledge", "asked to be forgotten")
    assert red(spark, root, spec, ALL_JUDGED) == set()
    assert not repairing.plan(spark, spec, str(root)).differs, "a repair leaves it alone"


@pytest.mark.grid  # without Spark: tests/operations/test_appended.py
def test_dropped_sink_is_made_again_by_a_repair_only(spark, here):
    root, spec = here
    shutil.rmtree(root / spec.name / "sink")
    with pytest.raises(TableMismatchError, match="'ebbtide repair'"):
        run(LOCAL, spec, str(root))
    found = status(spec, str(root))
    assert (found.sink.version, found.sink.step) == (None, 0)
    assert "sink is gone" in found.text()
    assert "Run 'ebbtide repair'" in found.misfit
    assert [finding.found for finding in repairing.plan(spark, spec, str(root)).findings] == ["gone"]
    repairing.repair(spark, spec, str(root))
    assert rows(spark, root, spec) == ROWS
    assert red(spark, root, spec) == set()
    assert run(LOCAL, spec, str(root)).steps == []


PROPERTIES = {"sink": {"table_properties": {"delta.logRetentionDuration": "interval 60 days"}}}


@pytest.mark.grid  # without Spark: tests/runtime/test_belonging.py, tests/operations/test_appended.py
@pytest.mark.parametrize("fields", [PROPERTIES, {}, MODES["merge"]])
def test_tables_that_are_dropped_during_a_run_are_made_again_by_a_repair(spark, tmp_path, fields):
    spec = plain_spec(write(tmp_path / "in", *FILES, MORE), **(BY_SEQUENCE | fields))
    root = tmp_path / "root"

    def drops(progress):
        if progress.step == 1:
            for name in ("sink", "quarantine"):
                shutil.rmtree(root / spec.name / name)

    with pytest.raises(TableMismatchError, match="sink' is gone"):
        run(LOCAL, spec, str(root), on_progress=drops)
    done = repairing.repair(spark, spec, str(root))
    assert done.findings[0].text().startswith("sink: gone; ")
    assert rows(spark, root, spec) == ROWS
    run(LOCAL, spec, str(root))
    assert rows(spark, root, spec) == [(1, "d"), (3, "e"), (4, "f")]
    assert red(spark, root, spec, ALL_JUDGED) == set()


@pytest.mark.grid  # without Spark: tests/operations/test_appended.py
def test_sink_whose_log_is_torn_is_moved_aside_and_made_again(spark, here):
    root, spec = here
    newest = max((root / spec.name / "sink" / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:20])
    with pytest.raises(DeltaLogError, match="'ebbtide repair --apply'"):
        run(LOCAL, spec, str(root))
    [finding] = repairing.plan(spark, spec, str(root)).findings
    assert finding.text().startswith("sink: its log cannot be read; to be moved aside and recreated; ")
    repairing.repair(spark, spec, str(root))
    assert rows(spark, root, spec) == ROWS
    assert (root / spec.name / "sink.aside-1" / "_delta_log").is_dir()
    assert red(spark, root, spec) == set()
    assert run(LOCAL, spec, str(root)).steps == []


DAMAGED_FILES = {
    "gone": lambda path: path.unlink(),
    "overwritten": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


@pytest.mark.grid  # without Spark: tests/operations/test_repair_damages.py
@pytest.mark.parametrize("damage", DAMAGED_FILES)
@pytest.mark.parametrize("has_way_back", [False, True])
def test_rows_of_a_damaged_data_file_of_the_sink_come_back(spark, here, monkeypatch, damage, has_way_back):
    root, spec = here
    path = str(root / spec.name / "sink")
    first, *_ = Snapshot.read(path).files.values()
    DAMAGED_FILES[damage](Path(first.location(path)))
    if not has_way_back:
        monkeypatch.setattr(SinkHistory, "way_back", lambda *_: None)
    [finding] = repairing.plan(spark, spec, str(root)).findings
    assert first.location(path) in finding.found
    repairing.repair(spark, spec, str(root))
    monkeypatch.undo()
    assert rows(spark, root, spec) == ROWS
    assert red(spark, root, spec) == set()
    assert not repairing.plan(spark, spec, str(root)).differs
    assert run(LOCAL, spec, str(root)).steps == []


@pytest.mark.grid  # at each of its places: test_repair_crash.py
def test_repair_that_died_after_its_decision_is_finished_by_the_next_run(spark, here):
    root, spec = here
    spark.sql(f"DELETE FROM delta.`{root / spec.name / 'sink'}` WHERE id = 1")
    with killed_before("the sink performs"):
        repairing.repair(spark, spec, str(root))
    assert idle_run(spec, str(root), 0) is None
    run(LOCAL, spec, str(root))
    assert rows(spark, root, spec) == ROWS
    assert red(spark, root, spec, ALL_JUDGED) == set()


@pytest.mark.grid  # without Spark: tests/checks/test_version_range.py
def test_changes_whose_files_were_vacuumed_are_left_out_and_said(spark, here):
    root, spec = here
    name = f"delta.`{root / spec.name / 'sink'}`"
    spark.sql(f"OPTIMIZE {name}")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"VACUUM {name} RETAIN 0 HOURS")
    tables = Plan.under(str(root), spec)
    window = VersionRange.after(tables)
    assert window.unreadable.startswith("changes of the sink in versions 1 to ")
    assert red(spark, root, spec, ALL_JUDGED) == set()
    DeltaTable(str(root / spec.name / "sink")).create_checkpoint()
    *older, _ = sorted((root / spec.name / "sink" / "_delta_log").glob("0*.json"))
    for file in older:
        file.unlink()
    assert red(spark, root, spec) == set()


def test_every_check_names_its_repair():
    for check in CHECKS:
        assert check.repair.endswith("."), check.name


FORGETS = {"ttl": "1h", "materializer": {"on_expire": "keep"}}


@pytest.fixture(scope="module")
def forgetful(spark, tmp_path_factory):
    """A pipeline whose state has forgotten the rows 1 to 3, which stay in the sink, and knows row 5."""
    folder = tmp_path_factory.mktemp("forgetful")
    source = write(folder / "in", [change("+I", id_, "abc"[id_ - 1], id_) for id_ in (1, 2, 3)])
    spec = plain_spec(source, **FORGETS)
    run(LOCAL, spec, str(folder / "root"))
    write(source, [change("+I", 5, "e", 5)], first=1)
    later = run(LOCAL, spec, str(folder / "root"), clock=lambda: system_clock() + 5 * 3_600_000)
    assert later.totals["orphaned"] == 3
    return folder, spec


FORGOTTEN = [(1, "a"), (2, "b"), (3, "c"), (5, "e")]
TO_FORGOTTEN = """
    INSERT INTO {} SELECT 9, v, seq, at, * EXCEPT (id, v, seq, at) FROM {} WHERE id = 1
        UNION ALL SELECT 8, v, seq, at, * EXCEPT (id, v, seq, at) FROM {} WHERE id = 1
        UNION ALL SELECT * FROM {} WHERE id = 2;
    UPDATE {} SET v = CASE id WHEN 1 THEN 'x' ELSE 'y' END WHERE id IN (1, 5);
    DELETE FROM {} WHERE id IN (3, 8)
"""


def do(spark, root, spec, text):
    name = f"delta.`{root / spec.name / 'sink'}`"
    for sql in text.format(*[name] * text.count("{}")).split(";"):
        spark.sql(sql)


def judged(spark, root, spec):
    """What the check `complete` finds."""
    tables = Plan.under(str(root), spec)
    window = VersionRange.after(tables)
    facts = window.last_step(tables)
    differing = SinkDifference.found(
        spark,
        tables,
        facts,
        state_version=window.state_until,
        sink_version=window.sink_until,
    )
    return repairing._counted(spec.name, differing)


def copied(forgetful, tmp_path):
    folder, spec = forgetful
    shutil.copytree(folder / "root", tmp_path / "root")
    return tmp_path / "root", spec


@pytest.mark.grid  # without Spark: tests/operations/test_repair_damages.py
def test_foreign_change_of_rows_that_the_state_has_forgotten_is_repaired(spark, forgetful, tmp_path):
    root, spec = copied(forgetful, tmp_path)
    assert rows(spark, root, spec) == FORGOTTEN
    do(spark, root, spec, TO_FORGOTTEN)
    assert red(spark, root, spec, ("complete",)) == {"complete"}
    found = judged(spark, root, spec)
    assert (found.missing, found.other, found.extra, found.repeated) == (1, 2, 1, 1)
    repairing.repair(spark, spec, str(root))
    assert rows(spark, root, spec) == FORGOTTEN
    assert red(spark, root, spec) == set()
    assert not repairing.plan(spark, spec, str(root)).differs


@pytest.mark.grid
def test_forgotten_row_that_was_deleted_twice_does_not_come_back(spark, forgetful, tmp_path):
    """By others, then by a row that came and went at the source: that leaves nothing in the sink's commits."""
    root, spec = copied(forgetful, tmp_path)
    do(spark, root, spec, "DELETE FROM {} WHERE id IN (1, 3); INSERT INTO {} SELECT * FROM {} WHERE id = 2")
    goes = change("-D", 3, "z", 7).replace('"seq": 7', '"seq": 6')
    parts = [[change("+I", 3, "z", 6), goes], [change("+I", 2, "f", 8)]]
    more = write(tmp_path / "in", *parts, first=2)
    moved = spec.model_copy(update={"source": spec.source.model_copy(update={"path": str(more)})})
    run(LOCAL, moved, str(root), accept_source_path=True)
    found = judged(spark, root, moved)
    assert (found.missing, found.other, found.extra) == (1, 0, 0)
    repairing.repair(spark, moved, str(root))
    assert rows(spark, root, moved) == [(1, "a"), (2, "f"), (5, "e")]


@pytest.mark.grid
def test_forgotten_rows_without_change_sets_are_not_judged_by_their_rows_and_no_repair_is_made(
    spark, forgetful, tmp_path
):
    root, spec = copied(forgetful, tmp_path)
    do(spark, root, spec, "DELETE FROM {} WHERE id = 3")
    more = write(tmp_path / "in", [change("+I", 6, "g", 9)], first=2)
    moved = spec.model_copy(update={"source": spec.source.model_copy(update={"path": str(more)})})
    run(LOCAL, moved, str(root), accept_source_path=True)
    tables = Plan.under(str(root), moved)
    version = next(version for version, facts in tables.state.steps() if facts.read.records)
    spark.sql(f"OPTIMIZE delta.`{tables.state.path}`")
    for location in Log(tables.state.path).added(version):
        Path(location).unlink()
    [finding] = repairing.plan(spark, moved, str(root)).findings
    assert finding.is_refused
    with pytest.raises(RepairError, match=r"Got: other clients changed rows: .* 'ebbtide acknowledge"):
        repairing.repair(spark, moved, str(root))
    assert red(spark, root, moved) == {"foreign_writes"}
    done = repairing.acknowledge(spark, moved, str(root), "meant")
    assert done.action == "acknowledged: meant"
    assert red(spark, root, moved) == set()
    assert not repairing.plan(spark, moved, str(root)).differs


@pytest.mark.grid  # without Spark: tests/operations/test_appended.py
def test_changelog_that_was_put_back_is_brought_to_all_steps_and_lost_bad_records_are_told(spark, tmp_path):
    source = write(tmp_path / "in", FILES[0])
    spec = plain_spec(source, materializer={"emission": "every"})
    root = tmp_path / "root"
    run(LOCAL, spec, str(root))
    shutil.copytree(root / spec.name / "changelog", tmp_path / "earlier")
    write(source, FILES[1], MORE, first=1)
    run(LOCAL, spec, str(root))
    before = table(spark, root, spec, "changelog")
    shutil.rmtree(root / spec.name / "changelog")
    shutil.copytree(tmp_path / "earlier", root / spec.name / "changelog")
    shutil.rmtree(root / spec.name / "quarantine")
    with pytest.raises(TableMismatchError, match="'ebbtide repair'"):
        run(LOCAL, spec, str(root))
    planned = repairing.plan(spark, spec, str(root))
    assert [loss.partition(";")[0] for loss in planned.losses] == [
        "changelog: put back from step 2 to step 1",
        "quarantine: gone",
    ]
    assert planned.differs
    done = repairing.repair(spark, spec, str(root))
    assert done.losses == planned.losses
    assert done.losses[1].endswith("1 row of step 1 lost: the files that held them are gone")
    facts = Plan.under(str(root), spec).state.last()[1]
    assert facts.cause.notes == planned.losses
    after = table(spark, root, spec, "changelog")
    assert sorted(after, key=repr) == sorted(before, key=repr)
    assert run(LOCAL, spec, str(root)).steps == []
