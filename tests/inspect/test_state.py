"""Stored state as rows, and conditions on them: with and without Spark."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from clusters.spark_cluster import written_spec
from frame.circumstances import assume
from frame.limits import set_limits
from local.local_pipeline import LocalPipeline, up
from local.local_run import SPARK
from pyspark.errors import AnalysisException
from servers.store_support import line, stateful

from ebbtide import InProcess, run
from ebbtide.columns import json_text
from ebbtide.errors import ConfigError
from ebbtide.inspect import state, state_frame
from ebbtide.sqltext import Condition, UnfitExpressionError

DAY = 86_400_000
SCHEMA = """id BIGINT, n BIGINT, d DECIMAL(38,4), small SMALLINT, real DOUBLE, v STRING, raw BINARY, flag BOOLEAN,
    day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, nested STRUCT<a: STRING, inner: STRUCT<b: BIGINT>>, many ARRAY<DECIMAL(5,2)>"""
ROWS = [
    {"d": "1.5", "small": 1, "real": 0.5, "v": "a", "raw": "AP8=", "flag": True, "day": "1969-12-31"},
    {
        "d": "-99999999999999999999999999999999.9999",
        "small": -3,
        "real": "NaN",
        "v": "B",
        "flag": False,
        "day": "2026-01-02",
    },
    {
        "v": "",
        "at": "1969-12-31T23:59:59.5Z",
        "local": "1969-12-31T23:59:59.5",
        "day": "1969-12-31",
        "nested": {"a": "x", "inner": {"b": 7}},
    },
    {
        "at": "2026-01-02T00:00:00Z",
        "local": "2026-01-02T00:00:00",
        "day": "2026-01-01",
        "nested": {"a": None, "inner": None},
        "many": ["1.50"],
    },
    {},
]
CONDITIONS = [
    "id < 3 AND NOT v = 'a'",
    "v IS NULL OR v > 'A'",
    "d = 1.50",
    "d > small",
    "n >= 0 AND small IN (1, 4, -3)",
    "small <> -3",
    "id BETWEEN 2 AND 4.5",
    "id < 99999999999999999999999999",
    "flag",
    "NOT flag AND true",
    "raw IS NULL",
    "real IS NOT NULL",
    "day < CAST(at AS DATE) OR day = CAST(local AS DATE)",
    "day = CAST(at AS DATE)",
    "CAST(at AS TIMESTAMP_NTZ) = local",
    "CAST(day AS TIMESTAMP_NTZ) <= local",
    "nested.a = 'x'",
    "NESTED.inner.B = 7 AND (nested.a IS NULL OR `v` = '')",
    "tombstone",
    "live AND expires IS NULL",
    "step = 2",
]


@pytest.fixture
def kinds(tmp_path):
    """A pipeline with columns of many kinds, with nulls and without."""
    pipeline = LocalPipeline(tmp_path, schema=SCHEMA)
    nulls = dict.fromkeys(pipeline.spec.table.columns.names[2:])
    pipeline.read(*[up(id_, id_, **{**nulls, **row}) for id_, row in enumerate(ROWS, 1)])
    pipeline.read(up(5, 9, "-D", **nulls))
    return pipeline


def test_state_has_the_rows_of_all_kinds_of_columns(kinds):
    rows = {row["id"]: row for row in state(SPARK, kinds.spec, kinds.root).to_pylist()}
    assert sorted(rows) == [1, 2, 3, 4, 5]
    assert (rows[1]["d"], rows[1]["raw"], rows[1]["real"]) == (Decimal("1.5000"), b"\x00\xff", 0.5)
    assert rows[2]["d"] == Decimal("-99999999999999999999999999999999.9999")
    assert rows[3]["at"] == datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC)
    assert rows[4]["nested"] == {"a": None, "inner": None}
    assert [rows[id_]["tombstone"] for id_ in (1, 5)] == [False, True]
    assert {row["live"] for row in rows.values()} == {True}
    assert len(state(SPARK, kinds.spec, kinds.root, limit=2)) == 2


def test_ranges_of_keys_have_the_same_rows(kinds):
    whole = state(SPARK, kinds.spec, kinds.root).sort_by("id")
    set_limits(rewriting_rows_in_part=1, rows_in_piece=1)
    assert repr(state(SPARK, kinds.spec, kinds.root).sort_by("id").to_pylist()) == repr(whole.to_pylist())
    assert state(SPARK, kinds.spec, kinds.root, where="id = 3") == whole.slice(2, 1)
    assert len(state(SPARK, kinds.spec, kinds.root, limit=2)) == 2


def test_condition_that_is_none_is_refused(kinds):
    assume("without Spark")
    with pytest.raises(
        ConfigError, match=r"not a condition on the state's columns\. Got: no = 1\. Allowed: SQL on id, n, d"
    ):
        state(SPARK, kinds.spec, kinds.root, where="no = 1")
    with pytest.raises(
        ConfigError, match=r"Only Spark can judge this condition.*Got: length\(v\) = 1\. Allowed: comparisons"
    ):
        state(SPARK, kinds.spec, kinds.root, where="length(v) = 1")


@pytest.mark.parametrize(
    "text", ["length(v) = 1", "real > 0.5", "n", "v = 1", "n = '1'", "v LIKE 'a%'", "v = 'a\\\\b'", "n = 1e3", "n ="]
)
def test_condition_of_which_a_part_may_mean_something_else_is_left_to_spark(text):
    columns = pa.schema([("n", pa.int64()), ("v", pa.string()), ("real", pa.float64())])
    assert Condition.of(text, columns) is None
    with pytest.raises(UnfitExpressionError, match="there is no column nope"):
        Condition.of("nope = 1 OR n = 2", columns)


def everything(tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    for number, v in enumerate("ab"):
        row = line(1, v=v, seq=5 + number, day=f"2026-01-0{number + 1}")
        source.joinpath(f"{number}.jsonl").write_text(row + "\n")
    fields = {"path": str(source), "records": "value", "max_files_per_step": 1}
    return stateful("user_functions:Everything", source=fields, ttl={"recent": "1d"})


@pytest.mark.demand("ttl-queryable", "ttl-meta")
def test_states_of_a_function_are_read_as_rows_as_of_a_step(tmp_path):
    root = str(tmp_path)
    spec = everything(tmp_path)
    last = run(InProcess(), spec, root).steps[-1].clock.now_ms
    [row] = state(SPARK, spec, root, state="profile").to_pylist(maps_as_pydicts="strict")
    assert (row["id"], row["state"], row["value"]["tags"]) == (1, "profile", ["a", "b"])
    assert (row["live"], row["expires"], row["accessed"]) == (True, None, None)
    recent = state(SPARK, spec, root, state="recent").sort_by("position")
    assert recent["value"].to_pylist() == [5, 6]
    assert recent["expires"][1].as_py() == datetime.fromtimestamp((last + DAY) / 1000, UTC)
    assert state(SPARK, spec, root, state="recent", now_ms=last + DAY)["live"].to_pylist() == [False, False]
    assert state(SPARK, spec, root, as_of_step=1, where="map_key = 'b'").num_rows == 0
    mapped = state(SPARK, spec, root, where="map_key IS NOT NULL").sort_by("map_key").to_pylist()
    assert [(row["state"], row["map_key"], json.loads(row["value"])) for row in mapped] == [
        ("per_word", "a", 1),
        ("per_word", "b", 1),
    ]
    with pytest.raises(ConfigError, match=r"Got: nope\. Allowed: profile, recent, per_word"):
        state(SPARK, spec, root, state="nope")
    with pytest.raises(ConfigError, match=r"Got: 9\. Allowed: 1 to 2"):
        state(SPARK, spec, root, as_of_step=9)


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (0.1, pa.float32(), "0.1"),
        (float("nan"), pa.float64(), '"NaN"'),
        (Decimal("1.50"), pa.decimal128(5, 2), "1.50"),
        (b"\x00\xff", pa.binary(), '"AP8="'),
        (
            {"a": None, "b": [1, None]},
            pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))]),
            '{"a":null,"b":[1,null]}',
        ),
    ],
)
def test_value_is_written_as_json(value, type_, text):
    assert json_text(value, type_) == text


@pytest.mark.spark
def test_spark_reads_the_same_rows_and_judges_conditions_alike(spark, kinds):
    spec, root = kinds.spec, kinds.root
    here = state(SPARK, spec, root).sort_by("id")
    there = state_frame(spark, spec, root).toArrow().sort_by("id")
    assert there.column_names == here.column_names
    assert repr(there.to_pylist()) == repr(here.to_pylist())
    by_spark = {
        text: state(spark, spec, root, where=f"({text}) AND abs(id) > 0")["id"].to_pylist() for text in CONDITIONS
    }
    assume("without Spark")
    judged = {text: state(spark, spec, root, where=text)["id"].to_pylist() for text in CONDITIONS}
    assert {text: sorted(ids) for text, ids in judged.items()} == {text: sorted(ids) for text, ids in by_spark.items()}
    assert {text for text, ids in judged.items() if not ids or len(ids) == len(ROWS)} <= {
        "live AND expires IS NULL",
        "id < 99999999999999999999999999",
    }


@pytest.mark.spark
def test_state_is_a_format_of_spark_for_sql_and_programs_without_the_spec(spark, kinds, tmp_path):
    spec = str(written_spec(tmp_path / "spec", kinds.spec))

    def read(**options):
        rows = spark.read.format("ebbtide").options(spec=spec, root=kinds.root, **options).load()
        return rows.toArrow().sort_by("id")

    for step in (1, 2):
        here = state(SPARK, kinds.spec, kinds.root, as_of_step=step).sort_by("id")
        assert repr(read(step=step).to_pylist()) == repr(here.to_pylist())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW kinds USING ebbtide OPTIONS (spec '{spec}', root '{kinds.root}')")
    [row] = spark.sql("SELECT count(*), count_if(tombstone) FROM kinds").collect()
    assert tuple(row) == (5, 1)
    with pytest.raises(AnalysisException, match=r"has no such step. Got: 9. Allowed: 1 to 2"):
        read(step=9)
    with pytest.raises(AnalysisException, match=r"'step' is no step.*Got: last"):
        read(step="last")
    with pytest.raises(AnalysisException, match=r"The option 'root' is missing"):
        spark.read.format("ebbtide").option("spec", spec).load()
