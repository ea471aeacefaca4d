"""All entries are gone over once, by their newest versions, whatever the parts; rows that were deleted stay so."""

import json

import numpy as np
import pyarrow as pa
import pytest
from disk import with_second_versions
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64
from support import plain

from ebbtide.delta import joining, key_index, vectors
from ebbtide.delta.commit import LocalPuts
from ebbtide.delta.key_index import KeyIndex
from ebbtide.delta.snapshot import DataFile, Snapshot
from ebbtide.delta.table import commit_after, read_file
from ebbtide.tables.state import rewriting
from ebbtide.tables.state.lookup import Stored
from ebbtide.tables.state.rewriting import BASE, Part, StoredEntries, rows_of

OF = plain("id BIGINT NOT NULL, n INT, at INT", order={"sequence": ["at"]})


@pytest.fixture
def state(tmp_path, monkeypatch):
    """Entries 0 to 5, of which 0 to 2 have a second version, in two files."""
    monkeypatch.setenv(key_index.CACHE_FOLDER, str(tmp_path / "cache"))
    monkeypatch.setattr(joining, "WIDTH", 100)
    return with_second_versions(OF, tmp_path)


def entries_of(state):
    stored = state.stored(Snapshot.read(state.path))
    return StoredEntries(stored, operator=lambda: state.operator)


def without_row(state, id_, n):
    """Take one version of an entry out by a vector."""
    found = Snapshot.read(state.path)
    for file in found.files.values():
        rows = read_file(state.path, file, state.schema, live=False).to_pylist()
        at = [number for number, row in enumerate(rows) if (row["id"], row["n"]) == (id_, n)]
        if at:
            [vector] = vectors.write(state.path, [BitMap64(at)])
            actions = [file.removed(0, data_change=True), file.with_vector(vector, data_change=True)]
            commit_after(LocalPuts(), found, actions, {"operation": "DELETE"})
            return
    raise LookupError(id_)


def newest(state, of=1):
    entries = entries_of(state)
    rows = [row for number in range(of) for row in entries.newest(Part(number, of)).to_pylist()]
    return sorted((row["id"], row["n"]) for row in rows)


@given(st.lists(st.integers(0, 2**64 - 1)), st.integers(1, 7))
def test_each_row_is_in_one_part(hashes, n_parts):
    ordered = np.array(sorted([*hashes, 0, 2**64 - 1]), np.uint64)
    index = KeyIndex(ordered, np.arange(len(ordered)), pa.table({}))
    slices = [Part(number, n_parts).rows_of(index) for number in range(n_parts)]
    numbers = [number for each in slices for number in range(each.start, each.stop)]
    assert numbers == list(range(len(ordered)))


@pytest.mark.parametrize("n_parts", [1, 2, 5])
def test_newest_version_of_each_entry_counts(state, n_parts):
    assert newest(state, n_parts) == [(0, 2), (1, 2), (2, 2), (3, 1), (4, 1), (5, 1)]


def test_version_that_a_vector_deletes_does_not_count(state):
    without_row(state, 0, 2)
    without_row(state, 5, 1)
    assert newest(state) == [(0, 1), (1, 2), (2, 2), (3, 1), (4, 1)]


@pytest.mark.parametrize(("n_rows", "n_parts"), [(0, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_parts_are_as_many_as_the_rows_need_whatever_their_bytes(monkeypatch, n_rows, n_parts):
    monkeypatch.setattr(rewriting, "ROWS_IN_PART", 10)
    stats = json.dumps({"numRecords": n_rows})
    file = DataFile({"path": "a", "size": 10**9, "stats": stats})
    parts = StoredEntries(Stored("t", (file,), pa.schema([])), None).parts()
    assert parts == [Part(number, n_parts) for number in range(n_parts)]


def test_rows_that_the_log_does_not_count_are_guessed_by_bytes_and_deleted_ones_do_not_count():
    assert rows_of(DataFile({"path": "a", "size": 80})) == 10
    stats = json.dumps({"numRecords": 7})
    vector = {"storageType": "u", "pathOrInlineDv": "x", "cardinality": 3}
    assert rows_of(DataFile({"path": "a", "size": 80, "stats": stats, "deletionVector": vector})) == 4


def test_only_a_fold_of_the_whole_state_is_noted_as_one(state, monkeypatch):
    from ebbtide.runtime.fold import KeepEntries

    entries = entries_of(state)
    for is_whole in (False, True):
        keep = KeepEntries(is_whole)
        fold = rewriting.Rewrite(entries, entries.state, state.schema, state.bounded, keep, is_whole, data_change=False)
        [action] = fold(Part(0, 1))
        assert (BASE.items() <= action["add"]["tags"].items()) is is_whole
