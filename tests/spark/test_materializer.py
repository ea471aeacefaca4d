"""Arrival mode's options on Spark and Delta: sink and changelog are those of the reference histories."""

import json
import random

import pytest
from clusters.spark_support import plain_spec, sink, table, write
from local.support import envelope, record
from local.support import spec as debezium_spec
from oracles.judging import verdict_of
from oracles.reference import Histories
from pyspark.sql import functions as F

from ebbtide import StateTtlConfig, refresh, run
from ebbtide.inspect import state
from ebbtide.runtime import Plan

HOUR = 3_600_000
NEVER = -(2**62)


def changes(rng, steps, each):
    """Lines over few keys and rows, event times that rise but for some, and the same for the reference."""
    found, n = [], 0
    for step in range(steps):
        lines, given = [], []
        for _ in range(each):
            hour = max(0, step * 3 + rng.randrange(-8, 3))
            row = {"id": rng.randrange(20), "v": rng.choice("ab"), "at": hour * HOUR * 1000}
            kind = rng.choice(["+I", "+U", "-U", "-D"])
            lines.append(json.dumps({"p": 0, "n": n, "kind": kind, "row": row}))
            given.append((kind, row, hour * HOUR))
            n += 1
        found.append((lines, given))
    return found


@pytest.mark.grid
def test_upsert_key_event_time_and_deletion_on_expiry_equal_the_reference(spark, tmp_path):
    steps = changes(random.Random(5), 3, 80)
    spec = plain_spec(
        write(tmp_path / "in", *(lines for lines, _ in steps)),
        schema="id BIGINT, v STRING, at TIMESTAMP",
        event_time="at",
        ttl=StateTtlConfig(ttl="10h", time_characteristic="EVENT_TIME"),
        materializer={"upsert_key": ["v"], "on_expire": "delete", "emission": "every"},
        max_group_bytes=1,  # each key is decided by itself
    )
    done = run(spark, spec, str(tmp_path))
    histories, watermark = Histories(["id"], 10 * HOUR, upsert_key=["v"], deletes=True), NEVER
    for _, given in steps:
        histories.expire(watermark, {(row["id"],) for _, row, _ in given})
        for kind, row, at in given:
            histories.apply(kind, row, at)
        watermark = max([watermark, *(at for *_, at in given)])
    histories.expire(watermark)
    shown = sorted(map(text, sink(spark, tmp_path, spec)))
    assert shown == sorted(map(text, histories.shown()))
    emitted = [(row["_kind"], text(row)) for row in table(spark, tmp_path, spec, "changelog")]
    assert sorted(emitted) == sorted((kind, text(json.loads(row))) for kind, row in histories.emitted)
    assert done.totals["unmatched"] == histories.unmatched
    assert done.totals["emitted"] == len(emitted)
    assert applied(spark, tmp_path, spec) == shown
    stored = [row["_role"] for row in state(spark, spec, str(tmp_path)).collect()]
    assert stored.count("live") == sum(map(len, histories.rows.values()))
    tables = Plan.under(str(tmp_path), spec)
    assert judged(spark, tables) == {
        "expect_changes_to_rise_per_key": 0,
        "expect_sink_to_show_decisions": 0,
        "expect_emitted_to_follow": 0,
    }
    shuffled = spark.read.format("delta").load(tables.changelog.path).where("_kind = '-D'").limit(1)
    shuffled.withColumn("_order", F.expr("named_struct('step', 99L, 'part', 0L, 'position', 0L)")).unionByName(
        shuffled.withColumn("_order", F.expr("named_struct('step', 99L, 'part', 0L, 'position', 1L)"))
    ).write.format("delta").mode("append").save(tables.changelog.path)
    assert judged(spark, tables)["expect_emitted_to_follow"] > 0, "a second deletion cannot follow the first"


@pytest.mark.grid
def test_truncate_stands_in_the_changelog_and_more_may_follow(spark, tmp_path):
    row = {"id": 1, "v": "a"}
    events = [envelope("c", 1, after=row), envelope("t", 2), envelope("c", 3, after=row)]
    write(tmp_path / "in", *([record(event, i)] for i, event in enumerate(events)))
    source = {"path": str(tmp_path / "in"), "max_files_per_step": 1}
    spec = debezium_spec("id BIGINT, v STRING", order="arrival", source=source, materializer={"emission": "every"})
    run(spark, spec, str(tmp_path))
    write(tmp_path / "in", [record(events[1], 1)], first=3)  # delivered again: it empties nothing
    run(spark, spec, str(tmp_path))
    assert [row["v"] for row in sink(spark, tmp_path, spec)] == ["a"]
    changelog = sorted(table(spark, tmp_path, spec, "changelog"), key=lambda row: list(row["_order"].values()))
    assert [(row["_kind"], row["id"], row["v"]) for row in changelog] == [
        ("+I", 1, "a"),
        ("T", None, None),
        ("+I", 1, "a"),
    ]
    assert sum(judged(spark, Plan.under(str(tmp_path), spec)).values()) == 0
    refresh(spark, spec, str(tmp_path))
    kinds = [row["_kind"] for row in table(spark, tmp_path, spec, "changelog")]
    assert sorted(kinds) == ["+I", "+I", "T"], "a refresh starts the changelog over"


def judged(spark, tables):
    """What each expectation of the check `ordering` found."""
    verdict = verdict_of(spark, tables, "ordering")
    return {finding.expectation: finding.broken for finding in verdict.findings}


def applied(spark, root, spec):
    """The sink that the changelog's records make, one after the other."""
    rows = {}
    changelog = sorted(table(spark, root, spec, "changelog"), key=lambda row: [*row["_order"].values(), row["_number"]])
    for row in changelog:
        assert (row["_kind"] == "+I") == (row["id"] not in rows)
        if row["_kind"] == "-D":
            del rows[row["id"]]
        else:
            rows[row["id"]] = text(row)
    return sorted(rows.values())


def text(row):
    at = row["at"] if isinstance(row["at"], int) else round(row["at"].timestamp() * 1e6)
    return json.dumps([row["id"], row["v"], at])
