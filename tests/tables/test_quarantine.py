"""The quarantine: bad rows lie ready before the decision that names them, and are appended once."""

import pyarrow as pa
import pytest
from made_facts import made_facts

from ebbtide.delta import joining
from ebbtide.delta.commit import LocalPuts
from ebbtide.delta.snapshot import Snapshot
from ebbtide.delta.table import read_rows
from ebbtide.tables.quarantine import COLUMNS, QuarantineTable
from ebbtide.tables.state.staged import BAD_ROWS

PUTS = LocalPuts()


def bad(*texts):
    rows = [
        {
            "_reason": "bad_json",
            "_detail": "d",
            "_origin": {"source": "f", "partition": 0, "position": at},
            "_order": {"step": 1, "part": 0, "position": at},
            "_raw": text.encode(),
        }
        for at, text in enumerate(texts)
    ]
    return pa.Table.from_pylist(rows, schema=BAD_ROWS)


def stored(table):
    rows = read_rows(Snapshot.read(table.path), COLUMNS)
    return sorted((row["step"], row["raw"].decode()) for row in rows.to_pylist())


@pytest.fixture
def table(tmp_path):
    return QuarantineTable(str(tmp_path / "quarantine"), knows_offsets=True)


def append(table, step, rows):
    facts = made_facts(step)
    table.append(table.write(rows, facts), facts)


def test_rows_are_in_the_table_once_they_are_appended_and_once_only(table):
    facts = made_facts(1)
    actions = table.write(bad("a", "b"), facts)
    assert Snapshot.read(table.path) is None, "written, and named by nothing yet"
    table.append(actions, facts)
    table.append(actions, facts)
    assert stored(table) == [(1, "a"), (1, "b")]


def test_record_that_is_delivered_again_is_no_longer_new(table):
    append(table, 1, bad("a", "b"))
    assert table.new(bad("a", "b", "c"))["_raw"].to_pylist() == [b"c"]
    assert len(QuarantineTable(table.path, knows_offsets=False).new(bad("a"))) == 1


def test_files_of_many_steps_are_joined(table, monkeypatch):
    monkeypatch.setattr(joining, "WIDTH", 3)
    for step in range(1, 8):
        append(table, step, bad(f"row {step}"))
    assert stored(table) == [(step, f"row {step}") for step in range(1, 8)]
    assert len(Snapshot.read(table.path).files) < 4
