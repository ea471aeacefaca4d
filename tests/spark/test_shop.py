"""The shop's pipelines on Spark and Delta: the sinks equal the source database."""

import random
import shutil

import pytest
from clusters.spark_support import cut, same_as_truth, shop_lines, shop_spec, write
from local.local_run import die_behind_a_decision

from ebbtide import run
from ebbtide.runtime import Plan

NAMES = ("customers", "order_balances", "order_items", "orders", "price_list")


@pytest.mark.grid  # without Spark: tests/runtime/test_local.py; on Spark: test_engines.py
@pytest.mark.parametrize(("name", "steps"), [("orders", 4), ("order_balances", 1)])
def test_shop_table_with_redelivery_and_replay_equals_truth(spark, tmp_path, name, steps):
    parts = cut(shop_lines(name), steps)
    spec = shop_spec(name, write(tmp_path / "in", *parts))
    first = run(spark, spec, str(tmp_path))
    assert len(first.steps) == len(parts)

    write(tmp_path / "in", parts[-1], first=len(parts))
    die_behind_a_decision(spark, tmp_path, spec)
    [replayed] = run(spark, spec, str(tmp_path)).steps
    assert replayed.kind == "replay"
    repeated = replayed.metrics
    assert repeated.get("redelivered", 0) + repeated.get("duplicates", 0) + repeated.get("superseded", 0) > 0
    assert repeated.get("inserted", 0) + repeated.get("updated", 0) + repeated.get("deleted", 0) == 0
    assert same_as_truth(spark, tmp_path, spec)


@pytest.mark.grid  # without Spark: tests/runtime/test_local.py; the feed, as Spark reads it: test_delta.py
def test_price_list_with_truncate_equals_truth(spark, tmp_path):
    spec = shop_spec("price_list", write(tmp_path / "in", *cut(shop_lines("price_list"), 3)))
    assert run(spark, spec, str(tmp_path)).totals["below_floor"] > 0
    assert same_as_truth(spark, tmp_path, spec)
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    kinds = {
        row["_change_type"]
        for row in feed.load(Plan.under(str(tmp_path), spec).sink.path).select("_change_type").collect()
    }
    assert {"insert", "delete", "update_postimage"} <= kinds


@pytest.mark.grid
@pytest.mark.parametrize("delivery", ["in order", "redelivered", "shuffled"])
@pytest.mark.parametrize("steps", [1, 2, 8, 40])
@pytest.mark.parametrize("name", NAMES)
def test_grid_equals_truth(spark, tmp_path, name, steps, delivery):
    if delivery == "shuffled" and name == "order_balances":
        pytest.skip("arrival mode promises nothing for a shuffled partition")
    lines = shop_lines(name)
    if delivery == "shuffled":
        random.Random(steps).shuffle(lines)
    parts = cut(lines, steps)
    if delivery == "redelivered":
        parts = [part for before, part in zip([[], *parts], parts, strict=False) for part in (part, before) if part]
    spec = shop_spec(name, write(tmp_path / "in", *parts))
    run(spark, spec, str(tmp_path))
    assert same_as_truth(spark, tmp_path, spec)
    shutil.rmtree(tmp_path)
