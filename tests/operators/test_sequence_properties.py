"""Sequence mode against the reference fold: random logs of a small table, cut, shuffled and redelivered."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from local.notes_log import PIPELINES
from local.support import cut, envelope, record, spec
from oracles.reference import UNAVAILABLE, fold_log, read_event

from ebbtide.testing import MemoryPipeline

SPEC = spec("id BIGINT NOT NULL, n INT, notes STRING, memo STRING DEFAULT 'none'")
PICK = st.integers(0, 3)
CUTS = st.lists(st.integers(0, 99), max_size=6)
RANDOM = st.randoms(use_true_random=False)


@dataclass(frozen=True)
class Action:
    """Something that happens to the table: to one of its rows by number, towards one of the keys that are free."""

    name: str
    row: int
    to: int
    word: str
    sent: bool


def actions(*names: str) -> st.SearchStrategy[list[Action]]:
    action = st.builds(Action, st.sampled_from(names), PICK, PICK, st.sampled_from("abc"), st.booleans())
    return st.lists(action, min_size=1, max_size=14)


LOGGED = ("insert", "update", "update", "move", "move", "delete", "renew", "rekey", "truncate")
Table = dict[int, dict[str, Any]]


def log_of(done: list[Action], *, unsent_moves: bool = True) -> tuple[list[str], list[Table]]:
    """Play actions against a table; return its log, and its content at each line. Two rows were there before the log."""
    table: Table = {k: {"id": k, "n": -1, "notes": f"old {k}", "memo": "none"} for k in (0, 1)}
    lines: list[str] = []
    tables: list[Table] = []

    def log(op, lsn, key=None, *, sent=True, was=None):
        row = table.get(key, {})
        after = None if op in "dt" else row if sent else row | {"notes": UNAVAILABLE}
        before = {"id": key if was is None else was} if op == "d" or was is not None else None
        lines.append(record(envelope(op, lsn, before=before, after=after), len(lines)))
        tables.append(dict(table))

    for at, do in enumerate(done):
        lsn, fresh = 10 * at + 10, {"n": at, "notes": do.word, "memo": "none" if do.sent else "set"}
        there, free = sorted(table), sorted({0, 1, 2, 3} - table.keys())
        if do.name == "insert" and free:
            key = free[do.to % len(free)]
            table[key] = {"id": key} | fresh
            log("c", lsn, key)
        elif do.name == "truncate":
            table.clear()
            log("t", lsn)
        if not there or do.name in ("insert", "truncate"):
            continue
        key = there[do.row % len(there)]
        row = table[key]
        if do.name == "update":
            table[key] = row | fresh if do.sent else row | fresh | {"notes": row["notes"]}
            log("u", lsn, key, sent=do.sent)
        elif do.name == "snapshot":
            log("r", None, key)
        elif do.name == "delete":
            del table[key]
            log("d", lsn, key)
        elif do.name == "renew":
            table[key] = row | fresh
            log("d", lsn, key)
            log("c", lsn, key)
        elif free:
            new = free[do.to % len(free)]
            del table[key]
            table[new] = row | {"id": new, "n": at}
            if do.name == "move":
                log("u", lsn, new, sent=do.sent or not unsent_moves, was=key)
            else:
                log("d", lsn, key)
                log("c", lsn, new)
    return lines, tables


def play(kind: type[MemoryPipeline], steps: list[list[str]]) -> MemoryPipeline:
    """Run steps; after each the sink is the fold of what has arrived."""
    pipeline, arrived = kind(SPEC), []
    for lines in steps:
        pipeline.step(lines)
        arrived += lines
        agrees(pipeline, arrived)
    assert pipeline.quarantine == []
    return pipeline


def fold(arrived: list[str]) -> dict[tuple[int], dict[str, Any]]:
    events = [replace(read_event(line), arrived=n) for n, line in enumerate(arrived)]
    return fold_log(events, ["id"], {"memo": "none"})


def agrees(pipeline: MemoryPipeline, arrived: list[str]) -> None:
    """The sink is the fold, and what the fold does not know, no more and no less, is said to be waited for."""
    want = fold(arrived)
    for row in pipeline.rows():
        assert row == {n: None if v == UNAVAILABLE else v for n, v in want[row["id"],].items()}
    assert len(pipeline.rows()) == len(want)
    assert waiting(pipeline) == {(k[0], n) for k, row in want.items() for n, v in row.items() if v == UNAVAILABLE}


def waiting(pipeline: MemoryPipeline) -> set[tuple[int, str]]:
    entries = {entry["id"]: entry for entry in pipeline.state.sort_by("_step").to_pylist()}
    return {(r["id"], n) for r in pipeline.rows() for n, lsn in entries[r["id"]]["_columns"] or [] if lsn is None}


def from_before_memo(line: str) -> str:
    """Make a record as it was before `memo` was added, if it holds what the column has by default."""
    return line.replace(r", \"memo\": \"none\"", "")


@PIPELINES
@given(actions(*LOGGED, "snapshot"), CUTS)
def test_log_read_in_order_shows_nothing_untrue_and_hides_nothing_that_the_fold_knows(kind, done, cuts):
    lines, tables = log_of(done)
    pipeline, arrived = kind(SPEC), []
    for step in cut(lines, cuts):
        pipeline.step(step)
        arrived += step
        want, hidden, truth = fold(arrived), waiting(pipeline), tables[len(arrived) - 1]
        assert {(row["id"],) for row in pipeline.rows()} == want.keys()
        for row in pipeline.rows():
            untrue = {n for n, value in row.items() if value != truth[row["id"]][n]}
            assert untrue <= {n for n in row if (row["id"], n) in hidden and want[row["id"],][n] == UNAVAILABLE}


@PIPELINES
@given(actions(*LOGGED), CUTS, RANDOM)
def test_log_shuffled_within_steps_equals_fold(kind, done, cuts, rng):
    play(kind, [rng.sample(step, len(step)) for step in cut(log_of(done)[0], cuts)])


@PIPELINES
@given(actions(*LOGGED), CUTS, RANDOM)
def test_log_redelivered_equals_fold(kind, done, cuts, rng):
    arrived: list[str] = []
    steps = []
    for step in cut(log_of(done)[0], cuts):
        arrived += step
        steps.append([*step, *rng.sample(arrived, rng.randint(0, len(arrived)))])
    play(kind, steps)


@pytest.mark.demand("sum-order")
@PIPELINES
@given(actions(*LOGGED, "snapshot"), CUTS, RANDOM)
def test_log_arriving_in_any_order_equals_fold(kind, done, cuts, rng):
    """An update of the key sends all values here; for those that do not, see the next test."""
    lines = [from_before_memo(line) if rng.random() < 0.5 else line for line in log_of(done, unsent_moves=False)[0]]
    play(kind, cut(rng.sample(lines, len(lines)), cuts))


def looked_up_in_time(steps: list[list[str]]) -> bool:
    """Tell whether each value that must be looked up under an old key can be found there when the move arrives.

    That is promised only if, of what happened under the old key, the part before the move has arrived by then, and
    nothing from after the move has arrived in an earlier step: state keeps one row per key.
    """
    values = [(n, json.loads(json.loads(line)["value"])) for n, lines in enumerate(steps) for line in lines]
    moves = [(n, v) for n, v in values if v["op"] == "u" and v["before"] and v["after"]["notes"] == UNAVAILABLE]
    return not any(
        move["before"]["id"] in [row["id"] for row in (v["before"], v["after"]) if row]
        and (at > n if v["source"]["lsn"] < move["source"]["lsn"] else at < n)
        for n, move in moves
        for at, v in values
        if v is not move
    )


@PIPELINES
@given(actions(*LOGGED), CUTS, RANDOM)
def test_moves_without_values_arriving_in_any_order_find_them_under_the_old_key(kind, done, cuts, rng):
    lines, _ = log_of(done)
    steps = cut(rng.sample(lines, len(lines)), cuts)
    assume(looked_up_in_time(steps))
    pipeline = kind(SPEC)
    for step in steps:
        pipeline.step(step)
    agrees(pipeline, [line for step in steps for line in step])
