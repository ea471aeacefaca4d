"""Source files that were read are noted beside the entries."""

import json

import pytest
from local.support import plain

from ebbtide.columns import entry_table
from ebbtide.delta import DataFile, Snapshot, Writer
from ebbtide.runtime import Plan

PUTS = Writer()


@pytest.fixture
def state(tmp_path):
    table = Plan.under(str(tmp_path), plain()).state
    table.create()
    return table


def add_rows(state, **columns):
    rows = entry_table(state.schema, columns, len(columns["_entry"]))
    snapshot = Snapshot.read(state.path)
    action = DataFile.write(state.path, f"{snapshot.version}.parquet", rows, bounded=state.bounded)
    PUTS.commit_version(state.path, snapshot.version + 1, [action], {"operation": "WRITE"})
    return snapshot.version + 1


def test_noted_source_files_are_found_in_each_form(state):
    add_rows(state, _entry=["metrics", "file"], _note=["{}", "old.jsonl"])
    note = json.dumps({"name": "ü.jsonl", "size": 7})
    add_rows(state, _entry=["file", "row"], _note=[note, None])
    snapshot = Snapshot.read(state.path)
    noted = state.add_rows(state.noted_files([("b", 3)], 5), data_change=True)
    PUTS.commit_version(state.path, snapshot.version + 1, [noted], {"operation": "WRITE"})
    files = Snapshot.read(state.path).files.values()
    assert state.files(files) == {"old.jsonl": None, "ü.jsonl": 7, "b": 3}
