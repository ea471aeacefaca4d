"""Arrival mode, case by case, and against the reference histories."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local.notes_log import PIPELINES
from local.notes_log import run as played
from local.support import change, cut, envelope, plain, record, spec
from oracles.reference import Histories

SPEC = plain("id BIGINT NOT NULL, n INT, f DOUBLE")
FULL = spec("id BIGINT NOT NULL, n INT", order="arrival")
run = partial(played, of=SPEC)
CUTS = st.lists(st.integers(0, 99), max_size=6)
ROWS = st.fixed_dictionaries(
    {"id": st.integers(0, 2), "n": st.sampled_from([None, 0, 1]), "f": st.sampled_from([None, 0.0, 1.5])}
)
CHANGES = st.lists(st.tuples(st.sampled_from(["+I", "-U", "+U", "-D"]), ROWS), max_size=30)


def numbers(pipeline):
    return {row["id"]: row["n"] for row in pipeline.rows()}


def row(kind, key, n):
    return change(kind, id=key, n=n, f=None)


@pytest.mark.demand("sum-order")
@PIPELINES
@given(CHANGES, CUTS)
def test_changelog_cut_anywhere_equals_histories(kind, changes, cuts):
    """Duplicates, retractions of nothing, nulls in the compared columns."""
    pipeline, histories = kind(SPEC), Histories(["id"])
    for step in cut(changes, cuts):
        pipeline.step([json.dumps({"kind": k, "row": r}) for k, r in step])
        for k, r in step:
            histories.apply(k, r)
        assert pipeline.rows() == histories.shown()
    assert pipeline.metrics["unmatched"] == histories.unmatched
    assert live_rows(pipeline) == sum(map(len, histories.rows.values()))


def live_rows(pipeline):
    entries = {(e["id"], e["_position"]): e["_removed"] for e in pipeline.state.sort_by("_step").to_pylist()}
    return sum(not removed for removed in entries.values())


@PIPELINES
@given(st.lists(st.tuples(st.sampled_from("cudr"), st.integers(0, 2), st.integers(0, 9)), max_size=25), CUTS)
def test_full_change_events_with_truncates_equal_the_table(kind, actions, cuts):
    table, lines, tables = {}, [], []
    for name, key, n in actions:
        old = table.get(key)
        if name == "r" and n == 0:
            table.clear()
            lines.append(record(envelope("t", len(lines))))
        elif name == "d" and old:
            lines.append(record(envelope("d", len(lines), before=table.pop(key))))
        elif name in "cr" and not old:
            table[key] = {"id": key, "n": n}
            lines.append(record(envelope(name, len(lines), after=table[key])))
        elif name == "u" and old:
            table[key] = {"id": key, "n": n}
            lines.append(record(envelope("u", len(lines), before=old, after=table[key])))
        else:
            continue
        tables.append([table[k] for k in sorted(table)])
    pipeline, read = kind(FULL), 0
    for step in cut([json.loads(line) | {"offset": n} for n, line in enumerate(lines)], cuts):
        pipeline.step([json.dumps(line) for line in step])
        read += len(step)
        assert pipeline.rows() == (tables[read - 1] if read else [])
    assert pipeline.metrics["unmatched"] == 0


def test_changed_key_in_full_events_leaves_no_row_under_the_old_key():
    events = [
        envelope("c", 1, after={"id": 1, "n": 1}),
        envelope("u", 2, before={"id": 1, "n": 1}, after={"id": 2, "n": 1}),
    ]
    assert numbers(run([record(e, n) for n, e in enumerate(events)], of=FULL)) == {2: 1}


def test_retraction_of_the_shown_row_shows_the_one_before():
    pipeline = run([row("+I", 1, 1)], [row("+U", 1, 2)], [row("-D", 1, 2)])
    assert (numbers(pipeline), pipeline.metrics["updated"]) == ({1: 1}, 2)


def test_retraction_matches_by_all_columns():
    pipeline = run([row("+I", 1, 1)], [change("-D", id=1, n=1, f=0.5), row("-D", 1, None)])
    assert (numbers(pipeline), pipeline.metrics["unmatched"]) == ({1: 1}, 2)


def test_history_that_ends_as_it_began_writes_nothing_to_the_sink():
    pipeline = run([row("+I", 1, 1)], [row("+U", 1, 2), row("-U", 1, 2)])
    assert (numbers(pipeline), pipeline.metrics["unchanged"], pipeline.metrics["updated"]) == ({1: 1}, 1, 0)


def test_row_that_comes_and_goes_within_a_step_leaves_nothing():
    pipeline = run([row("+I", 1, 1), row("-D", 1, 1)])
    assert (pipeline.rows(), len(pipeline.state)) == ([], 0)


def test_truncate_empties_at_its_place_in_the_order():
    lines = [envelope("c", 1, after={"id": 1, "n": 1}), envelope("t", 2), envelope("c", 3, after={"id": 2, "n": 2})]
    records = [record(value, n) for n, value in enumerate(lines)]
    before = record(envelope("c", 0, after={"id": 3, "n": 3}), 9)
    pipeline = run([before], records, of=FULL)
    assert (numbers(pipeline), pipeline.metrics["below_floor"]) == ({2: 2}, 1)
    pipeline.step([record(envelope("d", 4, before={"id": 3, "n": 3}), 10)])
    assert (numbers(pipeline), pipeline.metrics["unmatched"]) == ({2: 2}, 1)


def test_redelivered_record_is_known_by_its_origin_and_an_equal_one_is_not():
    events = [envelope("c", 1, after={"id": 1, "n": 1})] * 2 + [envelope("d", 2, before={"id": 1, "n": 1})]
    lines = [record(value, n) for n, value in enumerate(events)]
    pipeline = run(lines, lines, [lines[1]], of=FULL)
    assert (numbers(pipeline), pipeline.metrics["redelivered"]) == ({1: 1}, 4)


def test_redelivered_truncate_empties_nothing():
    lines = [record(envelope("t", 1), 0), record(envelope("c", 2, after={"id": 1, "n": 1}), 1)]
    assert numbers(run(lines, [lines[0]], lines, of=FULL)) == {1: 1}


def test_redelivered_update_counts_both_of_its_rows_and_within_one_step_too():
    update = record(envelope("u", 1, before={"id": 1, "n": 1}, after={"id": 1, "n": 2}), 1)
    pipeline = run([record(envelope("c", 0, after={"id": 1, "n": 1}), 0), update, update], of=FULL)
    assert (numbers(pipeline), pipeline.metrics["redelivered"], pipeline.metrics["unmatched"]) == ({1: 2}, 2, 0)


def test_plain_position_tells_a_redelivered_row_from_a_second_equal_one():
    placed = plain(SPEC.schema_, format={"type": "plain", "position": ["task", "seq"]})
    lines = [
        json.dumps(json.loads(row("+I", 1, n)) | {"task": t, "seq": s}) for n, t, s in ((1, 0, 0), (1, 0, 1), (2, 1, 0))
    ]
    pipeline = run(lines, lines, of=placed)
    assert (numbers(pipeline), len(pipeline.state), pipeline.metrics["redelivered"]) == ({1: 2}, 3, 3)


@pytest.mark.parametrize(
    ("a", "b", "same"), [("NaN", "NaN", True), (0.0, -0.0, True), (None, None, True), (1, 1.0, True)]
)
def test_rows_match_by_value(a, b, same):
    added, retracted = change("+I", id=1, n=1, f=a), change("-D", id=1, n=1, f=b)
    assert (run([added], [retracted]).rows() == []) is same


EQUAL = {
    "DOUBLE": [0.0, -0.0, 0],
    "FLOAT": [-0.0, 0.0],
    "BIGINT": [7, "7"],
    "DECIMAL(10,2)": [1.5, "1.50", "1.5", "15e-1", "+1.500"],
    "TIMESTAMP": ["2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", 1767225600000000],
    "TIMESTAMP_NTZ": ["2026-01-01T00:00:00", "2026-01-01 00:00:00.000", 1767225600000000],
    "DATE": ["2026-01-01", 20454],
    "BINARY": ["-_8=", "+/8="],
    "MAP<STRING, DOUBLE>": [{"a": 0.0, "b": 1}, {"b": 1.0, "a": -0.0}],
    "STRUCT<a: DOUBLE, b: INT>": [{"a": 0.0, "b": 1}, {"b": 1, "a": -0.0}],
    "ARRAY<DOUBLE>": [[0.0, 1.0], [-0.0, 1]],
    "ARRAY<STRUCT<x: FLOAT, y: STRING>>": [[{"x": -0.0, "y": "b"}, None], [{"y": "b", "x": 0.0}, None]],
    "MAP<STRING, ARRAY<DOUBLE>>": [{"a": [0.0], "b": []}, {"b": [], "a": [-0.0]}],
}


@pytest.mark.demand("sum-equality")
@pytest.mark.parametrize(("type_", "number"), [(type_, n) for type_, forms in EQUAL.items() for n in range(len(forms))])
def test_retraction_finds_a_row_whatever_form_its_value_is_written_in(type_, number):
    forms = EQUAL[type_]
    of = plain(f"id BIGINT NOT NULL, v {type_}")
    added = [change("+I", id=key, v=form) for key, form in enumerate(forms)]
    retracted = [change("-D", id=key, v=forms[number]) for key in range(len(forms))]
    for steps in ([added, retracted], [[*added, *retracted]]):
        pipeline = run(*steps, of=of)
        assert (pipeline.rows(), pipeline.metrics["unmatched"], pipeline.quarantine) == ([], 0, [])
