"""Joining small files: few are left whatever the steps write, a row is written again a few times, and no row changes."""

import random

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from frame.stored_names import FOOTER

from ebbtide.delta import DataFile, Definition, Snapshot, Writer, write_files
from ebbtide.delta import _writer as writer
from ebbtide.tables._joining import (
    LEAST_BYTES,
    MOST_BYTES,
    ROWS_PER_FILE,
    SMALL_BYTES,
    WIDTH,
    emptied_files,
    in_batches,
    small_files,
    wide_files,
)

COLUMNS = pa.schema([("n", pa.int64())])
PUTS = Writer()


def file_of(size, rows=None, gone=0, unpacked=None):
    stats = {} if rows is None else {"stats": f'{{"numRecords": {rows}}}'}
    vector = {"deletionVector": {"cardinality": gone, "storageType": "u", "pathOrInlineDv": "x"}} if gone else {}
    tags = {"tags": {"ebbtideUnpacked": str(unpacked)}} if unpacked else {}
    return DataFile({"path": f"f{size}-{random.random()}", "size": size, **stats, **vector, **tags})


def sizes(files):
    return sorted(file.size for file in files)


@pytest.mark.parametrize(
    ("stored", "joined"),
    [
        ([], []),
        ([10] * (WIDTH - 1), []),
        ([10] * WIDTH, [10] * WIDTH),
        ([10] * WIDTH + [LEAST_BYTES] * (WIDTH - 2), [10] * WIDTH),
        ([10] * WIDTH + [LEAST_BYTES] * (WIDTH - 1), [10] * WIDTH + [LEAST_BYTES] * (WIDTH - 1)),
        ([10] + [LEAST_BYTES] * WIDTH, [10] + [LEAST_BYTES] * WIDTH),
        ([SMALL_BYTES] * 50, []),
        ([SMALL_BYTES - 1] * WIDTH + [SMALL_BYTES], [SMALL_BYTES - 1] * WIDTH),
    ],
    ids=["none", "too few", "enough", "no cascade", "cascade", "lower ones go along", "large", "up to large"],
)
def test_files_are_joined_once_enough_of_a_class_have_come_together(stored, joined):
    assert sizes(small_files(map(file_of, stored))) == sorted(joined)


@pytest.mark.parametrize("bytes_a_row", [None, 7, 31])
def test_rows_of_few_bytes_are_not_joined_again_once_their_files_have_all_the_rows_that_a_join_writes(bytes_a_row):
    files, new_rows, joined_rows = [], 0, 0
    for _ in range(300):
        new_rows += 100_000
        files.append(file_of((bytes_a_row or 31) * 100_000, bytes_a_row and 100_000))
        group = small_files(files)
        files = [file for file in files if file not in group]
        left = sum(file.rows or file.size // 31 for file in group)
        joined_rows += left
        while left > 0:
            n_rows = min(left, ROWS_PER_FILE)
            files.append(file_of((bytes_a_row or 31) * n_rows, bytes_a_row and n_rows))
            left -= n_rows
    assert joined_rows <= 2 * new_rows
    assert len(files) <= new_rows // ROWS_PER_FILE * 2 + 2 * WIDTH


@pytest.mark.parametrize("seed", range(4))
def test_thousands_of_steps_leave_few_files_and_write_each_byte_a_few_times(seed):
    chance = random.Random(seed)
    files, new_bytes, joined_bytes, most = [], 0, 0, 0
    for _ in range(3000):
        size = int(10 ** chance.uniform(2, 5.5))
        new_bytes += size
        files.append(file_of(size))
        group = small_files(files)
        if group:
            joined_bytes += sum(sizes(group))
            files = [file for file in files if file not in group] + [file_of(sum(sizes(group)))]
        most = max(most, sum(file.size < SMALL_BYTES for file in files))
    assert most <= 4 * WIDTH
    assert joined_bytes <= 4 * new_bytes


def test_large_files_of_which_half_is_gone_are_written_again():
    files = [
        file_of(SMALL_BYTES, 10, 5),
        file_of(SMALL_BYTES, 10, 4),
        file_of(SMALL_BYTES),
        file_of(SMALL_BYTES - 1, 10, 9),
    ]
    assert emptied_files(files) == files[:1]


def file_of_share(number, n_shares):
    """A large file with the keys of one of several equal ranges."""
    first, end = number * 2**16 // n_shares, (number + 1) * 2**16 // n_shares - 1
    tags = {"tags": {"ebbtideKeyRange": f"x-{first:04x}-{end:04x}"}}
    return DataFile({"path": f"f{number}", "size": SMALL_BYTES, "stats": '{"numRecords": 1000000}', **tags})


@pytest.mark.parametrize("n_hosts", [1, 2, 3, 5, 8, 11, 23, 64, 91, 128, 500])
def test_file_of_one_task_is_never_cut_and_one_of_all_keys_is_on_several_hosts(n_hosts):
    own = [file_of_share(number, n_hosts) for number in range(n_hosts)]
    assert wide_files(own, n_hosts) == []
    assert bool(wide_files([file_of_share(0, 1)], n_hosts)) is (n_hosts > 1)


def test_files_are_joined_in_groups_that_memory_takes():
    files = [file_of(MOST_BYTES // 3 - 1) for _ in range(7)] + [file_of(2 * MOST_BYTES)]
    groups = list(in_batches(files))
    assert [len(group) for group in groups] == [3, 3, 1, 1]
    assert sizes(file for group in groups for file in group) == sizes(files)


def test_small_files_whose_rows_fill_memory_are_joined_by_what_they_take_there():
    files = [file_of(10, unpacked=MOST_BYTES // 3) for _ in range(7)]
    assert [len(group) for group in in_batches(files)] == [3, 3, 1]
    full = [file_of(10, unpacked=MOST_BYTES // 2) for _ in range(WIDTH)]
    assert small_files(files + full) == []
    assert len(small_files([*files, file_of(10)])) == WIDTH


def test_bytes_in_memory_are_noted_of_files_of_a_megabyte(tmp_path):
    path = str(tmp_path / "t")
    PUTS.create(path, Definition(COLUMNS), name="t", info={})
    of_rows = {}
    for n_rows in (10, 2**18):
        rows = pa.table({"n": pa.repeat(7, n_rows)}, COLUMNS)
        [action] = write_files(path, rows, (), data_change=True)
        of_rows[n_rows] = DataFile(action["add"])
    small, large = of_rows.values()
    assert (small.unpacked_bytes, large.unpacked_bytes) == (small.size, 2**18 * 8)
    assert large.size < 2**18


@pytest.fixture
def table(tmp_path):
    path = str(tmp_path / "t")
    PUTS.create(path, Definition(COLUMNS), name="t", info={})
    for start in range(0, 12, 3):
        rows = pa.table({"n": range(start, start + 3)}, COLUMNS)
        PUTS.commit_version(path, Snapshot.read(path).version + 1, written(path, rows), {"operation": "WRITE"})
    return path


def written(path, rows, **more):
    return write_files(path, rows, ["n"], rows_per_file=100, data_change=True, **more)


def numbers(path):
    found = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT n FROM t").read_all()
    return sorted(pa.table(found)["n"].to_pylist())


def join_all(snapshot, files):
    rows = snapshot.rows(COLUMNS, files)
    adds = write_files(snapshot.table, rows, ["n"], rows_per_file=5, data_change=False, tags={"made": "here"})
    return PUTS.join(snapshot, files, adds, {"userMetadata": "x"})


def test_joined_files_hold_the_same_rows_for_any_reader(table):
    snapshot = Snapshot.read(table)
    made = join_all(snapshot, list(snapshot.files.values()))
    assert numbers(table) == list(range(12))
    assert sorted(file.rows for file in made.files.values()) == [2, 5, 5]
    assert {file.tags["made"] for file in Snapshot.read(table).files.values()} == {"here"}
    assert not pa.table(DeltaTable(table).load_cdf(starting_version=made.version, allow_out_of_range=True).read_all())


def test_files_that_another_client_removed_are_not_replaced(table):
    snapshot = Snapshot.read(table)
    DeltaTable(table).optimize.compact()
    newest = join_all(snapshot, list(snapshot.files.values()))
    assert newest.version == Snapshot.read(table).version == snapshot.version + 1
    assert numbers(table) == list(range(12))


def test_files_that_another_client_added_stay(table):
    snapshot = Snapshot.read(table)
    rows = pa.table({"n": [100]}, COLUMNS)
    PUTS.commit_version(table, snapshot.version + 1, written(table, rows), {"operation": "WRITE"})
    made = join_all(snapshot, list(snapshot.files.values()))
    assert made.version == snapshot.version + 2
    assert numbers(table) == [*range(12), 100]


def test_files_that_were_written_for_other_columns_are_left_alone(table):
    snapshot = Snapshot.read(table)
    altered = PUTS.commit(snapshot, Definition(COLUMNS.append(pa.field("b", pa.int64()))).altering(snapshot), {})
    assert join_all(snapshot, list(snapshot.files.values())).version == altered.version
    assert Snapshot.read(table).files.keys() == snapshot.files.keys()


@pytest.mark.parametrize("n_rows", [1, 5, 6, 11])
def test_every_row_is_in_a_file_with_a_footer_of_its_own(table, n_rows):
    rows = pa.table({"n": range(n_rows)}, COLUMNS)
    older = {"made": "here", FOOTER: "00000000"}
    adds = write_files(table, rows, ["n"], rows_per_file=5, data_change=True, tags=older)
    files = [DataFile(action["add"]) for action in adds]
    assert Snapshot.read(table).rows(COLUMNS, files)["n"].to_pylist() == list(range(n_rows))
    assert {file.tags["made"] for file in files} == {"here"}
    assert all(file.tags[FOOTER] != older[FOOTER] for file in files)


def test_joining_writes_the_checkpoint_that_is_due(table, monkeypatch):
    due = []
    monkeypatch.setattr(writer, "checkpoint_if_due", lambda table, version, **how: due.append(version))
    made = join_all(Snapshot.read(table), list(Snapshot.read(table).files.values()))
    assert due == [made.version]
