"""All entries are gone over once, by their newest versions, whatever the parts; rows that were deleted stay so."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from crashes.disk import with_second_versions
from frame.limits import set_limits
from frame.stored_names import BASE
from hypothesis import given
from hypothesis import strategies as st
from local.support import plain
from pyroaring import BitMap64

from ebbtide.columns import key_hashes
from ebbtide.delta import DataFile, KeyIndex, Snapshot, Writer
from ebbtide.delta import _copy_files as copy_files
from ebbtide.delta import _vectors as vectors
from ebbtide.tables import HashRange, KeepEntries, RewriteEntries, Stored, StoredEntries

OF = plain("id BIGINT NOT NULL, n INT, at INT", order={"sequence": ["at"]})


@pytest.fixture
def state(tmp_path, shell):
    """Entries 0 to 5, of which 0 to 2 have a second version, in two files."""
    shell.export(EBBTIDE_CACHE=tmp_path / "cache")
    set_limits(width=100)
    return with_second_versions(OF, tmp_path)


def entries_of(state):
    stored = state.stored(Snapshot.read(state.path))
    return StoredEntries(stored, operator=lambda: state.operator)


def without_row(state, id_, n):
    """Take one version of an entry out by a vector."""
    found = Snapshot.read(state.path)
    for file in found.files.values():
        rows = file.read(state.path, state.schema, live=False).to_pylist()
        at = [number for number, row in enumerate(rows) if (row["id"], row["n"]) == (id_, n)]
        if at:
            [vector] = vectors.write(state.path, [BitMap64(at)])
            actions = [file.removed(0, data_change=True), file.with_vector(vector, data_change=True)]
            Writer().commit(found, actions, {"operation": "DELETE"})
            return
    raise LookupError(id_)


def newest(state, of=1):
    entries = entries_of(state)
    rows = [row for part in HashRange(0, 1).pieces(of) for piece in entries.newest(part) for row in piece.to_pylist()]
    return sorted((row["id"], row["n"]) for row in rows)


@given(st.lists(st.integers(0, 2**64 - 1)), st.integers(1, 7))
def test_each_row_is_in_one_part(hashes, n_parts):
    ordered = np.array(sorted([*hashes, 0, 2**64 - 1]), np.uint64)
    index = KeyIndex(ordered, np.arange(len(ordered)), pa.table({}))
    slices = [HashRange(number, n_parts).rows_of(index) for number in range(n_parts)]
    numbers = [number for each in slices for number in range(each.start, each.stop)]
    assert numbers == list(range(len(ordered)))


@pytest.mark.parametrize("n_parts", [1, 2, 5])
def test_newest_version_of_each_entry_counts(state, n_parts):
    assert newest(state, n_parts) == [(0, 2), (1, 2), (2, 2), (3, 1), (4, 1), (5, 1)]


@pytest.mark.parametrize("most", [1, 3, 100])
def test_pieces_of_a_part_have_few_rows_and_follow_each_other_by_hash(state, most):
    set_limits(rows_in_piece=most)
    pieces = list(entries_of(state).newest(HashRange(0, 1)))
    assert len(pieces) == -(-9 // most)
    rows = pa.concat_tables(pieces)
    assert sorted(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True)) == newest(state)
    ends = [hashes[[0, -1]] for piece in pieces if len(hashes := np.sort(key_hashes(piece, ["id"])))]
    assert (np.diff(np.concatenate(ends).astype(object)) >= 0).all()


def test_rewritten_part_is_in_the_order_of_hashes_whatever_its_pieces(state):
    set_limits(rows_in_piece=2)
    entries = entries_of(state)
    keep = KeepEntries(is_whole=True)
    fold = RewriteEntries(entries, state.writer(), keep, is_whole=True, data_change=False)
    [action] = fold(HashRange(0, 1))
    rows = DataFile(action["add"]).read(state.path, state.schema)
    hashes = key_hashes(rows, ["id"])
    assert len(rows) == 6
    assert (hashes[:-1] <= hashes[1:]).all()


def test_local_copies_are_not_mapped_behind_a_part(state, tmp_path):
    list(entries_of(state).newest(HashRange(0, 1)))
    copies = str(tmp_path / "cache" / copy_files.prefix_of(state.path))
    assert any(str(path).startswith(copies) for path in (tmp_path / "cache").iterdir())
    assert copies not in Path("/proc/self/maps").read_text()


def test_version_that_a_vector_deletes_does_not_count(state):
    without_row(state, 0, 2)
    without_row(state, 5, 1)
    assert newest(state) == [(0, 1), (1, 2), (2, 2), (3, 1), (4, 1)]


@pytest.mark.parametrize(("n_rows", "n_parts"), [(0, 1), (10, 1), (11, 2), (20, 2), (21, 4), (41, 8)])
def test_parts_are_a_power_of_two_as_the_rows_need_whatever_their_bytes(n_rows, n_parts):
    set_limits(rewriting_rows_in_part=10)
    stats = json.dumps({"numRecords": n_rows})
    file = DataFile({"path": "a", "size": 10**9, "stats": stats})
    parts = StoredEntries(Stored("t", (file,), pa.schema([])), None).parts()
    assert parts == [HashRange(number, n_parts) for number in range(n_parts)]


def test_rows_that_the_log_does_not_count_are_guessed_by_bytes_and_deleted_ones_do_not_count():
    assert DataFile({"path": "a", "size": 80}).likely_rows == 10
    stats = json.dumps({"numRecords": 7})
    vector = {"storageType": "u", "pathOrInlineDv": "x", "cardinality": 3}
    assert DataFile({"path": "a", "size": 80, "stats": stats, "deletionVector": vector}).likely_rows == 4


def test_only_a_fold_of_the_whole_state_is_noted_as_one(state):
    entries = entries_of(state)
    for is_whole in (False, True):
        keep = KeepEntries(is_whole)
        fold = RewriteEntries(entries, state.writer(), keep, is_whole, data_change=False)
        [action] = fold(HashRange(0, 1))
        assert (BASE.items() <= action["add"]["tags"].items()) is is_whole
