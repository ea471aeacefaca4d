"""What several test files need: specs, records, steps."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from ebbtide import UpsertPipeline
from ebbtide.operators import FormerKeys, Operator
from ebbtide.testing import MemoryPipeline, key_texts

ROOT = Path(__file__).resolve().parents[3]
SHOP = ROOT / "data" / "shop"
UNAVAILABLE = "__debezium_unavailable_value"
"""What Debezium writes for a value that it leaves out, unless its connector says otherwise."""
TABLES = ("customers", "orders", "order_items", "price_list")
T = TypeVar("T")
Row = dict[str, Any]


def spec(schema: str = "id BIGINT NOT NULL, n INT", key: Sequence[str] = ("id",), **more: Any) -> UpsertPipeline:
    """Make a Debezium pipeline in sequence mode, unless `more` says otherwise."""
    given = {"format": {"type": "debezium"}, "order": {"sequence": ["_lsn"]}, "source": {"path": "in"}} | more
    return UpsertPipeline(name="t", schema=schema, key=list(key), **given)


def plain(schema: str = "id BIGINT NOT NULL, n INT", key: Sequence[str] = ("id",), **more: Any) -> UpsertPipeline:
    """Make a pipeline over a plain changelog in arrival mode, unless `more` says otherwise."""
    given = {"format": {"type": "plain"}, "order": "arrival", "source": {"path": "in", "records": "value"}} | more
    return UpsertPipeline(**{"name": "t", "schema": schema, "key": list(key), **given})


def shop(table: str, topic: str | None = None) -> UpsertPipeline:
    """Load a shipped spec, for another topic if given."""
    loaded = UpsertPipeline.load(ROOT / "pipelines" / "defs" / "shop" / table)
    return loaded.model_copy(update={"source": loaded.source.model_copy(update={"topic": topic})}) if topic else loaded


@cache
def lines_of(*paths: Path) -> tuple[bytes, ...]:
    """Read the lines of gzip files, folders for all of theirs in order of name."""
    files = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    return tuple(line for file in files for line in gzip.decompress(file.read_bytes()).split(b"\n") if line)


def envelope(op: str, lsn: Any, *, before: Row | None = None, after: Row | None = None, **source: Any) -> Row:
    """Make a Debezium envelope."""
    return {"op": op, "before": before, "after": after, "source": {"lsn": lsn, "ts_ms": 0, **source}}


def record(
    value: Any,
    offset: int = 0,
    *,
    partition: int = 0,
    topic: str = "t",
    key: Any = None,
    old_key: str | None = None,
    new_key: str | None = None,
) -> str:
    """Make a line that holds a Kafka record, with the headers that name an old and a new key, if there are any."""
    text = None if value is None else value if isinstance(value, str) else json.dumps(value)
    given = {"topic": topic, "partition": partition, "offset": offset, "key": key, "value": text}
    named = {"__debezium.oldkey": old_key, "__debezium.newkey": new_key}
    headers = [[name, key] for name, key in named.items() if key is not None]
    if headers:
        given["headers"] = [["__debezium.context.taskId", "0"], *headers]
    return json.dumps(given)


def change(kind: str, **row: Any) -> str:
    """Make a line of a plain changelog."""
    return json.dumps({"kind": kind, "row": row})


def cut(items: Sequence[T], at: Iterable[int]) -> list[Sequence[T]]:
    """Cut a sequence at some indices, taken modulo its length."""
    places = sorted({0, len(items), *(i % (len(items) + 1) for i in at)})
    return [items[a:b] for a, b in itertools.pairwise(places)]


def evenly(items: Sequence[T], parts: int) -> list[Sequence[T]]:
    """Cut a sequence into parts of about one size."""
    return [items[len(items) * i // parts : len(items) * (i + 1) // parts] for i in range(parts)]


class OnlyTouchedKeys(MemoryPipeline):
    """Gives a step no more of the state than a large table would: the entries of the keys touched and linked."""

    def _entries_of(self, changes: pa.Table) -> pa.Table:
        return touched_entries(super()._entries_of(changes), changes, tuple(self.spec.key))


def touched_entries(entries: pa.Table, changes: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Return the entries of the keys that changes touch, or that are linked to those."""
    keys = set(key_texts(changes, key))
    if "_moved_from" in changes.column_names:
        linked = FormerKeys.linked([changes], [entries], key)
        keys |= set() if linked is None else set(key_texts(linked, key))
    return entries.filter(pa.array([text in keys for text in key_texts(entries, key)], pa.bool_()))


def acted_on(entries: pa.Table, operator: Operator) -> list[Row]:
    """Return the entries on whose expiry a tick has to act."""
    values = operator.expiry.needs_tick
    return [entry for entry in entries.to_pylist() if any(entry[name] == value for name, value in values)]
