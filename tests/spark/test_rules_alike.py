"""Rules find the same in this process and on Spark: on random rows of any type, and on pipelines with random damage."""

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from folding import FoldedAtRandom, spec_at_random, steps_at_random
from judging import verdict_of

from ebbtide.checks.comparing import compared
from ebbtide.checks.completeness import differing_keys
from ebbtide.checks.engines import Engines, InProcess, OnSpark, broken
from ebbtide.checks.great_expectations.spec_expectations import judge as judge_own
from ebbtide.checks.great_expectations.validate import validate
from ebbtide.checks.inputs import GivenRows
from ebbtide.checks.judged import Judged
from ebbtide.checks.keys import duplicate_keys
from ebbtide.checks.rule import Rows
from ebbtide.checks.version_range import VersionRange
from ebbtide.delta.snapshot import Snapshot
from ebbtide.delta.table import add_file, commit_after, read_rows, replacing
from ebbtide.ledger.puts import LOCAL
from ebbtide.spec.parts import ChecksConfig

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EARLY = datetime(1900, 1, 1, 0, 0, 0, 1, tzinfo=UTC).replace(tzinfo=None)
VALUES = {
    'k`e"y.': (pa.int64(), [None, 1, 2, 3]),
    "text": (pa.string(), [None, "", "a", "é", "Z'\\", "null"]),
    "double": (pa.float64(), [None, math.nan, 0.0, -0.0, 1e300, math.inf]),
    "small": (pa.decimal128(38, 10), [None, Decimal("1.5"), Decimal("-0.0000000001")]),
    "flag": (pa.bool_(), [None, True, False]),
    "day": (pa.date32(), [None, date(1, 1, 1), date(2026, 1, 2)]),
    "at": (pa.timestamp("us", tz="UTC"), [None, AT, AT + timedelta(microseconds=1), AT + timedelta(milliseconds=1)]),
    "local": (pa.timestamp("us"), [None, AT.replace(tzinfo=None), EARLY]),
    "raw": (pa.binary(), [None, b"", b"\x00\xff"]),
    "list": (pa.list_(pa.int32()), [None, [], [1, None], [None, 1]]),
    "map": (
        pa.map_(pa.string(), pa.timestamp("us")),
        [None, [], [("a", None)], [("a", EARLY)]],
    ),
    "struct": (pa.struct({"x": pa.float64(), "y": pa.string()}), [None, {"x": None, "y": None}, {"x": 1.0, "y": "b"}]),
}
KEY = [next(iter(VALUES))]


def rows_at_random(rng, n):
    columns = {name: pa.array(rng.choices(values, k=n), type_) for name, (type_, values) in VALUES.items()}
    return pa.table(columns)


def damaged(rng, rows):
    """Rows of which some are gone, some there twice, some have another value in a column."""
    found = rows.to_pylist()
    for _ in range(rng.randint(0, 4)):
        row = dict(rng.choice(found))
        name = rng.choice(list(VALUES))
        row[name] = rng.choice(VALUES[name][1])
        found[rng.randrange(len(found))] = row
    if rng.random() < 0.5:
        found.append(rng.choice(found))
    if rng.random() < 0.5:
        found.pop(rng.randrange(len(found)))
    return pa.Table.from_pylist(found, rows.schema)


def compared_at_random(rng):
    """A comparison of rows with damaged ones, whose keys are distinct at first."""
    rows = rows_at_random(rng, 4).set_column(0, KEY[0], pa.array([1, 2, 3, 4], pa.int64()))
    n = len(rows)
    decided = rows.append_column("_step", pa.array([1] * n, pa.int64()))
    decided = decided.append_column("_is_decided", pa.array(rng.choices([True, True, False], k=n)))

    def query(sql):
        names = "SELECT * FROM decided", "SELECT * FROM shown"
        return compared(sql, *names, KEY, rows.schema, join="FULL OUTER")

    inputs = {"decided": GivenRows(decided), "shown": GivenRows(damaged(rng, rows))}
    return Rows(inputs, query, [*KEY, "_decided", "_shown", "_rows"], KEY)


@pytest.mark.parametrize("seed", range(6))
def test_rows_of_all_types_are_compared_alike(spark, seed):
    rng = random.Random(seed)
    rows = compared_at_random(rng)
    expected = [differing_keys.expected(), duplicate_keys.expected(key=KEY)]
    here, on_spark = [broken(engine, rows, expected) for engine in (InProcess(), OnSpark(lambda: spark))]
    assert here == on_spark
    shown = rows.inputs["shown"].read().to_pylist()
    decided = [row for row in rows.inputs["decided"].read().to_pylist() if row["_is_decided"]]
    by_key = {row[KEY[0]]: [each for each in shown if each[KEY[0]] == row[KEY[0]]] for row in decided}
    wrong = {key for key, found in by_key.items() if len(found) != 1}
    assert wrong <= {row[KEY[0]] for row in here[0].sample}


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
