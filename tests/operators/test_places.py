"""Changes of one key at one position: the place of their records decides, or `_conflict` says that nothing does."""

import itertools
import json
import random

import pytest
from local.support import cut, envelope, spec

from ebbtide.testing import MemoryPipeline

SPEC = spec(
    "id BIGINT NOT NULL, v STRING",
    order={"sequence": ["_file", "_pos", "_row"]},
    source={"path": "in", "records": "value"},
)
PLACE = {"file": "bin.000003", "pos": 500, "row": 0}
HISTORIES = ["cd", "cud", "uu", "ud", "cdc", "udc", "cuu", "uuu", "cdcd", "dcu", "uaua", "ccad"]
"""Changes of one row in one transaction; `a` brings the first one's value back."""


def transaction(history):
    """The records of changes of row 1 at one position, and its value at the end; row 2 changes behind them."""
    value = None
    records = []
    for number, letter in enumerate(history):
        op = letter.replace("a", "u")
        value = None if op == "d" else f"v{0 if letter == 'a' else number}"
        row = {"id": 1, "v": value}
        before = {"id": 1, "v": "old"} if op != "c" else None
        records.append(json.dumps(envelope(op, None, before=before, after=None if op == "d" else row, **PLACE)))
    return records, value


def shown(pipeline):
    return {row["id"]: row["v"] for row in pipeline.rows()}


def is_conflict(pipeline):
    entries = pipeline.state.to_pylist()
    newest = max(entry["_step"] for entry in entries if entry["id"] == 1)
    return any(entry["_conflict"] for entry in entries if entry["id"] == 1 and entry["_step"] == newest)


@pytest.mark.parametrize("history", HISTORIES)
def test_last_record_of_a_file_counts(history):
    records, value = transaction(history)
    pipeline = MemoryPipeline(SPEC)
    pipeline.step(records)
    assert shown(pipeline) == ({} if value is None else {1: value})
    assert not is_conflict(pipeline)


@pytest.mark.parametrize("history", HISTORIES)
def test_delivery_that_comes_again_in_parts_leaves_the_row(history):
    records, value = transaction(history)
    expected = {} if value is None else {1: value}
    for n in range(1, len(records) + 1):
        pipeline = MemoryPipeline(SPEC)
        pipeline.step(records)
        pipeline.step(records[:n])
        assert shown(pipeline) == expected
        assert not (n == len(records) and is_conflict(pipeline))
        pipeline.step(records)
        assert shown(pipeline) == expected


@pytest.mark.parametrize("history", HISTORIES)
def test_repeats_within_a_file_end_with_its_last_record(history):
    records, value = transaction(history)
    for n in range(1, len(records) + 1):
        pipeline = MemoryPipeline(SPEC)
        pipeline.step([*records[:n], *records])
        assert shown(pipeline) == ({} if value is None else {1: value})
        assert not is_conflict(pipeline)


@pytest.mark.parametrize("history", HISTORIES)
def test_cut_into_files_is_right_or_a_conflict(history):
    records, value = transaction(history)
    expected = {} if value is None else {1: value}
    for at in itertools.chain.from_iterable(itertools.combinations(range(1, len(records)), n) for n in (1, 2)):
        draw = random.Random(str(at))
        pipeline = MemoryPipeline(SPEC)
        parts = cut(records, at)
        draw.shuffle(parts)
        for part in parts:
            pipeline.step(part)
        assert shown(pipeline) == expected or is_conflict(pipeline)
        assert (pipeline.metrics["conflicts"] > 0) == is_conflict(pipeline)


def test_greater_position_settles_a_conflict():
    records, _ = transaction("cd")
    pipeline = MemoryPipeline(SPEC)
    for record in records:
        pipeline.step([record])
    assert is_conflict(pipeline)
    pipeline.step([json.dumps(envelope("d", None, before={"id": 1, "v": "v0"}, **PLACE | {"pos": 501}))])
    assert shown(pipeline) == {}
    assert not is_conflict(pipeline)
