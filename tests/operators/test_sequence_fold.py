"""Sequence mode against a fold of its own, written from docs/reference/spec.md alone: random logs of deletes with rows, ties, changed keys.

The fold keeps, per key, the change that counts; changes that the sequence does not tell apart it leaves to whoever asks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from local.notes_log import PIPELINES
from local.support import OnlyTouchedKeys, cut, envelope, plain, record, spec

from ebbtide.testing import MemoryPipeline

Row = dict[str, Any]
RETRACTED, ADDED, FINALLY_DELETED = "-U", "+U", "-D"


@dataclass
class Fold:
    """Per key and sequence what was added, retracted, deleted; tombstones leave when their time is over."""

    ttl_ms: int | None = None
    changes: dict[Any, dict[Any, list[tuple[str, str]]]] = field(default_factory=dict)
    stamps: dict[Any, int] = field(default_factory=dict)

    def step(self, changes: list[tuple[str, Any, Any, Row]], now_ms: int) -> None:
        for key in [key for key, at in self.stamps.items() if self.ttl_ms is not None and at + self.ttl_ms <= now_ms]:
            if self.shown(key) == set():
                del self.changes[key], self.stamps[key]
        for key in {key for _, key, _, _ in changes}:
            before = self.newest(key)
            for kind, at, sequence, row in changes:
                if at == key:
                    content = json.dumps(row, sort_keys=True)
                    told = self.changes.setdefault(key, {}).setdefault(sequence, [])
                    told.append((kind, content))
            if self.newest(key) != before:
                self.stamps[key] = now_ms

    def newest(self, key: Any) -> Any:
        told = self.changes.get(key)
        return None if not told else (max(told), set(told[max(told)]))

    def shown(self, key: Any) -> set[str]:
        """Which rows the key may show: none if it is deleted, several if the sequence does not tell."""
        told = self.newest(key)[1]
        added = {content for kind, content in told if kind == ADDED}
        retracted = {content for kind, content in told if kind == RETRACTED}
        if any(kind == FINALLY_DELETED for kind, _ in told) or added <= retracted:
            return set()
        return added - retracted

    def table(self) -> dict[Any, set[str]]:
        return {key: rows for key in self.changes if (rows := self.shown(key))}


def agrees(pipeline: MemoryPipeline, fold: Fold, *, conflicts: bool) -> None:
    shown = {json.dumps([r["id"], r["k"]]): json.dumps(r, sort_keys=True) for r in pipeline.rows()}
    may = {json.dumps(list(key)): rows for key, rows in fold.table().items()}
    for key, rows in may.items():
        assert shown.get(key) in rows
    assert shown.keys() <= may.keys()
    assert conflicts or pipeline.metrics["conflicts"] == 0
    assert pipeline.quarantine == []


KEYS = st.tuples(st.integers(0, 1), st.sampled_from("xy"))
SEQUENCES = st.tuples(st.integers(-1, 2), st.sampled_from(["", "a", "b"]))
CHANGES = st.lists(
    st.tuples(st.sampled_from(["+U", "+U", "-U", "-D"]), KEYS, SEQUENCES, st.integers(0, 2)), max_size=14
)
CUTS = st.lists(st.integers(0, 99), max_size=6)
RANDOM = st.randoms(use_true_random=False)
SCHEMA = "id INT NOT NULL, k STRING NOT NULL, a INT, b STRING, n INT"


def changelog(ttl: str | None = None) -> Any:
    return plain(SCHEMA, ["id", "k"], order={"sequence": ["a", "b"]}, ttl=ttl)


def row_of(key: Any, sequence: Any, n: int) -> Row:
    return {"id": key[0], "k": key[1], "a": sequence[0], "b": sequence[1], "n": n}


def without_conflicts(changes: list[Any]) -> list[Any]:
    """Give each key one content per sequence."""
    first: dict[Any, int] = {}
    return [(kind, key, at, first.setdefault((key, at), n)) for kind, key, at, n in changes]


def play(kind: type[MemoryPipeline], changes: list[Any], cuts: list[int], ttl_ms: int | None = None) -> MemoryPipeline:
    pipeline, fold = kind(changelog(None if ttl_ms is None else f"{ttl_ms}ms")), Fold(ttl_ms)
    conflicts = len({(key, at, n) for _, key, at, n in changes}) > len({(key, at) for _, key, at, _ in changes})
    for number, step in enumerate(cut(changes, cuts)):
        told = [(what, key, at, row_of(key, at, n)) for what, key, at, n in step]
        pipeline.step([json.dumps({"kind": what, "row": row}) for what, _, _, row in told], now_ms=10 * number)
        fold.step(told, 10 * number)
        agrees(pipeline, fold, conflicts=conflicts)
    return pipeline


@PIPELINES
@given(CHANGES, CUTS)
def test_changelog_with_one_content_per_sequence_equals_the_fold(kind, changes, cuts):
    play(kind, without_conflicts(changes), cuts)


@PIPELINES
@given(CHANGES, CUTS)
def test_changelog_with_conflicts_shows_one_of_their_rows(kind, changes, cuts):
    play(kind, changes, cuts)


@given(CHANGES, CUTS, RANDOM)
def test_changelog_with_conflicts_gives_one_table_in_any_order(changes, cuts, rng):
    want = play(MemoryPipeline, changes, [])
    got = play(OnlyTouchedKeys, rng.sample(changes, len(changes)), cuts)
    assert got.rows() == want.rows()


@PIPELINES
@given(CHANGES, CUTS, st.sampled_from([5, 10, 15, 25]))
def test_changelog_whose_tombstones_expire_equals_the_fold(kind, changes, cuts, ttl_ms):
    play(kind, without_conflicts(changes), cuts, ttl_ms)


ACTIONS = st.lists(st.tuples(st.sampled_from(["c", "u", "move", "d", "t"]), KEYS, KEYS, st.integers(0, 9)), max_size=14)


@PIPELINES
@given(ACTIONS, CUTS, RANDOM)
def test_binary_log_with_changed_keys_and_truncates_equals_the_fold(kind, actions, cuts, rng):
    """Each event holds all values, as MariaDB's do: the table is that of the log, whatever the order of arrival."""
    of = spec(SCHEMA, ["id", "k"], order={"sequence": ["_file", "_pos", "_row"]})
    table: dict[Any, Row] = {}
    lines = []
    for at, (op, key, to, n) in enumerate(actions):
        place = {"file": f"bin.{at // 4 + 9}", "pos": at % 4, "row": n}
        row = row_of(key, (n, ""), n)
        if op in "cu":
            lines.append(record(envelope(op, None, after=row, **place)))
            table[key] = row
        elif op == "t":
            lines.append(record(envelope("t", None, **place)))
            table.clear()
        elif op == "d" and key in table:
            lines.append(record(envelope("d", None, before=table.pop(key), **place)))
        elif op == "move" and key in table and key != to:
            moved = row_of(to, (n, "moved"), n)
            lines.append(record(envelope("u", None, before=table.pop(key), after=moved, **place)))
            table[to] = moved
    pipeline = kind(of)
    for step in cut(rng.sample(lines, len(lines)), cuts):
        pipeline.step(step)
    assert {(row["id"], row["k"]): row for row in pipeline.rows()} == table
    assert pipeline.quarantine == []
