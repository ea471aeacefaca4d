"""Columns that change, on Spark: tables, change feed and checks after a migration, and after one that was cut off."""

import pytest
from clusters.spark_support import LOCAL, act, change, plain_spec, sink, write
from oracles.judging import verdict_of

from ebbtide import run
from ebbtide.checks import VersionRange
from ebbtide.delta import Log
from ebbtide.errors import SpecChangedError
from ebbtide.runtime import Plan, idle_run
from ebbtide.tables import SinkTable

FIRST = (
    [change("+I", 1, "a", 1), change("+I", 2, "b", 2)],
    [change("+U", 1, "d", 4)],
)
JUDGED = ("ordering", "complete", "unique_key", "foreign_writes")
OLD = {"schema": "id INT, v STRING, seq INT, at TIMESTAMP_NTZ DEFAULT NULL", "order": {"sequence": ["seq"]}}
NEW = {
    "schema": "id BIGINT, text STRING, seq BIGINT, more STRUCT<x: INT> DEFAULT NULL, level INT DEFAULT 3",
    "order": {"sequence": ["seq"]},
    "columns": {"text": {"renamed_from": "v"}},
}


def red(spark, root, spec, last_good=None):
    tables = Plan.under(str(root), spec)
    return {name for name in JUDGED if not verdict_of(spark, tables, name, last_good=last_good).passed}


def feed(spark, location, since):
    reader = spark.read.option("readChangeFeed", True).option("startingVersion", since)
    return reader.format("delta").load(location).select("_change_type", "id").collect()


@pytest.mark.grid
@pytest.mark.parametrize("how", ["vectors", "rewrite"])
def test_columns_move_on_all_tables_and_a_cut_off_is_finished_by_the_next_run(spark, tmp_path, monkeypatch, how):
    root = str(tmp_path)
    source = write(tmp_path / "in", *FIRST)
    session = LOCAL
    old = plain_spec(source, **OLD, sink={"write": how})
    run(session, old, root)
    tables = Plan.under(root, old)
    last_good = VersionRange.after(tables).until
    new = plain_spec(source, **NEW, sink={"write": how})
    with pytest.raises(SpecChangedError, match="run 'ebbtide migrate' to see what it would do"):
        run(session, new, root)
    with monkeypatch.context() as cut:
        cut.setattr(SinkTable, "perform", lambda *_: (_ for _ in ()).throw(InterruptedError))
        with pytest.raises(InterruptedError):
            act(spark, new, root, "migrate", clock_ms=0)
    assert idle_run(new, root, clock_ms=0) is None, "something is left to do"
    run(session, new, root)
    migrated_at = Log(tables.sink.path).versions()[-1]
    assert sink(spark, tmp_path, new) == [
        {"id": 1, "text": "d", "seq": 4, "more": None, "level": 3},
        {"id": 2, "text": "b", "seq": 2, "more": None, "level": 3},
    ]
    names = spark.read.format("delta").load(tables.sink.path).columns
    assert names == ["id", "text", "seq", "more", "level", "_sequence", "_changed_by"]
    assert feed(spark, tables.sink.path, migrated_at) == [], "no row comes twice"
    assert red(spark, tmp_path, new, last_good) == set()

    renamed_source = change("+U", 1, "x", 5).replace('"v"', '"text"').replace('"seq"', '"more": {"x": 1}, "seq"')
    write(source, [renamed_source, change("+U", 2, "y", 3)], first=2)
    run(session, new, root)
    first, second = sink(spark, tmp_path, new)
    assert (first["text"], first["more"], second["text"]) == ("x", {"x": 1}, "y")
    assert {row["id"] for row in feed(spark, tables.sink.path, migrated_at + 1)} == {1, 2}
    assert red(spark, tmp_path, new, last_good) == set()
