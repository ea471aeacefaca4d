"""Rules find the same on Spark as in this process, and what Spark has done to tables; each rule by itself: `tests/checks/test_rules.py`."""

import random
import shutil

import pyarrow as pa
import pytest
from clusters.spark_support import LOCAL, change, plain_spec, write
from local.folding import FoldedAtRandom, spec_at_random, steps_at_random
from oracles.judging import validate, verdict_of
from oracles.random_rows import compared_at_random

from ebbtide import run
from ebbtide.checks import Engines, VersionRange, checks_of
from ebbtide.checks._engines import InProcess, OnSpark, broken
from ebbtide.checks._judged import Judged
from ebbtide.checks._ordering import decision_mismatches
from ebbtide.delta import DataFile, Snapshot, Writer
from ebbtide.runtime import Plan
from ebbtide.spec._parts import ChecksConfig

BY_SEQ = {"sequence": ["seq"]}
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


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.grid) for seed in range(2, 6))])
def test_rows_of_all_types_are_compared_alike(spark, seed):
    rng = random.Random(seed)
    rows = compared_at_random(rng)
    expected = [decision_mismatches.expected()]
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
    Writer().commit(found, DataFile.replacing(found.files.values(), [file]), {"operation": "UPDATE"})


JUDGED = ("ordering", "expiry", "unique_key", "complete")
"""The last is no query: it compares ranges of keys."""


@pytest.mark.parametrize(
    ("kind", "seed", "judged"),
    [
        ("sequence", 6, JUDGED[:3]),
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
    Writer().commit(found, DataFile.replacing(found.files.values(), [file]), {"operation": "WRITE"})
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
