"""What is noted beside the entries: counts in a step's facts, or in a row of an older step; source files read."""

import json

import pytest
from support import plain

from ebbtide.delta.commit import LocalPuts, commit
from ebbtide.delta.snapshot import Snapshot
from ebbtide.delta.table import add_file
from ebbtide.model.entries import entry_table
from ebbtide.runtime.plan import Plan
from ebbtide.state_table.layout import counts

PUTS = LocalPuts()


@pytest.fixture
def state(tmp_path):
    table = Plan.under(str(tmp_path), plain()).state
    table.create()
    return table


def add_rows(state, **columns):
    rows = entry_table(state.schema, columns, len(columns["_entry"]))
    snapshot = Snapshot.read(state.path)
    action = add_file(state.path, f"{snapshot.version}.parquet", rows, bounded=state.bounded)
    commit(PUTS, state.path, snapshot.version + 1, [action], {"operation": "WRITE"})
    return snapshot.version + 1


def test_counts_of_a_step_stand_in_its_facts(state):
    assert counts(state.path, 99, {"inserted": 3}) == {"inserted": 3}
    assert counts(state.path, 99, {}) == {}


def test_counts_of_an_older_step_stand_in_a_row_of_its_commit(state):
    add_rows(state, _entry=["metrics"], _note=['{"inserted": 9}'])
    version = add_rows(state, _entry=["metrics", "file"], _note=['{"inserted": 3, "deleted": 1}', "a.jsonl"])
    assert counts(state.path, version, None) == {"inserted": 3, "deleted": 1}


def test_source_files_are_found_wherever_they_were_noted(state):
    add_rows(state, _entry=["metrics", "file"], _note=["{}", "old.jsonl"])
    note = json.dumps({"name": "ü.jsonl", "size": 7})
    add_rows(state, _entry=["file", "row"], _note=[note, None])
    snapshot = Snapshot.read(state.path)
    commit(PUTS, state.path, snapshot.version + 1, [state.note_file([("b", 3)], 5)], {"operation": "WRITE"})
    files = Snapshot.read(state.path).files.values()
    assert state.files(files) == {"old.jsonl": None, "ü.jsonl": 7, "b": 3}
