"""Rules find the same on Spark as in this process, and what Spark has done to tables; each rule by itself: `tests/checks/test_rules.py`."""

import random
import shutil
import sys
from types import SimpleNamespace

import pyarrow as pa
import pytest
from clusters.spark_support import LOCAL, change, plain_spec, write
from local.folding import FoldedAtRandom, spec_at_random, steps_at_random, told
from oracles.judging import validate, verdict_of
from oracles.random_rows import KEY, compared_at_random

from ebbtide import run
from ebbtide.checks import Check, Engines, VersionRange, checks_of
from ebbtide.checks._completeness import differing_keys
from ebbtide.checks._engines import InProcess, OnSpark, broken
from ebbtide.checks._entries import Entries
from ebbtide.checks._event_time import stale_events
from ebbtide.checks._inputs import TableRows
from ebbtide.checks._judged import Batch, Judged
from ebbtide.checks._keys import duplicate_keys
from ebbtide.checks._rule import Rows
from ebbtide.checks.great_expectations import checks
from ebbtide.checks.great_expectations.checks import CHECKS
from ebbtide.delta import DataFile, Snapshot, Writer, replacing
from ebbtide.ledger import writer_of
from ebbtide.operations._stepping import stepping
from ebbtide.runtime import Plan, StateRewrite, system_clock
from ebbtide.spec._parts import ChecksConfig
from ebbtide.tables import KeepEntries

BY_SEQ = {"sequence": ["seq"]}
OLD = "named_struct('step', 0L, 'part', 0L, 'position', 0L)"
STEPS = (
    [change("+I", 1, "a", 1), change("+I", 2, "b", 2), change("+I", 3, "c", 3)],
    [change("+U", 1, "d", 4), change("-D", 3, "c", 5)],
)


@pytest.fixture(scope="module")
def made(spark, tmp_path_factory):
    """Plan of a run by sequence; copied before they are broken."""
    home = tmp_path_factory.mktemp("rules")
    spec = plain_spec(write(home / "in", *STEPS), order=BY_SEQ, ttl="1d")
    run(LOCAL, spec, str(home / "root"))
    return home, spec


@pytest.fixture
def tables(made, tmp_path):
    home, spec = made
    shutil.copytree(home / "root", tmp_path / "root")
    return Plan.under(str(tmp_path / "root"), spec)


def judge(spark, tables, check, clock_ms=None, judged=None, *, on_spark=False):
    """Return what each expectation of a check found."""
    verdict = verdict_of(spark, tables, check, clock_ms=clock_ms, last_good=judged, on_spark=on_spark)
    return {(f.expectation, f.severity): f.broken for f in verdict.findings}


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.grid) for seed in range(2, 6))])
def test_rows_of_all_types_are_compared_alike(spark, seed):
    rng = random.Random(seed)
    rows = compared_at_random(rng)
    expected = [differing_keys.expected(), duplicate_keys.expected(key=KEY)]
    here, on_spark = [broken(engine, rows, expected) for engine in (InProcess(), OnSpark(lambda: spark))]
    assert here == on_spark


def spoil(rng, path, columns, schema):
    """Change, repeat or take away rows of a table, as another client does, in some columns."""
    found = Snapshot.read(path)
    rows = found.rows(schema).to_pylist()
    for _ in range(rng.randint(1, 3)):
        if rows:
            row = rng.choice(rows)
            name = rng.choice(columns)
            rows[rng.randrange(len(rows))] = {**row, name: rng.choice([each[name] for each in rows])}
    rows = rng.sample(rows, rng.randint(len(rows) // 2, len(rows)))
    file = DataFile.write(path, f"theirs-{rng.random()}.parquet", pa.Table.from_pylist(rows, schema), bounded=())
    Writer().commit(found, replacing(found.files.values(), [file]), {"operation": "UPDATE"})


JUDGED = ("ordering", "expiry", "complete", "unique_key")
"""The queries of the last two run on Spark in the test above, too."""


@pytest.mark.parametrize(
    ("kind", "seed", "judged"),
    [
        ("sequence", 6, JUDGED[:2]),
        pytest.param("sequence", 6, JUDGED, marks=pytest.mark.grid),
        pytest.param("arrival", 5, JUDGED, marks=pytest.mark.grid),
        pytest.param("rows of a function", 7, JUDGED, marks=pytest.mark.grid),
    ],
)
def test_damaged_pipelines_are_judged_alike(spark, tmp_path, kind, seed, judged):
    rng = random.Random(f"{kind}{seed}")
    pipeline = FoldedAtRandom(spec_at_random(kind, rng), tmp_path, rng)
    for lines, now_ms in steps_at_random(kind, rng):
        pipeline.play(lines, now_ms)
    plan = pipeline.plan
    spoil(rng, plan.sink.path, plan.sink.schema.names, plan.sink.schema)
    spoil(rng, plan.state.path, ["_step", "_change", "_stamp_ms"], plan.state.schema)
    broken = set()
    for check in judged:
        verdict = verdict_of(spark, plan, check, clock_ms=10_000, on_spark=True)
        broken |= {each.expectation for each in verdict.findings if each.broken}
    assert broken >= {"expect_changes_to_rise_per_key", "expect_sink_to_show_decisions"}


QUERY = "great_expectations.expectations.core.unexpected_rows_expectation:UnexpectedRowsExpectation"
OWN = [
    {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "w"}},
    {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "n", "value_set": [1], "mostly": 0.5}},
    {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "min_value": 1, "strict_min": True}},
    {"type": "expect_table_row_count_to_equal", "kwargs": {"value": 7}},
    {
        "type": QUERY,
        "kwargs": {"unexpected_rows_query": "SELECT * FROM {batch} WHERE n > 0 OR w IS NULL"},
    },
    {
        "type": QUERY,
        "kwargs": {"unexpected_rows_query": "SELECT id FROM {batch} WHERE NOT n IN (0, 1)"},
    },
]


@pytest.mark.parametrize("own", [OWN[::2], pytest.param(OWN, marks=pytest.mark.grid)], ids=["some", "all"])
def test_rules_of_a_project_find_the_same_in_this_process(spark, tmp_path, own):
    rng = random.Random(11)
    pipeline = FoldedAtRandom(spec_at_random("sequence", rng), tmp_path, rng)
    for lines, now_ms in steps_at_random("sequence", rng):
        pipeline.play(lines, now_ms)
    rows = [{"id": n, "n": rng.choice([0, 1, 2]), "w": rng.choice([None, 1])} for n in range(30)]
    plan = pipeline.plan
    found = Snapshot.read(plan.sink.path)
    file = DataFile.write(found.table, "theirs.parquet", pa.Table.from_pylist(rows, plan.sink.schema), bounded=())
    Writer().commit(found, replacing(found.files.values(), [file]), {"operation": "WRITE"})
    spec = plan.spec.model_copy(update={"checks": ChecksConfig(expectations=own)})
    window = VersionRange.after(plan)
    [judge_own] = [each.load() for each in checks_of(spec) if each.name == "expectations"]

    def findings(engines):
        judged = Judged(engines, type(plan)(plan.root, spec), window, 0)
        batches = list(judge_own(judged))
        verdict = validate("expectations", batches, None, 1)
        order = sorted(verdict.findings, key=repr)
        return {type(batch.rows).__module__.partition(".")[0] for batch in batches}, order

    def no_session():
        raise AssertionError("a session was asked for")

    in_pandas, here = findings(Engines(no_session))
    in_spark, on_spark = findings(Engines(lambda: spark, most_rows=0))
    assert (in_pandas, in_spark) == ({"pandas"}, {"pyspark"})
    assert here == on_spark
    assert sum(bool(each.broken) for each in here) == len(own)


@pytest.mark.grid
def test_row_with_an_older_cause_breaks_ordering(spark, tables):
    spark.sql(f"UPDATE delta.`{tables.sink.path}` SET _changed_by = {OLD} WHERE id = 2")
    found = judge(spark, tables, "ordering")
    assert found == {
        ("expect_changes_to_rise_per_key", "critical"): 1,
        ("expect_sink_to_show_decisions", "critical"): 1,
        ("expect_sequences_to_decide", "critical"): 0,
        ("expect_values_to_arrive", "warning"): 0,
    }


DELETES = "DELETE FROM {sink} WHERE id = 2"
UPDATES = "UPDATE {sink} SET v = 'x', _changed_by.step = 9 WHERE id = 1"


@pytest.mark.grid
@pytest.mark.parametrize("statement", [UPDATES, DELETES])
def test_sink_that_does_not_show_the_decision_breaks_ordering(spark, tables, statement):
    spark.sql(statement.format(sink=f"delta.`{tables.sink.path}`"))
    found = judge(spark, tables, "ordering")
    assert found[("expect_sink_to_show_decisions", "critical")] == 1


@pytest.mark.grid
def test_note_that_a_fold_leaves_beside_an_older_decision_keeps_ordering(spark, tmp_path):
    steps = [change("+I", 1, "a", 1)], [change("+U", 1, "B", 2)], [change("+U", 1, "b", 2)]
    spec = plain_spec(write(tmp_path / "in", *steps), order=BY_SEQ)
    root = str(tmp_path / "root")
    run(LOCAL, spec, root)
    tables = Plan.under(root, spec)
    with stepping(spark, tables) as stepper:
        state = stepper.newest()
        later = [file for file in state.files.values() if file.least("_step") > 1]
        keep = KeepEntries(is_whole=False)
        adds = StateRewrite(tables, later, keep, is_whole=False, data_change=False).written(spark, step=3)
        writer_of(tables.state.path).join(state, later, adds, {})
    noted = tables.state.frames.read(spark, tables.state.snapshot().version).orderBy("_step").collect()
    assert [(row["_step"], row["v"], row["_change"]) for row in noted] == [(1, "a", "I"), (3, "B", None)]
    assert judge(spark, tables, "ordering")[("expect_sink_to_show_decisions", "critical")] == 0
    spark.sql(f"UPDATE delta.`{tables.sink.path}` SET v = 'x' WHERE id = 1")
    assert judge(spark, tables, "ordering")[("expect_sink_to_show_decisions", "critical")] == 1


@pytest.mark.grid
@pytest.mark.parametrize(
    ("kind", "seeds"), [("arrival", (4, 9)), ("sequence", (4, 36)), ("rows of a function", (5, 38))]
)
def test_state_folded_at_random_places_says_what_its_newest_entries_do(spark, tmp_path, kind, seeds):
    for seed in seeds:
        rng = random.Random(f"{kind}{seed}")
        pipeline = FoldedAtRandom(spec_at_random(kind, rng), tmp_path / str(seed), rng)
        for lines, now_ms in steps_at_random(kind, rng):
            pipeline.play(lines, now_ms)
        plan = pipeline.plan
        engine = InProcess()
        state_rows = TableRows(plan.state.path, plan.state.snapshot().version, plan.state.schema)
        query = Entries(plan, engine.dialect).decided(None)
        [decided] = engine.run({"state_rows": state_rows}, iter([query]))
        found = decided.to_pylist()
        want = {key: row and row["_changed_by"] for key, row in told(plan).items()}
        by_key = {tuple(row[name] for name in plan.sink.key): row for row in found}
        assert len(by_key) == len(found)
        assert {key: None if row["_change"] == "D" else row["_changed_by"] for key, row in by_key.items()} == want
        assert judge(spark, plan, "ordering")[("expect_sink_to_show_decisions", "critical")] == 0


@pytest.mark.grid
def test_entry_past_its_time_warns_within_the_grace_and_then_is_an_error(spark, tables):
    for hours, late, warned, left in [(23, 0, 0, 0), (24.5, 0, 1, 0), (26, 1, 1, 0), (24 * 9, 1, 1, 1)]:
        clock_ms = system_clock() + int(hours * 3_600_000)
        found = judge(spark, tables, "expiry", clock_ms=clock_ms, on_spark=left > 0)
        assert found == {
            ("expect_entries_to_expire", "critical"): late,
            ("expect_entries_to_expire", "warning"): warned,
            ("expect_expired_entries_to_be_deleted", "warning"): left,
        }, hours


@pytest.mark.grid
def test_key_with_two_rows_breaks_unique_key_and_is_a_foreign_write(spark, tables):
    rows = spark.read.format("delta").load(tables.sink.path).where("id = 2")
    rows.write.format("delta").mode("append").save(tables.sink.path)
    assert judge(spark, tables, "unique_key") == {("expect_keys_to_be_unique", "critical"): 1}
    assert judge(spark, tables, "foreign_writes") == {("expect_commits_to_be_ours", "critical"): 1}


@pytest.mark.grid
def test_joining_files_is_no_foreign_write_and_a_change_of_the_state_is(spark, tables):
    spark.sql(f"OPTIMIZE delta.`{tables.sink.path}`")
    assert judge(spark, tables, "foreign_writes") == {("expect_commits_to_be_ours", "critical"): 0}
    spark.sql(f"DELETE FROM delta.`{tables.state.path}` WHERE id = 1")
    assert judge(spark, tables, "foreign_writes") == {("expect_commits_to_be_ours", "critical"): 1}


@pytest.mark.grid
def test_newest_event_is_held_to_what_the_spec_allows_by_both_engines(spark):
    newest = Rows.given(pa.table({"behind_ms": pa.array([None, 3_600_001, 3_600_000], pa.int64())}))
    for engine in (InProcess(), OnSpark(lambda: spark)):
        [stale] = broken(engine, newest, [stale_events.expected(max_delay_ms=3_600_000)])
        assert (stale.count, stale.sample) == (2, [{}, {"behind_ms": 3_600_001}])


@pytest.mark.grid
def test_expectation_that_raises_is_an_error_and_no_verdict(spark, tmp_path):
    import great_expectations as gx

    from ebbtide.checks.great_expectations.validate import ExpectationRaisedError

    raising = gx.expectations.ExpectColumnValuesToBeUnique(column="no_such_column")
    with pytest.raises(ExpectationRaisedError, match="expect_column_values_to_be_unique could not be evaluated"):
        validate("unique_key", [Batch(spark.range(3), [raising])], tmp_path, keep=2)


def judge_values(judged):
    """A check of another module: no value is 'b'."""
    import great_expectations as gx

    rows = judged.tables.sink.read(judged.spark, judged.window.sink_until)
    yield Batch(rows, [gx.expectations.ExpectColumnValuesToMatchRegex(column="v", regex="^[^b]*$")])


def test_check_of_a_module_of_its_own_is_judged_as_the_others_are(spark, tables, monkeypatch):
    values = Check("values", "No value is 'b'.", judge="value_checks:judge_values")
    monkeypatch.setitem(sys.modules, "value_checks", SimpleNamespace(judge_values=judge_values))
    monkeypatch.setattr(checks, "CHECKS", (*CHECKS, values))
    assert judge(spark, tables, "values") == {("expect_column_values_to_match_regex", "critical"): 1}
