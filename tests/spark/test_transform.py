"""Transforms on Spark: what a sink shows is what the same SELECT over the true table gives."""

import json
import random

import pytest
from spark_support import change, cut, plain_spec, shop_lines, shop_spec, sink, write
from support import SHOP, lines_of

from ebbtide import UpsertPipeline
from ebbtide.runtime import expressions
from ebbtide.runtime.driver import run
from ebbtide.spec.ddl import type_ddl

ORDERS = {
    "schema": "id BIGINT NOT NULL, double DECIMAL(14,2), label STRING, long INT, day DATE, net DECIMAL(14,2)",
    "select": {
        "id": "order_id",
        "double": "total * 2",
        "label": "upper(status) || '/' || currency",
        "long": "length(notes)",
        "day": "CAST(placed_at AS DATE)",
        "net": "CASE WHEN discount > 0 THEN total - discount END",
    },
    "where": "status <> 'cancelled' AND length(coalesce(notes, '')) < 400",
    "key": ["id"],
}


def transformed(spec, transform):
    """The spec with a transform, checked."""
    fields = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return UpsertPipeline(**fields | {"transform": transform})


def by_select(spark, spec):
    """What the same SELECT gives over the true final table, in order of key."""
    truth = [json.loads(line) for line in lines_of(SHOP / "truth" / f"{spec.name}.jsonl.gz")]
    names = spec.table.columns.names
    rows = spark.createDataFrame([[row[name] for name in names] for row in truth], [f"{name}: string" for name in ()] or ", ".join(f"{name} STRING" for name in names))
    typed = rows.selectExpr(*[f"CAST({f.name} AS {type_ddl(f.type)}) AS {f.name}" for f in spec.table.columns])
    typed.createOrReplaceTempView("truth")
    columns = [
        f"CAST({spec.transform.select[f.name]} AS {type_ddl(f.type)}) AS {f.name}" for f in spec.sink_table.columns
    ]
    found = spark.sql(f"SELECT {', '.join(columns)} FROM truth WHERE {spec.transform.where}").toArrow().to_pylist()
    return sorted(found, key=lambda row: json.dumps([row[k] for k in spec.sink_key], default=str))


@pytest.mark.parametrize("steps", [8])
def test_orders_selected_after_the_decision_equal_the_select_over_the_truth(spark, tmp_path, steps):
    lines = shop_lines("orders")
    random.Random(steps).shuffle(lines)
    parts = cut(lines, steps)
    spec = transformed(shop_spec("orders", write(tmp_path / "in", *parts, parts[0])), ORDERS)
    summary = run(spark, spec, str(tmp_path))
    shown = sink(spark, tmp_path, spec)
    assert shown == by_select(spark, spec)
    assert summary.totals["filled"] > 0
