"""The shipped specs over the shipped recording, without Spark: the tables are the truth, however the reading is cut."""

import json
import random

import pytest
from local.support import ROOT, SHOP, TABLES, evenly, lines_of, shop
from oracles.reference import canonical_rows, differences, fold_log, read_event

from ebbtide.spec._upsert import SequenceOrder
from ebbtide.testing import MemoryPipeline

FLAT, WITH_SCHEMA = ROOT / "tests/data/flat.jsonl.gz", ROOT / "tests/data/shopx.jsonl.gz"
CUTS = (1, 2, 8, 12, 40)
ORDERS = (
    *(pytest.param(seed, cuts, marks=pytest.mark.model) for seed, cuts in ((1, 1), (2, 3), (3, 8), (4, 40))),
    (5, 12),
)
"""Seeds of shufflings, and how many steps each is read in."""


def recording(table):
    return lines_of(SHOP / ("join" if table == "order_balances" else "capture"))


def of_topic(lines, topic):
    return [line for line in lines if f'"topic": "{topic}"'.encode() in line]


def truth(spec):
    rows = [json.loads(line) for line in lines_of(SHOP / "truth" / f"{spec.name}.jsonl.gz")]
    return canonical_rows(rows, spec.table.columns)


def found(pipeline):
    assert pipeline.quarantine == []
    return canonical_rows(pipeline.rows(), pipeline.spec.table.columns)


def run(spec, steps):
    pipeline = MemoryPipeline(spec)
    for lines in steps:
        pipeline.step(lines)
    return pipeline


@pytest.mark.model  # with many steps in any order, which come again: below
@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("table", [*TABLES, "order_balances"])
def test_shop_table_read_in_order_equals_truth(table, cuts):
    spec = shop(table)
    assert differences(found(run(spec, evenly(recording(table), cuts))), truth(spec)) == []


def test_shop_join_redelivered_equals_truth():
    hold_redelivered(
        shop("order_balances"), lambda lines: [lines[: 2 * len(lines) // 3], lines[len(lines) // 3 :], lines]
    )


@pytest.mark.parametrize(("seed", "cuts"), ORDERS)
@pytest.mark.parametrize("table", TABLES)
def test_shop_table_delivered_in_any_order_and_again_equals_truth(table, seed, cuts):
    """All in steps of any order, and then what came first once more."""

    def cut(lines):
        random.Random(seed).shuffle(lines)
        return [*evenly(lines, cuts), lines[: len(lines) // 2 + 1]]

    hold_redelivered(shop(table), cut)


def hold_redelivered(spec, cut):
    """Refuse other rows than the truth after steps that have more than half of the records twice."""
    lines = recording(spec.name)
    if spec.source.topic:
        lines = of_topic(lines, spec.source.topic)
    pipeline = run(spec, cut(lines))
    assert differences(found(pipeline), truth(spec)) == []
    known = pipeline.metrics["duplicates"] + pipeline.metrics["superseded"] + pipeline.metrics["below_floor"]
    assert known + pipeline.metrics["redelivered"] > len(lines) / 2


@pytest.mark.parametrize("table", TABLES)
def test_shop_truth_is_what_the_reference_makes_of_the_events(table):
    spec = shop(table)
    events = [event for line in recording(table) if (event := read_event(line, spec.source.topic))]
    rows = fold_log(events, spec.key, spec.table.defaults).values()
    assert differences(canonical_rows(list(rows), spec.table.columns, spec.format.time_units), truth(spec)) == []


@pytest.mark.parametrize("cuts", [pytest.param(1, marks=pytest.mark.model), 7])
@pytest.mark.parametrize("table", [pytest.param("customers", marks=pytest.mark.model), "orders"])
def test_shop_table_from_flattened_events_equals_truth(table, cuts):
    spec = shop(table, topic=f"flat.public.{table}")
    assert differences(found(run(spec, evenly(lines_of(FLAT), cuts))), truth(spec)) == []


def test_shop_price_list_from_flattened_events_keeps_rows_whose_truncate_was_dropped():
    spec = shop("price_list", topic="flat.public.price_list")
    diff = differences(found(run(spec, [lines_of(FLAT)])), truth(spec))
    assert (len(diff), {line.split(" [")[0] for line in diff}) == (33, {"too many"})


@pytest.mark.parametrize("cuts", [pytest.param(1, marks=pytest.mark.model), 7])
@pytest.mark.parametrize("table", ["customers", "price_list"])
def test_shop_table_from_events_with_schema_equals_reference(table, cuts):
    spec = shop(table, topic=f"shopx.public.{table}")
    pipeline = run(spec, evenly(lines_of(WITH_SCHEMA), cuts))
    events = [event for line in lines_of(WITH_SCHEMA) if (event := read_event(line, spec.source.topic))]
    rows = list(fold_log(events, spec.key, spec.table.defaults).values())
    assert len(rows) > 50
    assert differences(found(pipeline), canonical_rows(rows, spec.table.columns, spec.format.time_units)) == []


@pytest.mark.parametrize(
    "table", ["customers", "orders", "price_list", pytest.param("order_items", marks=pytest.mark.model)]
)
def test_shop_table_by_time_of_commit_equals_truth_in_any_order(table):
    spec = shop(table).model_copy(update={"order": SequenceOrder(sequence=["_ts_ms", "_lsn"])})
    lines = of_topic(recording(table), spec.source.topic)
    pipeline = run(spec, evenly(random.Random(5).sample(lines, len(lines)), 3))
    assert differences(found(pipeline), truth(spec)) == []
