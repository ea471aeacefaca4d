"""`order: upsert`: the last write per key, as a plain fold over the log makes it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from local.support import Row, change, envelope, plain, record, spec

from ebbtide.testing import MemoryPipeline

SCHEMA = "id BIGINT NOT NULL, a STRING NOT NULL, n INT, b STRING"
UNSENT = "__debezium_unavailable_value"
Table = dict[int, Row]
ORDER = {"order": "upsert"}


def _row(chance: random.Random, id_: int) -> Row:
    return {"id": id_, "a": f"a{chance.randrange(99)}", "n": chance.randrange(99), "b": chance.choice(["x", "y", None])}


def _plain(chance: random.Random, table: Table, place: int) -> str:
    """Write a row, or delete one by its key alone, or with columns that it does not have any more."""
    id_ = chance.randrange(4)
    if chance.random() < 0.3:
        table.pop(id_, None)
        stale = chance.choice([{}, {"a": None}, {"a": "old", "n": 7}])
        return change("-D", id=id_, **stale)
    row = _row(chance, id_)
    kept = table.get(id_)
    sent = dict(row)
    if kept and chance.random() < 0.3:
        row["b"] = kept["b"]
        sent["b"] = UNSENT
    table[id_] = row
    return change(chance.choice(["+I", "+U"]), **sent)


def _debezium(chance: random.Random, table: Table, place: int) -> str:
    """Write an event of any operation, all at one position of the log, as a topic holds it; a delete may be a tombstone alone."""
    event = chance.choice("cuuddtk-")
    id_ = chance.randrange(4)
    key = json.dumps({"id": id_})
    if event == "t" and chance.random() < 0.3:
        table.clear()
        return record(envelope("t", 1), place)
    if event in "d-":
        table.pop(id_, None)
        before = {"id": id_, "a": "", "n": None, "b": None}
        return record(None if event == "-" else envelope("d", 1, before=before), place, key=key)
    if event == "k" and id_ in table:
        new_id = chance.randrange(4)
        before = table.pop(id_)
        row = {**_row(chance, new_id), "b": before["b"]}
        table[new_id] = row
        return record(
            envelope("u", 1, before=before, after={**row, "b": UNSENT}), place, key=json.dumps({"id": new_id})
        )
    table[id_] = _row(chance, id_)
    return record(envelope("u" if event == "u" else "c", 1, after=table[id_]), place, key=key)


def _in_steps(chance: random.Random, log: Sequence[str]) -> list[Sequence[str]]:
    steps = []
    start = 0
    while start < len(log):
        end = start + chance.choice([1, 2, 5, len(log)])
        steps.append(log[start:end])
        start = end
    return steps


FORMATS = {
    "plain": (plain, {}, _plain),
    "debezium": (spec, {"source": {"path": "in", "records": "kafka"}}, _debezium),
}


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.demand("sum-avoid")
def test_any_cut_into_steps_makes_the_table_of_the_last_writes(format_: str, seed: int) -> None:
    make, source, write = FORMATS[format_]
    chance = random.Random(seed)
    table: Table = {}
    log = [write(chance, table, place) for place in range(40)]
    pipeline = MemoryPipeline(make(SCHEMA, **source, **ORDER))

    for lines in _in_steps(chance, log):
        pipeline.step(lines)

    assert pipeline.rows() == [table[id_] for id_ in sorted(table)]
    assert not pipeline.quarantine
    assert pipeline.operator.entry_key == pipeline.operator.key, "no history: an entry per key"


def test_retraction_is_refused_with_the_order_that_takes_it() -> None:
    pipeline = MemoryPipeline(plain(**ORDER))

    pipeline.step([change("+I", id=1, n=1), change("-U", id=1, n=1), change("+U", id=1, n=2)])

    assert pipeline.rows() == [{"id": 1, "n": 2}]
    [bad] = pipeline.quarantine
    assert bad["_reason"] == "retraction"
    assert "order: arrival" in bad["_detail"]


def test_tombstone_without_a_usable_key_deletes_nothing_and_is_counted() -> None:
    pipeline = MemoryPipeline(spec(source={"path": "in", "records": "kafka"}, **ORDER))

    pipeline.step([record(envelope("c", 1, after={"id": 1, "n": 1}), 0), record(None, 1, key='{"other": 1}')])

    assert pipeline.rows() == [{"id": 1, "n": 1}]
    assert pipeline.metrics["tombstones"] == 1


def test_tombstone_deletes_nothing_where_the_topic_has_other_tables() -> None:
    source = {"path": "in", "records": "kafka", "table": "orders"}
    event = envelope("c", 1, after={"id": 1, "n": 1}, table="orders")
    pipeline = MemoryPipeline(spec(source=source, **ORDER))

    pipeline.step([record(event, 0, key='{"id": 1}'), record(None, 1, key='{"id": 1}')])

    assert pipeline.rows() == [{"id": 1, "n": 1}]
    assert pipeline.metrics["lone_tombstones"] == 1


def test_redelivered_record_that_names_its_place_does_not_overwrite_a_newer_one() -> None:
    pipeline = MemoryPipeline(plain(format={"type": "plain", "position": ["at"]}, **ORDER))

    def at(place: int, n: int) -> str:
        return json.dumps({"kind": "+U", "at": place, "row": {"id": 1, "n": n}})

    pipeline.step([at(0, 10), at(1, 11)])
    pipeline.step([at(0, 10)])

    assert pipeline.rows() == [{"id": 1, "n": 11}]
    assert pipeline.metrics["redelivered"] == 1


@pytest.mark.parametrize("given", [{"upsert_key": ["n"]}, {"keep": "first"}, {"retraction_grace": "1h"}])
def test_settings_of_histories_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="only with order: arrival"):
        plain(materializer=given, **ORDER)


def test_expired_delete_leaves_no_entry() -> None:
    pipeline = MemoryPipeline(plain(ttl="1h", **ORDER))
    pipeline.step([change("+I", id=1, n=1), change("-D", id=1), change("+I", id=2, n=2)], now_ms=0)

    pipeline.tick(now_ms=3_600_000)

    assert pipeline.rows() == [{"id": 2, "n": 2}]
    assert pipeline.metrics["expired"] == 1
