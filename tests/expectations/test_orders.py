"""The shop's own rules: they hold of what the shop's database held in the end, and find what breaks them."""

import gzip
import json

import pyarrow as pa
import pytest
from clusters.spark_support import PROJECT
from oracles.judging import validate

from ebbtide import UpsertPipeline
from ebbtide.checks._judged import Batch

PLACED = "2026-01-02 10:00:00"
ROWS = f"""SELECT 1L AS order_id, 'paid' AS status, TIMESTAMP'{PLACED}' AS placed_at,
TIMESTAMP_NTZ'2026-01-02 10:00:00' AS updated_at, DATE'2026-01-02' AS ship_on"""
BROKEN = (
    f"""{ROWS} UNION ALL SELECT 2L, 'lost', TIMESTAMP'{PLACED}', TIMESTAMP_NTZ'2026-01-02 09:59:59', DATE'2026-01-01'"""
)


def given(name):
    return UpsertPipeline.load(PROJECT / "pipelines" / "defs" / "shop" / name).checks.expectations


def judge(rows, name, docs):
    from ebbtide.checks.great_expectations.spec_expectations import expectation_of

    judged = [Batch(rows, [expectation_of(each.type, each.kwargs, each.severity)], "COMPLETE") for each in given(name)]
    return validate("expectations", judged, docs, keep=1)


def truth(spark, name):
    """The database's rows, read as the sink's types."""
    table = UpsertPipeline.load(PROJECT / "pipelines" / "defs" / "shop" / name).table.columns
    with gzip.open(PROJECT / "data" / "shop" / "truth" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [{column: json.loads(line)[column] for column in table.names} for line in lines]
    texts = spark.createDataFrame(pa.Table.from_pylist(rows, pa.schema([(n, pa.string()) for n in table.names])))
    types = dict(spark.createDataFrame(table.empty_table()).dtypes)
    flat = [f"CAST({column} AS {types[column]})" for column in table.names if not types[column].startswith("array")]
    return texts.selectExpr(*flat)


@pytest.mark.spark
@pytest.mark.parametrize("name", ["order_items", pytest.param("orders", marks=pytest.mark.grid)])
def test_rules_hold_of_the_shipped_sample(spark, tmp_path, name):
    verdict = judge(truth(spark, name), name, tmp_path)
    assert [(f.expectation, f.broken) for f in verdict.findings if f.broken] == []
    assert len(verdict.findings) == len(given(name))


@pytest.mark.spark
def test_orders_that_break_the_rules_are_named(spark, tmp_path):
    verdict = judge(spark.sql(BROKEN), "orders", tmp_path)
    samples = {f.expectation: (f.broken, f.sample) for f in verdict.findings}
    assert samples["expect_column_values_to_be_in_set"] == (1, [{"status": "lost"}])
    for rule in ("expect_orders_to_ship_after_placement", "expect_orders_to_change_after_placement"):
        broken, [row] = samples[rule]
        assert (broken, row["order_id"]) == (1, 2)
