"""Raw records: the schemas between sources and decoders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ebbtide.formats._avro import AvroRecords
from ebbtide.formats._format import NEW_KEY, OLD_KEY

RECORDS = pa.schema(
    [
        ("file", pa.string()),
        ("part", pa.int64()),
        ("line", pa.int64()),
        ("value", pa.binary()),
    ]
)
"""Records of a file source: file name, its number within the step, line from 0, the line's bytes."""
PLACED_RECORDS = pa.schema(
    [
        *RECORDS,
        ("key", pa.binary()),
        ("old_key", pa.binary()),
        ("new_key", pa.binary()),
        ("partition", pa.int64()),
        ("offset", pa.int64()),
    ]
)
"""Placed records, which have an offset in a partition of their source: `file` holds the topic; `part` and `line` order the records of a
step; a null value is a tombstone. `old_key` and `new_key` are the values of the headers `OLD_KEY` and `NEW_KEY`; null without them."""


def are_placed(batch: pa.RecordBatch) -> bool:
    """Return whether records are `PLACED_RECORDS`."""
    return "offset" in batch.schema.names


def other_keys(headers: Sequence[tuple[str, Any]]) -> tuple[bytes | None, bytes | None]:
    """Return `old_key` and `new_key` of a record, from its headers: the first of each name, None unless it has bytes."""
    first = dict(reversed(headers))
    old_key, new_key = first.get(OLD_KEY), first.get(NEW_KEY)
    return old_key if isinstance(old_key, bytes) else None, new_key if isinstance(new_key, bytes) else None


def as_line(
    topic: str,
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    old_key: bytes | None = None,
    new_key: bytes | None = None,
) -> bytes:
    """Return a placed record as the line that the quarantine stores: an envelope.

    If the key, the value or a header is not UTF-8, it is only the bytes of the value, none for a tombstone.

    Example:
        >>> as_line("t", 0, 7, None, b"{}")
        b'{"topic": "t", "partition": 0, "offset": 7, "key": null, "value": "{}"}'
    """
    try:
        key_text = None if key is None else key.decode()
        value_text = None if value is None else value.decode()
        headers = []
        for header, other_key in ((OLD_KEY, old_key), (NEW_KEY, new_key)):
            if other_key is not None:
                headers.append([header, other_key.decode()])
    except UnicodeDecodeError:
        return value or b""
    record: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset}
    record |= {"key": key_text, "value": value_text}
    if headers:
        record["headers"] = headers
    return json.dumps(record, ensure_ascii=False).encode()


def stored_form(batch: pa.RecordBatch) -> pa.Array:
    """Return (n,) the bytes that the quarantine stores: lines unchanged, placed records in envelopes.

    Avro becomes JSON with its schema, so that it can be read, repaired and replayed.
    """
    if not are_placed(batch):
        return batch.column("value")
    avro = AvroRecords.of(batch)
    names = ("file", "partition", "offset", "key", "value", "old_key", "new_key")
    columns = [batch.column(name).to_pylist() for name in names]
    lines = []
    for topic, partition, offset, key, value, *other_keys in zip(*columns, strict=True):
        if avro is not None:
            key = avro.as_text(key)  # noqa: PLW2901
            value = avro.as_text(value)  # noqa: PLW2901
        line = as_line(topic, partition, offset, key, value, *other_keys)
        lines.append(line)
    return pa.array(lines, pa.binary())
