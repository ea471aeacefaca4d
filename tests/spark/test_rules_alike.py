"""Rules find the same in this process and on Spark: on random rows of any type, and on pipelines with random damage."""

import random

import pyarrow as pa
import pytest
from folding import FoldedAtRandom, spec_at_random, steps_at_random
from judging import verdict_of
from random_rows import KEY, compared_at_random

from ebbtide.checks.completeness import differing_keys
from ebbtide.checks.engines import Engines, InProcess, OnSpark, broken
from ebbtide.checks.great_expectations.spec_expectations import judge as judge_own
from ebbtide.checks.great_expectations.validate import validate
from ebbtide.checks.judged import Judged
from ebbtide.checks.keys import duplicate_keys
from ebbtide.checks.version_range import VersionRange
from ebbtide.delta.snapshot import Snapshot
from ebbtide.delta.table import add_file, commit_after, read_rows, replacing
from ebbtide.ledger.puts import LOCAL
from ebbtide.spec.parts import ChecksConfig


@pytest.mark.parametrize("seed", range(6))
def test_rows_of_all_types_are_compared_alike(spark, seed):
    rng = random.Random(seed)
    rows = compared_at_random(rng)
    expected = [differing_keys.expected(), duplicate_keys.expected(key=KEY)]
    here, on_spark = [broken(engine, rows, expected) for engine in (InProcess(), OnSpark(lambda: spark))]
    assert here == on_spark


def spoil(rng, path, columns, schema):
    """Change, repeat or take away rows of a table, as another client does, in some columns."""
    found = Snapshot.read(path)
    rows = read_rows(found, schema).to_pylist()
    for _ in range(rng.randint(1, 3)):
        if rows:
            row = rng.choice(rows)
            name = rng.choice(columns)
            rows[rng.randrange(len(rows))] = {**row, name: rng.choice([each[name] for each in rows])}
    rows = rng.sample(rows, rng.randint(len(rows) // 2, len(rows)))
    file = add_file(path, f"theirs-{rng.random()}.parquet", pa.Table.from_pylist(rows, schema), bounded=())
    commit_after(LOCAL, found, replacing(found.files.values(), [file]), {"operation": "UPDATE"})


@pytest.mark.parametrize(
    ("kind", "seed"), [("sequence", 3), ("arrival", 5), pytest.param("rows of a function", 7, marks=pytest.mark.grid)]
)
def test_damaged_pipelines_are_judged_alike(spark, tmp_path, kind, seed):
    rng = random.Random(f"{kind}{seed}")
    pipeline = FoldedAtRandom(spec_at_random(kind, rng), tmp_path, rng)
    for lines, now_ms in steps_at_random(kind, rng):
        pipeline.play(lines, now_ms)
    plan = pipeline.plan
    spoil(rng, plan.sink.path, plan.sink.schema.names, plan.sink.schema)
    spoil(rng, plan.state.path, ["_step", "_change", "n", "_stamp_ms"], plan.state.schema)
    n_broken = 0
    for check in ("ordering", "complete", "expiry", "unique_key"):
        n_broken += sum(each.broken for each in verdict_of(spark, plan, check, clock_ms=10_000).findings)
    assert n_broken


OWN = [
    {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "w"}},
    {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "n", "value_set": [1, 2], "mostly": 0.5}},
    {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "min_value": 1, "strict_min": True}},
    {"type": "expect_table_row_count_to_equal", "kwargs": {"value": 7}},
    {
        "type": "unexpected_rows_expectation",
        "kwargs": {"unexpected_rows_query": "SELECT * FROM {batch} WHERE n > 0 OR w IS NULL"},
    },
    {
        "type": "unexpected_rows_expectation",
        "kwargs": {"unexpected_rows_query": "SELECT id FROM {batch} WHERE NOT n IN (0, 1)"},
    },
]


def test_rules_of_a_project_find_the_same_in_this_process(spark, tmp_path):
    rng = random.Random(11)
    pipeline = FoldedAtRandom(spec_at_random("sequence", rng), tmp_path, rng)
    for lines, now_ms in steps_at_random("sequence", rng):
        pipeline.play(lines, now_ms)
    rows = [{"id": n, "n": rng.choice([None, 0, 1, 2]), "w": rng.choice([None, 1])} for n in range(30)]
    plan = pipeline.plan
    found = Snapshot.read(plan.sink.path)
    file = add_file(found.table, "theirs.parquet", pa.Table.from_pylist(rows, plan.sink.schema), bounded=())
    commit_after(LOCAL, found, replacing(found.files.values(), [file]), {"operation": "WRITE"})
    spec = plan.spec.model_copy(update={"checks": ChecksConfig(expectations=OWN)})
    window = VersionRange.after(plan)

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
    assert sum(bool(each.broken) for each in here) == len(OWN)
