"""Entries are found with all their versions, wherever these are, and deleted by vectors or by rewriting; the rest is counted."""

import dataclasses
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from crashes.disk import DiskPipeline, with_second_versions
from frame.limits import limits, set_limits
from frame.stored_names import BASE
from hypothesis import given, settings
from hypothesis import strategies as st
from local.local_run import SPARK
from local.support import change, plain

from ebbtide.columns import entry_table
from ebbtide.delta import DataFile, Definition, Snapshot, Writer
from ebbtide.operations._maintenance import deletion
from ebbtide.operations._maintenance.doomed import find
from ebbtide.operations._maintenance.judging import Doom

OF = plain("id BIGINT NOT NULL, n INT, at INT", order={"sequence": ["at"]}, ttl="10ms")
LOCAL = Writer()


@pytest.fixture
def state(tmp_path, shell):
    """Entries 0 to 5, of which 0 to 2 have a second version, in two files."""
    shell.export(EBBTIDE_CACHE=tmp_path / "cache")
    set_limits(width=100)
    return with_second_versions(OF, tmp_path, (3, 5))


def of_ids(*ids):
    return Doom(lambda rows, operator: np.isin(rows["id"].to_numpy(), ids), frozenset(["id"]))


def delete(state, doom, **how):
    snapshot = state.snapshot()
    stored = state.stored(snapshot)
    found = find(SPARK, stored, lambda: state.operator, doom, **how)
    planned = deletion.planned(state, stored, found, doom)
    actions = planned.actions(SPARK, snapshot, state.writer())
    LOCAL.commit(snapshot, actions, {"operation": "DELETE"})
    return found


def versions(state):
    rows = state.snapshot().rows(state.schema).to_pylist()
    return sorted((row["id"], row["_step"]) for row in rows if row["_entry"] == "row")


def as_base(state):
    """Tag all files as those of a fold of the whole state."""
    snapshot = state.snapshot()
    adds = [{"add": {**file.add, "tags": {**file.tags, **BASE}}} for file in snapshot.files.values()]
    LOCAL.commit(snapshot, adds, {"operation": "OPTIMIZE"})


@pytest.mark.parametrize("share", [0.0, 2.0], ids=["rewritten", "by vectors"])
@pytest.mark.parametrize("n_rows", [1, 1_000])
def test_deleted_entries_lose_all_versions_and_no_other_entry_does(state, share, n_rows):
    set_limits(rewritten_share=share, doomed_rows_in_part=n_rows)
    assert delete(state, of_ids(3)).n_doomed == 1
    found = delete(state, of_ids(1, 3, 4))
    assert versions(state) == [(0, 1), (0, 2), (2, 1), (2, 2), (5, 1)]
    assert (found.n_doomed, found.n_kept) == (2, 3), "what is deleted stays so"
    has_vectors = any(file.vector is not None for file in state.snapshot().files.values())
    assert has_vectors is (share > 1)


def test_older_version_that_is_doomed_by_itself_stays_under_a_newer_one_that_is_not(state):
    by_n = Doom(lambda rows, operator: rows["n"].to_numpy() == 1)
    assert delete(state, by_n).n_doomed == 3
    assert versions(state) == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)]


def test_file_is_rewritten_once_a_quarter_of_its_rows_is_deleted(state):
    paths = {file.path for file in state.snapshot().files.values()}
    delete(state, of_ids(5))
    files = state.snapshot().files.values()
    assert {file.path for file in files} == paths, "one row of six: a vector"
    assert [file.vector["cardinality"] for file in files if file.vector] == [1]
    delete(state, of_ids(4))
    files = state.snapshot().files.values()
    assert len({file.path for file in files} & paths) == 1, "two of six, the one before counted: rewritten"
    assert not any(file.vector for file in files)
    delete(state, of_ids(0, 1, 2, 3))
    assert not [file for file in state.snapshot().files.values() if file.live_rows and file.least("_entry") == "row"]


def test_stamps_of_deleted_rows_do_not_bound_a_file(state):
    """A tick reads each file whose least stamp has expired: it would read this one each time."""
    set_limits(rewritten_share=2.0)
    snapshot = state.snapshot()
    columns = state.schema
    rows = [{"_entry": "row", "id": 10 + n, "_step": 3, "_removed": False, "_stamp_ms": n} for n in (1, 2, 9)]
    rows += [{"_entry": "row", "id": 20, "_step": 3, "_removed": False}]
    table = pa.Table.from_pylist(rows, columns)
    add = DataFile.write(state.path, "a.parquet", table, bounded=state.bounded)
    LOCAL.commit(snapshot, [add], {"operation": "WRITE"})

    def bounds():
        [file] = [file for file in state.snapshot().files.values() if file.path == "a.parquet"]
        return file.least("_stamp_ms"), file.greatest("_stamp_ms"), file.is_all_null("_stamp_ms"), file.rows

    assert bounds() == (1, 9, False, 4)
    delete(state, of_ids(11))
    assert bounds() == (2, 9, False, 4)
    delete(state, of_ids(12, 19))
    assert bounds() == (None, None, True, 4)


def test_row_that_no_file_may_keep_is_not_hidden_by_a_vector(state):
    set_limits(rewritten_share=2.0)
    delete(state, of_ids(5))
    paths = {file.path for file in state.snapshot().files.values()}
    unless_purged = of_ids()
    kept = dataclasses.replace(unless_purged, is_purged=lambda rows, operator: rows["id"].to_numpy() == 4)
    delete(state, kept)
    assert {file.path for file in state.snapshot().files.values()} == paths, "row 4 is not hidden: it counts"
    purged = dataclasses.replace(unless_purged, is_purged=lambda rows, operator: rows["id"].to_numpy() == 5)
    delete(state, purged)
    files = state.snapshot().files.values()
    assert len({file.path for file in files} - paths) == 1
    assert not any(file.vector for file in files)
    assert versions(state) == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (4, 1)]


def test_most_files_of_a_run_are_those_with_the_most(state):
    set_limits(rewritten_share=2.0)
    doom = of_ids(0, 3, 4, 5)
    found = delete(state, doom, max_files=1)
    assert versions(state) == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)], (
        "the newest version of 0 is in the other file"
    )
    assert (found.n_doomed, found.n_kept) == (3, 3)
    delete(state, doom, max_files=1)
    assert versions(state) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert not delete_found(state, doom).losses


def delete_found(state, doom):
    return find(SPARK, state.stored(state.snapshot()), lambda: state.operator, doom)


def test_keys_are_read_only_where_an_entry_may_have_versions_in_several_files(state, monkeypatch):
    snapshot = state.snapshot()
    base, *_ = sorted(snapshot.files.values(), key=lambda file: -(file.rows or 0))
    others = [file for file in snapshot.files.values() if file.least("_entry") == "row" and file is not base]
    LOCAL.commit(snapshot, DataFile.replacing(others, []), {"operation": "DELETE"})
    as_base(state)
    read = []

    read_file = DataFile.read

    def reading(file, table, columns, **how):
        read.append(set(columns.names))
        return read_file(file, table, columns, **how)

    monkeypatch.setattr(DataFile, "read", reading)
    doom = Doom(lambda rows, operator: rows["_stamp_ms"].to_numpy() < 4, frozenset(["_stamp_ms"]))
    found = delete_found(state, doom)
    assert (found.n_doomed, found.n_kept, found.oldest_ms) == (6, 0, None)
    assert read == [{"_stamp_ms"}]
    counted = delete_found(state, None)
    assert (counted.n_kept, counted.oldest_ms, len(read)) == (6, 3, 1), "by the statistics alone"


def test_dropped_entries_are_not_counted_and_the_oldest_stamp_is_of_one_that_counts(state, tmp_path):
    disk = DiskPipeline(
        plain("id BIGINT NOT NULL, n INT", ttl="10ms", materializer={"on_expire": "delete"}), tmp_path / "b"
    )
    for now_ms in (1, 5, 9):
        disk.step([change("+I", id=now_ms, n=1)], now_ms=now_ms)
    counted = delete_found(disk.plan.state, None)
    assert (counted.n_kept, counted.oldest_ms) == (3, 1)
    disk.tick(now_ms=11)
    counted = delete_found(disk.plan.state, None)
    assert (counted.n_kept, counted.oldest_ms) == (2, 5)


stored_rows = st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.booleans()), max_size=8)


@settings(max_examples=40, deadline=None)
@given(
    base=st.lists(st.integers(0, 5), unique=True),
    base_doomed=st.lists(st.booleans(), min_size=6, max_size=6),
    added=st.lists(stored_rows, max_size=3),
    n_rows=st.integers(1, 9),
)
def test_versions_lost_are_those_of_entries_whose_newest_one_is_doomed(
    tmp_path_factory, base, base_doomed, added, n_rows
):
    """A state of a base, and files added since; `n` = 1 marks a doomed row."""
    home = tmp_path_factory.mktemp("state")
    disk = DiskPipeline(OF, home)
    state = disk.plan.state
    state.create()
    files = [[(id_, base_doomed[id_], False) for id_ in base], *added]
    expected = defaultdict(list)
    adds = []
    for number, rows in enumerate(files):
        newest_of_file = {}
        for id_, is_doomed, is_removed in rows:
            newest_of_file[id_] = is_doomed, is_removed  # a step writes an entry once
        values = {
            "_entry": ["row"] * len(newest_of_file),
            "id": list(newest_of_file),
            "n": [int(is_doomed) for is_doomed, _ in newest_of_file.values()],
            "_removed": [is_removed for _, is_removed in newest_of_file.values()],
            "_step": [number] * len(newest_of_file),
        }
        if newest_of_file:
            table = entry_table(state.schema, values, len(newest_of_file))
            action = DataFile.write(state.path, f"{number}.parquet", table, bounded=state.bounded)
            if number == 0:
                action["add"]["tags"] |= BASE
            adds.append(action)
        for id_, (is_doomed, is_removed) in newest_of_file.items():
            expected[id_].append((number, is_doomed, is_removed))
    LOCAL.commit(state.snapshot(), adds, {"operation": "WRITE"})
    with limits(doomed_rows_in_part=n_rows):
        found = delete(state, Doom(lambda rows, operator: rows["n"].to_numpy() == 1, frozenset(["n"])))
    gone = {id_ for id_, each in expected.items() if each[-1][1]}
    kept = {id_ for id_, each in expected.items() if id_ not in gone and not each[-1][2]}
    assert versions(state) == sorted((id_, step) for id_ in expected if id_ not in gone for step, _, _ in expected[id_])
    assert (found.n_doomed, found.n_kept) == (len(gone), len(kept))


def test_base_is_named_by_its_tag(state):
    tagged = DataFile({"path": "a", "tags": {**BASE, "x": "y"}})
    untagged = DataFile({"path": "a"})
    files = state.stored_in([untagged, tagged])
    assert (files.base, files.added) == ({1: tagged}, {0: untagged})


def test_copied_table_has_its_vectors(state, tmp_path):
    """A swap takes over the state of a backfill, whose files may have some."""
    set_limits(rewritten_share=2.0)
    delete(state, of_ids(5))
    to = str(tmp_path / "other")
    LOCAL.create(to, Definition(state.schema), name="other", info={})
    LOCAL.commit(Snapshot.read(to), state.snapshot().copied_to(to), {"operation": "WRITE"})
    rows = Snapshot.read(to).rows(state.schema)
    assert sorted(rows["id"].to_pylist()) == [0, 0, 1, 1, 2, 2, 3, 4]
