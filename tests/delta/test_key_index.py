"""Rows of a file by key: indexed, from copies that may be torn."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from frame.stored_names import FOOTER, HASH, POSITION

from ebbtide.delta import DataFile, IndexCache
from ebbtide.delta import _key_index as key_index
from ebbtide.delta._copy_space import Space

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("n", pa.int64())])


def table(keys):
    return pa.table({"a": [a for a, _ in keys], "b": [b for _, b in keys], "n": range(len(keys))}, SCHEMA)


@pytest.fixture
def written(tmp_path):
    rows = table([(1, "x"), (2, "y"), (1, "z")])
    return (
        str(tmp_path / "t"),
        DataFile(DataFile.write(str(tmp_path / "t"), "f.parquet", rows, bounded=())["add"]),
        rows,
    )


def cache_of(path, folder, **more):
    return IndexCache(path, ["a"], SCHEMA, folder=folder, **more)


def ids(index):
    return sorted(zip(all_rows(index)["a"].to_pylist(), index.positions.tolist(), strict=True))


def all_rows(index):
    return index.rows.slice(0, len(index.rows))


def keep(cache, file, rows):
    cache.keep(file, cache.indexed(rows))


WHOLE = [(1, 0), (1, 2), (2, 1)]


def test_copy_is_made_once_and_read_by_other_processes(tmp_path, written):
    where, file, _ = written
    assert ids(cache_of(where, tmp_path / "c").index_of(file)) == WHOLE
    [copy] = (tmp_path / "c").iterdir()
    (tmp_path / "t" / "f.parquet").unlink()
    assert ids(cache_of(where, tmp_path / "c").index_of(file)) == WHOLE
    assert [copy] == list((tmp_path / "c").iterdir())


@pytest.mark.parametrize("keep", [0, 10, -8])
def test_torn_copy_is_made_again(tmp_path, written, keep):
    where, file, _ = written
    cache_of(where, tmp_path / "c").index_of(file)
    [copy] = (tmp_path / "c").iterdir()
    torn = copy.read_bytes()[:keep]
    copy.unlink()  # it is mapped: what is mapped must not get shorter
    copy.write_bytes(torn)
    assert ids(cache_of(where, tmp_path / "c").index_of(file)) == WHOLE


@pytest.mark.parametrize(
    "changed",
    [
        {"key": ["a", "b"]},
        {"columns": pa.schema([("a", pa.int64()), ("b", pa.string())])},
        {"columns": pa.schema([("a", pa.int32()), ("b", pa.string()), ("n", pa.int64())])},
        {"where": ("b", "x")},
        {"where": ("b", "z")},
        {"table_id": "another"},
        {"table": "another"},
    ],
    ids=str,
)
def test_index_of_other_rows_or_columns_has_a_copy_of_its_own(tmp_path, written, changed):
    where, file, _ = written
    own = {"table": where, "key": ["a"], "columns": SCHEMA, "where": ("b", "y")}
    names = {IndexCache(**{**own, **more}, folder=tmp_path)._stem(file) for more in ({}, changed)}
    assert len(names) == 2


def test_copies_of_an_earlier_boot_are_not_read(tmp_path, monkeypatch, written):
    """They were not waited for until they were on disk."""
    where, file, _ = written
    before = cache_of(where, tmp_path)._stem(file)
    monkeypatch.setattr(key_index, "boot", lambda: "a later boot")
    assert cache_of(where, tmp_path)._stem(file) != before


def test_folder_that_cannot_be_written_is_done_without(tmp_path, written):
    where, file, rows = written
    (tmp_path / "c").write_text("a file")
    cache = cache_of(where, tmp_path / "c")
    assert ids(cache.index_of(file)) == WHOLE
    keep(cache, file, rows)
    assert ids(cache.index_of(file)) == WHOLE


def test_copies_take_so_much_and_no_more(tmp_path, written):
    where, _, rows = written
    size = None
    for number in range(10):
        add = DataFile.write(where, f"g{number}.parquet", rows, bounded=())["add"]
        cache = cache_of(where, tmp_path / "c", max_bytes=size or 10**9)
        cache.index_of(DataFile(add))
        size = size or 4 * next((tmp_path / "c").iterdir()).stat().st_size
    assert 2 <= len(list((tmp_path / "c").iterdir())) <= 4


def test_copies_of_files_that_no_longer_count_are_deleted_and_those_not_yet_committed_stay(tmp_path, written):
    path, old, rows = written
    new = DataFile(DataFile.write(path, "g.parquet", rows, bounded=())["add"])
    folder = tmp_path / "copies"
    cache = cache_of(path, folder)
    keep(cache, old, rows)
    cache.only([old])
    keep(cache, new, rows)
    cache.only([old])
    assert len(list(folder.iterdir())) == 2
    cache.only([new])
    assert len(list(folder.iterdir())) == 1
    assert len(cache.index_of(old).rows) == 3


def foreign(path, **more):
    """A data file of another client, which notes no footer."""
    status = path.stat()
    return DataFile({"path": path.name, "size": status.st_size, "modificationTime": 7, **more})


def stored_at(path, keys):
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table(keys), path, compression="none", use_dictionary=False)


def test_file_made_again_with_the_same_name_size_and_time_has_a_copy_of_its_own(tmp_path):
    path, folder = tmp_path / "t" / "part-0.parquet", tmp_path / "c"
    files = []
    for keys in ([(1, "x"), (2, "y")], [(2, "x"), (3, "y")]):
        stored_at(path, keys)
        files.append(foreign(path))
        index = cache_of(str(path.parent), folder).index_of(files[-1])
        assert sorted(all_rows(index)["a"].to_pylist()) == [a for a, _ in keys]
    assert files[0].add == files[1].add


@pytest.mark.parametrize("more", [{"modificationTime": 8}, {"size": 8}, {"tags": {FOOTER: "0000000f"}}])
def test_file_that_the_log_describes_in_another_way_has_a_copy_of_its_own(tmp_path, more):
    path = tmp_path / "t" / "part-0.parquet"
    stored_at(path, [(1, "x")])
    cache = cache_of(str(path.parent), tmp_path / "c")
    cache.index_of(foreign(path))
    assert cache._stem(foreign(path)) != cache._stem(foreign(path, **more))
    assert cache_of(str(path.parent), tmp_path / "c")._stem(foreign(path)) == cache._stem(foreign(path))


def test_table_made_again_in_its_place_has_copies_of_its_own(tmp_path, written):
    where, file, _ = written
    first, second = (cache_of(where, tmp_path / "c", table_id=id_) for id_ in ("a", "b"))
    first.index_of(file)
    second.index_of(file)
    assert len(list((tmp_path / "c").iterdir())) == 2


def mapped_bytes(folder):
    """Bytes of copies that this process has mapped, deleted ones too."""
    n_bytes = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        if str(folder) in line:
            span, *_ = line.split()
            start, end = (int(part, 16) for part in span.split("-"))
            n_bytes[span] = end - start
    return sum(n_bytes.values())


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux says what is mapped")
def test_copies_that_were_deleted_for_want_of_space_are_not_kept_mapped(tmp_path, written):
    where, _, _ = written
    rows = table([(number, "x" * 50) for number in range(2000)])
    limit = 400_000
    caches = [cache_of(where, tmp_path / "c", max_bytes=limit) for _ in range(2)]
    for number in range(30):
        add = DataFile.write(where, f"g{number}.parquet", rows, bounded=())["add"]
        caches[number % 2].index_of(DataFile(add))
    assert mapped_bytes(tmp_path / "c") <= 1.5 * limit


def test_copy_that_another_process_deleted_is_closed_with_the_next_version(tmp_path, written):
    where, file, _ = written
    cache = cache_of(where, tmp_path / "c")
    cache.index_of(file)
    [copy] = (tmp_path / "c").iterdir()
    copy.unlink()
    cache.only([file])
    assert cache._open == {}
    assert ids(cache.index_of(file)) == WHOLE


def test_copy_in_use_outlives_one_that_is_not(tmp_path, written):
    where, _, rows = written
    files = [DataFile(DataFile.write(where, f"g{number}.parquet", rows, bounded=())["add"]) for number in range(9)]
    cache = cache_of(where, tmp_path / "c", max_bytes=10**9)
    cache.index_of(files[0])
    [copy] = (tmp_path / "c").iterdir()
    cache.space.max_bytes = 4 * copy.stat().st_size
    for file in files[1:]:
        cache.index_of(file)
        cache.index_of(files[0])
    assert copy.exists()


@pytest.mark.parametrize(("times", "n_warnings"), [(4, 1), (1000, 0)])
def test_cap_that_the_copies_in_use_do_not_fit_is_warned_of_once(tmp_path, written, caplog, times, n_warnings):
    where, _, rows = written
    files = [DataFile(DataFile.write(where, f"g{number}.parquet", rows, bounded=())["add"]) for number in range(12)]
    cache = cache_of(where, tmp_path / "c", max_bytes=10**9)
    cache.index_of(files[0])
    [copy] = (tmp_path / "c").iterdir()
    cache.space.max_bytes = times * copy.stat().st_size
    for file in files * 2:
        cache.index_of(file)
    warned = [record.getMessage() for record in caplog.records if "EBBTIDE_CACHE_BYTES" in record.getMessage()]
    assert len(warned) == n_warnings
    assert all(str(tmp_path / "c") in text for text in warned)


def test_copies_that_no_step_uses_go_without_a_warning(tmp_path, written, caplog):
    where, _, rows = written
    files = [DataFile(DataFile.write(where, f"g{number}.parquet", rows, bounded=())["add"]) for number in range(12)]
    cache = cache_of(where, tmp_path / "c", max_bytes=10**9)
    cache.index_of(files[0])
    [copy] = (tmp_path / "c").iterdir()
    cache.space.max_bytes = 4 * copy.stat().st_size
    for file in files:
        cache.index_of(file)
        del cache._open[next(iter(cache._open))]  # as a process that has ended leaves it
    assert len(list((tmp_path / "c").glob("*.arrow"))) <= 5
    assert not caplog.records


def test_index_without_a_copy_is_kept_as_long_as_its_file_counts(tmp_path, written):
    where, file, _ = written
    (tmp_path / "c").write_text("a file")
    cache = cache_of(where, tmp_path / "c")
    index = cache.index_of(file)
    cache.only([file])
    assert cache.index_of(file) is index
    cache.only([])
    assert cache._open == {}


def test_rows_of_one_kind_alone_are_kept_with_their_numbers(tmp_path, written):
    where, file, _ = written
    cache = cache_of(where, tmp_path / "c", where=("b", "z"))
    assert ids(cache.index_of(file)) == [(1, 2)]
    rows = table([(1, None), (2, "y")])
    some = DataFile(DataFile.write(where, "g.parquet", rows, bounded=())["add"])
    assert ids(cache_of(where, tmp_path / "c", where=("b", "y")).index_of(some)) == [(2, 1)], "null is not a value"


def test_copies_are_kept_in_a_folder_of_ones_own_only(tmp_path):
    rows = table([(1, "x")])
    data_file = DataFile(DataFile.write(str(tmp_path / "t"), "part.parquet", rows, bounded=())["add"])
    for name, mode, kept in [
        ("made", None, True),
        ("ours", 0o755, True),
        ("of_a_group", 0o770, False),
        ("of_all", 0o777, False),
    ]:
        folder = tmp_path / name
        if mode is not None:
            folder.mkdir()
            folder.chmod(mode)
        cache = IndexCache(str(tmp_path / "t"), ["a", "b"], rows.schema, folder=folder)
        assert len(cache.index_of(data_file).hashes) == 1
        assert bool(list(folder.iterdir())) == kept, name
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700


def test_room_for_copies_is_known_without_a_scan_for_each_answer(tmp_path, monkeypatch):
    scans = []
    copies = Space._copies
    monkeypatch.setattr(Space, "_copies", lambda space: scans.append(space) or copies(space))
    space = Space(tmp_path / "c", 10**6)
    assert (space.admits(800_000), space.admits(800_001)) == (True, False)
    path, _ = space.paths("stem")
    columns = {HASH: pa.array([1, 2], pa.uint64()), POSITION: pa.array([1, 0], pa.uint32())}
    assert space.write(path, pa.table(columns))
    left = 800_000 - path.stat().st_size
    assert (space.admits(left), space.admits(left + 1)) == (True, False)
    space.delete("stem")
    assert (space.admits(800_000), space.admits(800_001)) == (True, False)
    assert len(scans) == 1


def test_threads_that_need_one_index_make_it_once(tmp_path, written):
    where, file, _ = written
    cache = cache_of(where, tmp_path / "c")
    together = threading.Barrier(8, timeout=60)

    def index(_):
        together.wait()
        return cache.index_of(file)

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(index, range(8)))
    assert all(each is made[0] for each in made)
    assert len(list((tmp_path / "c").iterdir())) == 1
