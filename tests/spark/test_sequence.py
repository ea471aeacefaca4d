"""Sequence mode on Spark: rows that wait for a value, sequences of several columns, conflicts."""

import json
import random
from pathlib import Path

import pytest
from clusters.spark_support import change, plain_spec, sink, table, write
from local.support import UNAVAILABLE as KEPT
from local.support import envelope, lines_of, record, spec
from oracles.judging import sample_of, verdict_of
from oracles.reference import differences
from servers.mariadb import CAPTURE, found, pipeline_of, truth

from ebbtide import run
from ebbtide.runtime import Plan


def event(op, lsn, key, notes=None, was=None):
    before = {"id": key if was is None else was} if op == "d" or was is not None else None
    return record(envelope(op, lsn, before=before, after=None if op == "d" else {"id": key, "notes": notes}))


def of_folder(folder: Path, made):
    return made.model_copy(
        update={"source": made.source.model_copy(update={"path": str(folder), "max_files_per_step": 1})}
    )


@pytest.mark.grid
def test_row_filled_from_another_key_is_changed_in_place(spark, tmp_path):
    """The row that changes lies outside the range of the keys that were read."""
    others = [event("c", n, n, "other") for n in range(100, 120)]
    steps = [[*others, event("u", 500, 500, KEPT, was=1)], [event("c", 1, 1, "long")], [event("u", 600, 101, "new")]]
    of = of_folder(write(tmp_path / "in", *steps), spec("id BIGINT NOT NULL, notes STRING"))
    run(spark, of, str(tmp_path))
    shown = {row["id"]: row["notes"] for row in sink(spark, tmp_path, of)}
    assert len(sink(spark, tmp_path, of)) == len(others) + 1
    assert (shown[500], shown[101], shown[119]) == ("long", "new", "other")


def test_waiting_ends_at_the_tick_and_the_check_warns_of_it(spark, tmp_path):
    of = of_folder(
        write(tmp_path / "in", [event("u", 5, 2, KEPT, was=1)]), spec("id BIGINT NOT NULL, notes STRING", ttl="30d")
    )
    started = run(spark, of, str(tmp_path)).steps[0].clock.now_ms
    later = run(spark, of, str(tmp_path), clock=lambda: started + 31 * 86_400_000)
    assert [(step.kind, step.metrics.get("waiting_expired")) for step in later.steps] == [("tick", 1)]
    tables = Plan.under(str(tmp_path), of)
    waiting = sample_of(verdict_of(spark, tables, "ordering"), "expect_values_to_arrive")
    assert [(row["id"], row["_waits"]) for row in waiting] == [(2, ["notes"])]


def test_contents_that_differ_at_one_sequence_break_ordering(spark, tmp_path):
    lines = [change("+I", 1, "a", 1), change("+I", 2, "b", 2), change("+U", 1, "c", 3).replace('"seq": 3', '"seq": 1')]
    there_and_back = [
        change(kind, 3, v, 4) for kind, v in [("+I", "a"), ("-U", "a"), ("+U", "b"), ("-U", "b"), ("+U", "a")]
    ]
    moved_away = [change("+I", 4, "a", 5), change("-U", 4, "a", 5)]
    of = plain_spec(
        write(tmp_path / "in", lines[:2], [*lines[2:], *there_and_back, *moved_away]), order={"sequence": ["seq"]}
    )
    assert run(spark, of, str(tmp_path)).totals["conflicts"] == 2
    tables = Plan.under(str(tmp_path), of)
    undecided = sample_of(verdict_of(spark, tables, "ordering"), "expect_sequences_to_decide")
    assert [row["id"] for row in undecided] == [1, 3]


@pytest.mark.grid
def test_mariadb_table_equals_the_database_on_spark_too(spark, tmp_path):
    lines = [line.decode() for line in lines_of(CAPTURE / "shop.jsonl.gz")]
    random.Random(3).shuffle(lines)
    in_memory = pipeline_of("price_list", CAPTURE)
    of = of_folder(write(tmp_path / "in", lines[:3000], lines[3000:]), in_memory.spec)
    run(spark, of, str(tmp_path))
    in_memory.sink = {json.dumps(row["sku"]): row for row in table(spark, tmp_path, of)}
    assert differences(found(in_memory), truth("price_list", CAPTURE, of.table.columns)) == []
