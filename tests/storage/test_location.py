import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ebbtide.errors import ConfigError, DiskError, DiskFullError
from ebbtide.storage import Location, ParquetFile
from ebbtide.storage._disk import failures_named


@pytest.mark.parametrize(
    ("location", "base", "want"),
    [
        ("s3://bucket/a/../b", Path("/data"), "s3://bucket/a/../b"),
        ("shop", Path("/data"), "/data/shop"),
        ("../shop", Path("/data/x"), "/data/shop"),
        ("/shop", Path("/data"), "/shop"),
        (".", Path("/data"), "/data"),
        ("file:///a%20b", Path("/data"), "/a b"),
    ],
)
def test_resolve_makes_a_local_path_absolute(location, base, want):
    assert Location(location).resolved(base) == want


def test_resolve_without_a_base_starts_at_the_working_folder(tmp_path, shell):
    shell.cd(tmp_path)
    assert Location("shop").resolved() == str(tmp_path / "shop")


@pytest.mark.parametrize("location", ["s3://bucket/a", "s3://bucket/a/"])
def test_join_puts_one_slash_between(location):
    assert Location(location) / "b" / "c" == "s3://bucket/a/b/c"


@pytest.mark.parametrize("uri", [False, True])
def test_list_files_gives_plain_names_in_order_without_hidden_ones(tmp_path, uri):
    for name in ("b", "a", "C", "10", "9", ".x", "_y"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inner").touch()
    assert Location(tmp_path.as_uri() if uri else str(tmp_path)).list_files() == ["10", "9", "C", "a", "b"]


@pytest.mark.parametrize("uri", [False, True])
def test_sizes_are_those_of_the_named_files_that_are_there(tmp_path, uri):
    (tmp_path / "folder").mkdir()
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * 3)
    folder = Location(tmp_path.as_uri() if uri else str(tmp_path))
    assert folder.file_sizes({"a", "folder", "gone"}) == {"a": 3}


def test_entries_are_names_in_order_without_hidden_ones(tmp_path):
    (tmp_path / "c").mkdir()
    for name in ("b", "a", ".hidden", "_delta_log"):
        (tmp_path / name).write_bytes(b"")
    assert Location(str(tmp_path)).entries() == ["a", "b", "c"]
    assert Location(str(tmp_path / "absent")).entries() == []


def test_absent_location_has_nothing(tmp_path):
    absent = str(tmp_path / "no")
    assert (Location(absent).exists(), Location(absent).list_files(), Location(absent).read_bytes()) == (
        False,
        [],
        None,
    )
    Location(absent).delete()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["f", "f.gz", "odd name %20 ü"])
def test_read_bytes_gives_the_file_as_it_is(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x00no gzip")
    assert Location(tmp_path / name).exists()
    assert Location(tmp_path / name).read_bytes() == b"\x00no gzip"


def test_read_parquet_gives_the_columns_asked_for(tmp_path):
    location = str(tmp_path / "part=1.parquet")
    table = pa.table({"id": [1, 2], "n": [None, "x"]})
    pq.write_table(table, location)
    assert ParquetFile(location).read(["n"]).equals(table.select(["n"]))


def test_delete_removes_a_folder_and_nothing_beside_it(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "f").touch()
    (tmp_path / "ab").mkdir()
    Location(tmp_path / "a").delete()
    assert [p.name for p in tmp_path.iterdir()] == ["ab"]


@pytest.mark.parametrize("uri", [False, True])
def test_walk_gives_the_files_of_all_folders_with_their_sizes_without_hidden_ones(tmp_path, uri):
    location = tmp_path.as_uri() if uri else str(tmp_path)
    for name in ("b/c.json", "b/a/x", "a.json", "_tmp/x", "b/.git/x", "b/_x"):
        (Location(location) / name).write_bytes(name.encode())
    assert [(f.name, f.size) for f in Location(location).walk()] == [("a.json", 6), ("b/a/x", 5), ("b/c.json", 8)]
    assert [f.name for f in Location(f"{location}/b/").walk()] == ["a/x", "c.json"]
    [only] = (Location(location) / "b/a").walk()
    assert only.modified_ms == int((tmp_path / "b/a/x").stat().st_mtime_ns) // 1_000_000


def test_size_is_that_of_a_file_and_folders_are_distinguished(tmp_path):
    folder, file = str(tmp_path / "f"), str(tmp_path / "f" / "x")
    Location(file).write_bytes(b"12345")
    Location(file).write_bytes(b"123")
    assert (Location(file).size(), Location(folder).size(), Location(file + "y").size()) == (3, None, None)
    assert (Location(folder).is_folder(), Location(file).is_folder(), Location(folder + "y").is_folder()) == (
        True,
        False,
        False,
    )
    Location(file).delete()
    assert list((tmp_path / "f").iterdir()) == []


@pytest.mark.parametrize(
    "location",
    ["in", "../in", "/in", "~", "a:b", "r o'o\"t/{a}[b]*%2e#?$x", "file:///in", "s3://b/in", "s3a://b//in", "gs://b", "hdfs://nn:8020/a@b", "abfss://c@a.dfs/in"],
)  # fmt: skip
def test_path_or_bare_uri_of_a_store_is_a_location(location):
    Location(location).refuse_unusable("source.path")


@pytest.mark.parametrize(
    ("location", "allowed"),
    [
        ("", "a path or a URI"),
        (" ", "a path or a URI"),
        ("a\x00b", "without control characters"),
        ("http://host/in", "a local path, or a URI of file://, s3://, s3a://, gs://"),
        ("FTP://host/in", "a local path, or a URI of"),
        ("S3://b/in", "a local path, or a URI of"),
        ("jdbc:/x", "a local path, or a URI of"),
        ("C:\\in", "a local path, or a URI of"),
        ("file:/in", "a local path, or a URI of"),
        ("file://host/in", "file:/// and an absolute path"),
        ("s3://b/../in", "without '?', '#' and '..'"),
        ("s3://b/%2e%2e/in", "without '?', '#' and '..'"),
        ("s3://b/in?region=x", "without '?', '#' and '..'"),
        ("x" * 256, "names of 255 bytes"),
        ("s3://k:s@b/in", "a bare URI"),
    ],
)
def test_invalid_location_is_refused_with_the_allowed_ones(location, allowed):
    with pytest.raises(ConfigError, match=r"source\.path (is not a location|has credentials in it)\. Got: ") as caught:
        Location(location).refuse_unusable("source.path")
    assert allowed in str(caught.value)


def test_link_in_a_pipelines_folder_is_refused_and_the_root_may_be_one(tmp_path):
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "root"
    (elsewhere / "t").mkdir(parents=True)
    root.symlink_to(elsewhere)
    Location(root).refuse_links("t")
    Location(root).refuse_links("absent")
    (elsewhere / "t" / "staged").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match=r"staged' is a symbolic link, which may lead out of the root"):
        Location(root).refuse_links("t")
    (elsewhere / "u").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match=r"/u' is a symbolic link"):
        Location(root).refuse_links("u")


@pytest.mark.parametrize(
    ("number", "error", "says"),
    [
        (errno.ENOSPC, DiskFullError, "The disk of '/data/a' is full. Got: .*No space left.*Make room, then run again"),
        (errno.EDQUOT, DiskFullError, "The disk of '/data/a' is full. Got: .*quota"),
        (errno.EIO, DiskError, "The disk failed at '/data/a'. Got: .*Input/output error.*Repair it, then run again"),
        (errno.EROFS, DiskError, "Read-only file system"),
        (errno.EFBIG, DiskError, "File too large"),
    ],
)
def test_failure_of_the_disk_is_named_with_the_innermost_file(number, error, says):
    with pytest.raises(error, match=says) as raised, failures_named("/data"), failures_named("/data/a"):
        raise OSError(number, os.strerror(number))
    assert raised.value.errno == number
    assert type(raised.value) is error


@pytest.mark.parametrize("error", [FileNotFoundError(errno.ENOENT, "gone"), IsADirectoryError(errno.EISDIR, "no")])
def test_other_error_of_the_system_is_raised_unchanged(error):
    with pytest.raises(OSError, match=r"gone|no") as raised, failures_named("/data"):
        raise error
    assert raised.value is error


def test_file_that_cannot_be_replaced_stays_and_nothing_is_left_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "plan.json"
    Location(path).replace_bytes(b"old")

    def fail(_):
        raise DiskError("no sync")

    monkeypatch.setattr("ebbtide.storage._location.sync", fail)
    with pytest.raises(DiskError, match="no sync"):
        Location(path).replace_bytes(b"new")
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"


def test_unfinished_files_are_deleted_after_a_day(tmp_path):
    ours, of_delta_rs, young = (
        tmp_path / name for name in (".a.json.1.tmp", "a.checkpoint.parquet#1", ".b.json.2.tmp")
    )
    partition, folder = (tmp_path / name for name in ("a=b#1", ".checkpoint.3.tmp"))
    for path in (partition, folder):
        path.mkdir()
        (path / "file").touch()
    others = [partition, *(tmp_path / name for name in (".own", "c.tmp", "d#e"))]
    for path in (ours, of_delta_rs, young, *others[1:]):
        path.touch()
    for path in (ours, of_delta_rs, folder, *others):
        os.utime(path, (10**9, 10**9))
    Location(tmp_path).delete_unfinished()
    assert sorted(tmp_path.iterdir()) == sorted([young, *others])
    Location(tmp_path).delete_unfinished(older_than_s=0)
    assert sorted(tmp_path.iterdir()) == sorted(others)
