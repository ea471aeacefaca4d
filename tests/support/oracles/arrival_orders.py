"""Every order of arrival of a short history of a table, and what the database shows at its end."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from inputs.lines import staged
from local.support import UNAVAILABLE, Row, envelope, record, spec, touched_entries

from ebbtide.changelog import TRUNCATE
from ebbtide.columns import equals
from ebbtide.entries import SinkChange, Step
from ebbtide.testing import MemoryPipeline

TEXTS = ("v", "w")
"""Columns that an update may leave out."""
SPEC = spec("id BIGINT NOT NULL, v STRING, w STRING")


class Op(NamedTuple):
    """What one statement does in the database.

    Args:
        kind: `c`, `u`, `d`; `m` a change of the key, sent as a delete and a create; `k` one that is sent as an update; `t` a TRUNCATE;
            `r`: no statement, a snapshot reads the row, and has no position in the log.
        key: The row's.
        sent: Columns whose new values are sent; an update, or a change of the key, leaves the others as they are.
        new_key: Of a change of the key.
    """

    kind: str
    key: int = 0
    sent: str = ""
    new_key: int = 0


def parsed(text: str) -> list[Op]:
    """Read a history: `c1 u1:vw m1>2:v k2>3 d3 t`."""
    ops = []
    for word in text.split():
        head, _, sent = word.partition(":")
        key, _, new_key = head[1:].partition(">")
        ops.append(Op(head[0], int(key or 0), sent, int(new_key or 0)))
    return ops


def sent_and_shown(ops: Sequence[Op]) -> tuple[list[str], dict[int, Row]]:
    """Return the records of a history, and the rows that the database shows at its end: a plain fold, statement by statement."""
    rows: dict[int, Row] = {}
    records: list[str] = []
    for lsn, op in enumerate(ops, start=1):
        if op.kind == "r":
            row = rows.setdefault(op.key, {"id": op.key} | {name: f"{name}{op.key}" for name in TEXTS})
            records.append(record(envelope("r", None, after=row, ts_ms=lsn)))
            continue
        row = rows.pop(op.key, {})
        sent = TEXTS if op.kind == "c" else tuple(op.sent)
        new = {name: f"{name}{lsn}" for name in sent}
        key = op.new_key or op.key
        after = {"id": key} | {name: new.get(name, UNAVAILABLE) for name in TEXTS}
        if op.kind == "t":
            rows = {}
            records.append(record(envelope("t", lsn, ts_ms=lsn)))
            continue
        if op.kind == "m":
            gone = envelope("d", lsn, before={"id": op.key}, ts_ms=lsn)
            come = envelope("c", lsn, after=after, ts_ms=lsn)
            records.append(record(gone, new_key=json.dumps({"id": key})))
            records.append(record(come, old_key=json.dumps({"id": op.key})))
        elif op.kind == "d":
            records.append(record(envelope("d", lsn, before={"id": op.key}, ts_ms=lsn)))
        else:
            before = {"id": op.key} if op.kind == "k" else None
            kind = "c" if op.kind == "c" else "u"
            records.append(record(envelope(kind, lsn, before=before, after=after, ts_ms=lsn)))
        if op.kind != "d":
            rows[key] = {"id": key} | {name: row.get(name) for name in TEXTS} | new
    return records, rows


def blinding(ops: Sequence[Op]) -> set[tuple[int, int]]:
    """Return the pairs of records of which the first must not come before the second for the sink to be exact.

    The first is an update or the end of a later row of a key, the second of a row that has left the key: what that one had is
    then forgotten, as of any row that was updated or deleted.
    """
    about: list[tuple[int, int, int, bool]] = []
    left: list[tuple[int, int]] = []
    number = 0
    for lsn, op in enumerate(ops, start=1):
        about.append((number, lsn, op.key, op.kind == "c"))
        if op.kind in "mk":
            left.append((op.key, lsn))
            number += op.kind == "m"
            about.append((number, lsn, op.new_key, True))
        number += 1
    pairs = set()
    for key, at in left:
        later = [each for each, lsn, of, is_start in about if of == key and lsn > at and not is_start]
        earlier = [each for each, lsn, of, _ in about if of == key and lsn <= at]
        pairs |= set(itertools.product(later, earlier))
    return pairs


def partitions(ops: Sequence[Op]) -> list[list[int]]:
    """Return the numbers of the records of each key, in order, as a topic's partitions have them: of `u` with an old key by the new one."""
    of_key: dict[int, list[int]] = {}
    number = 0
    for op in ops:
        keys = [op.key, op.new_key] if op.kind == "m" else [op.new_key or op.key]
        for key in keys:
            of_key.setdefault(key, []).append(number)
            number += 1
    return list(of_key.values())


def in_log_order(history: History, *, most_at_once: int) -> Iterator[Arrived]:
    """Yield what is there once all records have come in their order, however they are cut into steps.

    Cuts that lead to the same state and sink are followed once from there on.
    """
    reached: dict[int, dict[str, Arrived]] = {0: {"": history.empty}}
    for n_came in range(len(history)):
        for arrived in reached.pop(n_came).values():
            for size in range(1, min(most_at_once, len(history) - n_came) + 1):
                step = tuple(range(n_came, n_came + size))
                after = history.after(arrived, step)
                there = reached.setdefault(n_came + size, {})
                there.setdefault(after.fingerprint, after)
    yield from reached[len(history)].values()


def random_history(chance: random.Random, most_records: int) -> str:
    """Make a history of so many records at most, with at least one change of the key."""
    words: list[str] = []
    there: set[int] = set()
    left = most_records
    while left:
        key, other = chance.sample((1, 2, 3), 2)
        kind = chance.choice("uudmmkt" if there else "c")
        sent = chance.choice(("", "v", "w"))
        if kind == "t":
            there.clear()
            words.append("t")
        elif key not in there:
            there.add(key)
            words.append(f"c{key}")
        elif kind in "ud":
            there -= {key} if kind == "d" else set()
            words.append(f"u{key}:{sent}" if kind == "u" else f"d{key}")
        elif other in there or left < 2:
            continue
        else:
            there = there - {key} | {other}
            words.append(f"{kind}{key}>{other}:{sent}")
            left -= kind == "m"
        left -= 1
    has_move = any(">" in word for word in words)
    return " ".join(words) if has_move else random_history(chance, most_records)


@dataclass(frozen=True)
class Arrived:
    """What is there once some records of a history have come.

    Args:
        order: How they came: the numbers of the records of each step; of several ways to the same state, one.
        entries: The newest entry of each key.
        sink: Key to the sink's row.
        is_blind: A record came before one that it must not come before, see `blinding`.
        floor: Of the last TRUNCATE.
    """

    order: tuple[tuple[int, ...], ...]
    entries: pa.Table
    sink: dict[int, Row]
    is_blind: bool = False
    floor: tuple[int, ...] | None = None

    @property
    def rows(self) -> dict[int, Row]:
        """The sink's rows, by key, as the database would show them."""
        return {key: {name: row[name] for name in ("id", *TEXTS)} for key, row in self.sink.items()}

    @property
    def waiting(self) -> set[int]:
        """The keys of the sink's rows that wait for a value."""
        lacking = [row["id"] for row in self.entries.to_pylist() if None in dict(row["_columns"] or ()).values()]
        return self.sink.keys() & set(lacking)

    @property
    def fingerprint(self) -> str:
        """All on which further steps depend, and what is shown; on the steps' numbers nothing depends."""
        passing = ("_step", "_change", "_changed_by", "_stamp_ms")
        entries = {entry["id"]: entry for entry in self.entries.drop_columns(passing).to_pylist()}
        return repr((sorted(entries.items()), sorted(self.rows.items()), self.floor, self.is_blind))


class History:
    """The records of a history, decoded.

    Args:
        records: As they are sent.
        blinding: See there.
    """

    def __init__(self, records: Sequence[str], blinding: set[tuple[int, int]]) -> None:
        self._blinding = blinding
        pipeline = MemoryPipeline(SPEC)
        pipeline.step(records)
        assert pipeline.quarantine == []
        self.operator = pipeline.operator
        rows = staged(pipeline.decoding, records)
        numbers = pc.struct_field(rows["_order"], "position").to_pylist()
        self._changes = [rows.filter(pa.array([n == number for n in numbers])) for number in range(len(records))]
        self.empty = Arrived((), self.operator.schema.empty_table(), {})

    def __len__(self) -> int:
        """Return how many records there are."""
        return len(self._changes)

    def after(self, arrived: Arrived, step: tuple[int, ...]) -> Arrived:
        """Return what is there after one step more.

        Args:
            arrived: What is there before it.
            step: Numbers of the records that it reads.
        """
        staged = pa.concat_tables([self._changes[number] for number in step])
        is_truncate = equals(staged, "_kind", TRUNCATE)
        changes = staged.filter(pa.array(~is_truncate))
        floors = [(row["_lsn"],) for row in staged.filter(pa.array(is_truncate))["_sequence"].to_pylist()]
        floor = max([*floors, *([arrived.floor] if arrived.floor else [])], default=None)
        entries = touched_entries(arrived.entries, changes, self.operator.key)
        number = len(arrived.order) + 1
        written = self.operator.apply(changes, entries, Step(number, now_ms=0, floor=floor)).entries
        sink = {key: row for key, row in arrived.sink.items() if not floor or row["_sequence"]["_lsn"] >= floor[0]}
        for entry in written.to_pylist():
            if entry["_change"] == SinkChange.DELETE:
                sink.pop(entry["id"], None)
            elif entry["_change"]:
                sink[entry["id"]] = entry
        is_replaced = pc.is_in(arrived.entries["id"], written["id"].combine_chunks())
        unchanged = arrived.entries.filter(pc.invert(is_replaced))
        came = set(itertools.chain(*arrived.order))
        is_blind = any(first in came and second in step for first, second in self._blinding)
        return Arrived(
            order=(*arrived.order, step),
            entries=pa.concat_tables([unchanged, written]),
            sink=sink,
            is_blind=arrived.is_blind or is_blind,
            floor=floor,
        )


def arrivals(history: History, *, most_at_once: int = 1) -> Iterator[tuple[frozenset[int], Arrived]]:
    """Yield what is there after each set of a history's records, in every order of arrival.

    Two orders that lead to the same state and sink are followed once from there on: all orders of seven records are some
    hundreds of steps.

    Args:
        history: Its records.
        most_at_once: Records that one step may read.
    """
    everything = frozenset(range(len(history)))
    reached: dict[frozenset[int], dict[str, Arrived]] = {frozenset(): {"": history.empty}}
    for size in range(len(history) + 1):
        for numbers in itertools.combinations(range(len(history)), size):
            came = frozenset(numbers)
            for arrived in reached.pop(came, {}).values():
                yield came, arrived
                for step in _steps(sorted(everything - came), most_at_once):
                    after = history.after(arrived, step)
                    there = reached.setdefault(came.union(step), {})
                    there.setdefault(after.fingerprint, after)


def _steps(left: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    for size in range(1, most + 1):
        yield from itertools.combinations(left, size)
