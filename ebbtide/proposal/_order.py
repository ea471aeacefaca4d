"""The order of the changes of a sample, and whether its rows bear it out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ebbtide.changelog import TRUNCATE, RowKind
from ebbtide.entries import live_entries
from ebbtide.formats import BadRecordError, Format
from ebbtide.operators import LIVE
from ebbtide.proposal._sample import Sample, SampledRecord
from ebbtide.proposal._tools import Json
from ebbtide.redaction import printable
from ebbtide.spec import Pipeline
from ebbtide.testing import MemoryPipeline

_SAME_RECORD = ("subtask", "partition", "part", "seq", "offset", "position", "pos")
"""Names of fields with the position of a changelog record."""
MOST_LEFT_OVER = 0.05
"""Share of the keys that may have a second row where a sample ends: the retraction of one may come behind it."""


def has_retractions(sample: Sample, decoder: Format) -> bool:
    """Return whether a record of the sample takes a row back by its content (-U)."""
    for record in sample.records:
        for change in _changes(decoder, record):
            if change.kind == RowKind.UPDATE_BEFORE and change.op in (None, RowKind.UPDATE_BEFORE):
                return True
    return False


def order_notes(order: Any, ttl: str, sample: Sample) -> Iterator[str]:
    """Yield what a user has to know of an order that the records do not hold themselves, and of the time to live.

    Args:
        order: The order, as written in a spec.
        ttl: The proposed time to live.
        sample: The records.
    """
    if order == "upsert":
        yield (
            "order: no record of the sample takes a row back (-U), so the last write of a key wins, as records arrive; if a column "
            "orders a key's changes, {sequence: [that column]} also holds for records that come late or twice"
        )
        yield f"ttl: {ttl} is a guess; a delete is remembered for as long, for records that are replayed from the quarantine"
        return
    if order == "arrival":
        yield (
            "order: the records have retractions (-U), which apply as they arrive; if a column orders a key's changes, "
            "{sequence: [that column]} is safer"
        )
        yield f"order: {_redeliveries(sample)}"
    yield f"ttl: {ttl} is a guess; a delete or late change that arrives after that is treated as new"


def _redeliveries(sample: Sample) -> str:
    """Say how records that are delivered again are recognised, by the fields of the first record."""
    if sample.holds == "kafka":
        return "a record that is delivered again under its own offset is known; one that its writer sends twice counts twice"
    first = sample.records[0].value
    fields = [name for name in _SAME_RECORD if type(first.get(name)) is int]
    by_position = "with format: {position: [PARTITION, NUMBER]}, the fields that say where a record stands"
    if fields:
        by_position = f"with format: {{position: [{', '.join(fields)}]}}, if that is where a record stands"
    return (
        f"a record that is delivered again is not recognised and counts twice, but {by_position}, "
        "or with materializer: {upsert_key: [COLUMNS]}, the columns that identify a row within a key"
    )


def faults_of(pipeline: MemoryPipeline, sample: Sample) -> Iterator[str]:
    """Yield the signs in a sample that its spec makes another table than its source has.

    Args:
        pipeline: The spec, with the sample as its only step.
        sample: The records.
    """
    spec = pipeline.spec
    metrics = pipeline.metrics
    if metrics["conflicts"]:
        yield (
            f"order: changes of the sample that tie with another change of their key: {metrics['conflicts']}. The sequence does not say "
            "which came last; add a column that does"
        )
    if spec.retracts:
        yield from _faults_by_arrival(pipeline)
    elif spec.applies_in_order:
        yield from _faults_of_upserts(spec, pipeline.decoding.format, sample)


def _faults_by_arrival(pipeline: MemoryPipeline) -> Iterator[str]:
    n_unmatched = pipeline.metrics["unmatched"]
    if n_unmatched:
        yield (
            f"order: retractions of the sample that find no row with their content: {n_unmatched}. They take nothing back. "
            "Where a delete holds less than the row, {sequence: [COLUMN]} or materializer: {upsert_key: [COLUMNS]} finds it; "
            "where the source does not begin with all rows, read it from its beginning"
        )
    operator = pipeline.operator
    entries = live_entries(pipeline.state, operator.schema, operator.entry_key).to_pylist()
    rows = [entry for entry in entries if entry["_role"] == LIVE]
    by_key = Counter(_text({name: row[name] for name in operator.key}) for row in rows)
    n_second = len(rows) - len(by_key)
    if n_second > MOST_LEFT_OVER * len(by_key):
        yield (
            f"order: rows of the sample added to a key that had a row, without a retraction (-U) of that one: {n_second}. Of such a key "
            "the newest row is shown, and an older one comes back when it is deleted. Choose the --key, or the order"
        )


def _faults_of_upserts(spec: Pipeline, decoder: Format, sample: Sample) -> Iterator[str]:
    """Yield what speaks against the key: most inserts meet another row of it, or most deletes none."""
    rows: dict[str, Json] = {}
    n: Counter[str] = Counter()
    for record in sample.records:
        for change in _changes(decoder, record):
            if change.kind == TRUNCATE:
                rows.clear()
            if change.kind not in list(RowKind) or change.row is None:
                continue
            key = _text({name: change.row.get(name) for name in spec.key})
            before = rows.pop(key, None)
            if change.kind in (RowKind.DELETE, RowKind.UPDATE_BEFORE):
                n["deletes"] += 1
                n["unmatched"] += before is None
                continue
            rows[key] = change.row
            if change.kind == RowKind.INSERT:
                n["inserts"] += 1
                n["replacing"] += before is not None and _text(before) != _text(change.row)
    key_names = ", ".join(map(printable, spec.key))
    if 2 * n["replacing"] > n["inserts"]:
        yield (
            f"key: inserts of the sample that replace another row with the same {key_names}: {n['replacing']} of {n['inserts']}. "
            "The table would lose these rows. Choose a --key that distinguishes them"
        )
    if 2 * n["unmatched"] > n["deletes"]:
        yield (
            f"key: deletes of the sample that find no row with their {key_names}: {n['unmatched']} of {n['deletes']}. Choose the --key "
            "by which the source deletes; where the source does not begin with all rows, read it from its beginning"
        )


def _changes(decoder: Format, record: SampledRecord) -> Sequence[Any]:
    """Return a record's changes; none of a bad one, which is reported by itself."""
    try:
        return decoder.changes(record.value, record.key)
    except BadRecordError:
        return ()


def _text(row: Json) -> str:
    return json.dumps(row, sort_keys=True, default=str)
