"""Which places of its source a step has read: all of its records, not only those that change something."""

import json

import pyarrow as pa
import pytest
from inputs.lines import batch_of, staged
from local.support import UNAVAILABLE, change, envelope, evenly, plain, record, spec
from servers.store_support import stateful

from ebbtide.changelog import OffsetRanges
from ebbtide.model import BatchSummary
from ebbtide.testing import MemoryPipeline

BY_ARRIVAL = {"order": "arrival", "source": {"path": "in", "topic": "t", "table": "orders"}}


def event(op, id_, offset, partition, table="orders"):
    row = {"id": id_, "n": 1}
    before, after = (row, None) if op == "d" else (None, row)
    return record(envelope(op, 1, before=before, after=after, table=table), offset, partition=partition)


def deletes(partition):
    """A thousand rows, deleted with tombstones, between them what a topic holds besides."""
    for i in range(1000):
        yield event("c", i, 5 * i, partition)
        yield event("d", i, 5 * i + 1, partition)
        yield record(None, 5 * i + 2, partition=partition)
        yield record("{", 5 * i + 3, partition=partition)
        yield event("c", i, 5 * i + 4, partition, table="other")
        yield record(envelope("c", 1, after={"id": i}), 3 * i, partition=partition, topic="foreign")


def summed_up(pipeline, lines):
    """What the workers sum up of lines, read in parts."""
    decoding, parts = pipeline.decoding, []
    for step, part in enumerate(evenly(lines, 7)):
        for batch in decoding.decode([batch_of(part, part=step)], step=1, wall_ms=0):
            summary = decoding.summarize(pa.Table.from_batches([batch]), tracks_offsets=True)
            assert BatchSummary.from_json(BatchSummary.to_json(summary)) == summary
            parts.append(summary)
    return BatchSummary.total(parts)


def test_places_of_all_records_read_are_one_interval_a_partition():
    pipeline = spec(**BY_ARRIVAL)
    lines = [line for partition in range(3) for line in deletes(partition)]
    total = summed_up(pipeline, lines)
    whole = {f"t/{partition}": [(0, 4999)] for partition in range(3)}
    assert OffsetRanges().with_ranges(total.offsets).read == whole
    assert (total.counts.records, total.counts.bad, total.counts.changes) == (12_000, 3000, 6000), (
        "other tables and topics are not among them"
    )
    assert total.counts.other_tables == 3000

    in_memory = MemoryPipeline(pipeline)
    for part in evenly(lines, 7):
        in_memory.step(part)
    assert in_memory.positions.read == whole
    assert (in_memory.rows(), len(in_memory.quarantine)) == ([], 3000)


def summary_of(pipeline, *lines, tracks_offsets=False):
    """The summary of a few lines, as it comes to the driver."""
    decoding = pipeline.decoding
    summary = decoding.summarize(staged(decoding, lines), tracks_offsets=tracks_offsets)
    assert BatchSummary.from_json(BatchSummary.to_json(summary)) == summary
    return summary


def test_truncate_is_told_by_its_place_and_of_one_delivered_twice_the_first():
    places = [(0, 3), (0, 5), (1, 3), (0, 3)]
    truncate = envelope("t", 1, table="orders")
    records = [record(truncate, offset, partition=partition) for partition, offset in places]
    summary = summary_of(spec(**BY_ARRIVAL), *records, tracks_offsets=True)
    assert summary.truncates == {("t/0", 3): (1, 0, 0), ("t/0", 5): (1, 0, 1), ("t/1", 3): (1, 0, 2)}
    assert summary.truncate == (1, 0, 3)


ROWS = [{"id": 3, "notes": "x"}, {"id": 1, "notes": "x"}, {"id": 2, "notes": UNAVAILABLE}]


@pytest.mark.parametrize(
    ("order", "newest", "key_changes"), [({"sequence": ["_lsn"]}, (8,), 1), ("arrival", (1, 0, 4), 0)]
)
def test_summary_says_what_stands_in_a_batch(order, newest, key_changes):
    """Of the three updates one changes the key and leaves a value out, one does only the first, one only the second."""
    whole, other, unsent = ROWS
    values = [
        envelope("c", 5, after=whole | {"more": 1, "also": 1}, ts_ms=9),
        envelope("u", 6, before=other, after=unsent, ts_ms=20),
        envelope("u", 6, before=whole, after=other, ts_ms=7),
        envelope("t", 7),
        envelope("t", 8),
        envelope("u", 6, before=unsent | {"notes": "y"}, after=unsent),
    ]
    of = spec("id BIGINT NOT NULL, notes STRING", order=order)
    summary = summary_of(of, *map(record, values, range(6)), "{")
    assert (summary.counts.bad, summary.counts.key_changes, summary.max_event_ms) == (1, key_changes, 20)
    assert (summary.truncate, summary.ignored) == (newest, {"also", "more"})
    assert (summary.offsets, summary.truncates) == ({}, {})


def test_records_that_name_no_place_leave_none():
    total = summed_up(spec(**BY_ARRIVAL), ["{", json.dumps({"topic": "t"}), record(None, 7)])
    assert (total.counts.bad, total.offsets) == (2, {"t/0": [(7, 7)]})


@pytest.mark.parametrize("bad", [{"kind": "?", "row": {"id": 1}}, {"kind": "+I", "row": 1}, {"kind": "+I", "row": {}}])
def test_bad_record_of_a_plain_changelog_has_been_read_too(bad):
    pipeline = plain(format={"type": "plain", "position": ["p", "n"]})
    good = {"kind": "+I", "row": {"id": 1, "n": 1}}
    lines = [json.dumps({"p": 3, "n": n} | body) for n, body in enumerate([good, bad, good])]
    assert OffsetRanges().with_ranges(summed_up(pipeline, lines).offsets).read == {"/3": [(0, 2)]}


def test_kinds_that_a_function_does_not_take_have_been_read_too():
    format_ = {"type": "plain", "position": ["p", "n"]}
    pipeline = stateful("ebbtide.functions:Deduplicate", format=format_, kinds=["+I"], schema="id BIGINT", key=["id"])
    lines = [json.dumps({"p": 0, "n": n, "kind": kind, "row": {"id": 1}}) for n, kind in enumerate(["+I", "-D", "+I"])]
    assert OffsetRanges().with_ranges(summed_up(pipeline, lines).offsets).read == {"/0": [(0, 2)]}


@pytest.mark.parametrize("order", ["arrival", {"sequence": ["_lsn"]}])
def test_bad_record_delivered_again_is_quarantined_once(order):
    pipeline = MemoryPipeline(spec(order=order))
    pipeline.step([record("{", 1), record("{", 1), record("[", 2)])
    pipeline.step([record("{", 1), record("{", 3)])
    assert [entry["_origin"]["position"] for entry in pipeline.quarantine] == [1, 2, 3]
    assert pipeline.metrics["redelivered"] == 2


def test_bad_line_without_a_place_is_known_by_its_file_and_line():
    pipeline = MemoryPipeline(plain())
    pipeline.step(["{", change("+I", id=1, n=1), "{"])
    assert [entry["_origin"]["position"] for entry in pipeline.quarantine] == [0, 2]


def test_update_by_arrival_is_one_record_of_two_changes():
    row = {"id": 1, "n": 2}
    update = envelope("u", 5, before=row, after=row | {"n": 3})
    lines = [record(update, 1), record(envelope("c", 6, after=row), 2), record(update, 3), "{", record(None, 4)]
    summary = summary_of(spec(order="arrival"), *lines)
    assert (summary.counts.records, summary.counts.changes, summary.counts.bad) == (5, 5, 1)
    assert summary_of(spec(order="arrival")).counts.records == 0
