import bz2
import gzip
import lzma
import random

import pyarrow as pa
import pytest
from frame.limits import set_limits

from ebbtide import InProcess
from ebbtide.errors import FileChangedError, SourceReadError
from ebbtide.sources import Discovery, FileSource
from ebbtide.sources._files import FilePlanner, read_files, read_lines

NAMES = [f"{at:02}.jsonl" for at in range(5)]
SIZED = [(name, 10 + at) for at, name in enumerate(NAMES)]
MANY = 10**12


@pytest.fixture
def folder(tmp_path):
    add(tmp_path, *NAMES)
    return tmp_path


def add(folder, *names, content=None):
    for name in names:
        (folder / name).write_bytes(name.encode() if content is None else content)


def rows(batches):
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\n\n\nb\n\n", [b"a", b"", b"", b"b", b""]),
        (b"\xff\x00\n", [b"\xff\x00"]),
        (b"x" * 3_000_000 + b"\ny", [b"x" * 3_000_000, b"y"]),
    ],
    ids=["empty", "plain", "no final newline", "crlf", "blank lines", "not text", "long"],
)
@pytest.mark.parametrize("name", ["f.jsonl", "f.jsonl.gz"])
def test_read_lines_gives_every_line_with_its_number(tmp_path, content, lines, name):
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert rows(read_lines(str(tmp_path), name, 3)) == [(name, 3, at, line) for at, line in enumerate(lines)]


def test_read_lines_of_a_large_file_numbers_on_across_batches(tmp_path):
    set_limits(chunk_bytes=10, batch_bytes=10)
    (tmp_path / "f").write_bytes(b"".join(b"%d\n" % at for at in range(50)))
    batches = list(read_lines(str(tmp_path), "f", 0))
    assert len(batches) > 5
    assert rows(batches) == [("f", 0, at, b"%d" % at) for at in range(50)]


def test_read_lines_of_two_gzip_members_reads_both(tmp_path):
    (tmp_path / "f.gz").write_bytes(gzip.compress(b"a\n") + gzip.compress(b"b\n"))
    assert [row[3] for row in rows(read_lines(str(tmp_path), "f.gz", 0))] == [b"a", b"b"]


@pytest.mark.parametrize("name", ["cut.gz", "text.gz", "absent"])
def test_read_lines_of_a_damaged_file_names_it(tmp_path, name):
    whole = gzip.compress(bytes(range(256)) * 100)
    (tmp_path / "cut.gz").write_bytes(whole[:-12])
    (tmp_path / "text.gz").write_bytes(b"no gzip")
    with pytest.raises(SourceReadError, match=rf"{name}' cannot be read: .+ Restore the whole file .+") as refused:
        list(read_lines(str(tmp_path), name, 0))
    assert "UTF-8" not in str(refused.value)


def test_read_lines_of_an_empty_file_that_should_be_compressed_names_it(tmp_path):
    (tmp_path / "f.jsonl.gz").touch()
    with pytest.raises(SourceReadError, match=r"f\.jsonl\.gz' cannot be read: it has 0 bytes"):
        list(read_lines(str(tmp_path), "f.jsonl.gz", 0, size=0))
    (tmp_path / "f.jsonl").touch()
    assert list(read_lines(str(tmp_path), "f.jsonl", 0, size=0)) == []


def test_read_lines_of_utf_16_names_the_file_and_says_what_it_is(tmp_path):
    (tmp_path / "f.jsonl").write_bytes('{"id": 1}\n'.encode("utf-16"))
    with pytest.raises(SourceReadError, match=r"f\.jsonl' cannot be read.*UTF-16.*Allowed: UTF-8 text\."):
        list(read_lines(str(tmp_path), "f.jsonl", 0))


@pytest.mark.parametrize(("found", "got"), [(b"1234567", "7 bytes"), (b"", "0 bytes")])
def test_file_that_changes_while_it_is_read_is_told_with_both_sizes(tmp_path, found, got):
    add(tmp_path, "a.json", content=found)
    with pytest.raises(FileChangedError) as refused:
        list(read_lines(str(tmp_path), "a.json", 0, size=5))
    assert str(refused.value) == (
        f"The source file '{tmp_path}/a.json' has changed since it was listed; nothing of the step was committed. "
        f"Got: {got}. Allowed: the 5 bytes that were listed. "
        "Run again when it is complete. Put files in place by renaming them, or set source.min_age."
    )


@pytest.mark.parametrize(("name", "listed"), [("f.jsonl", 5), ("f.jsonl", 15), ("cut.gz", 99)])
def test_file_that_changes_between_listing_and_reading_is_refused_by_name(tmp_path, name, listed):
    add(tmp_path, "f.jsonl", content=b"0123456789")
    add(tmp_path, "cut.gz", content=gzip.compress(bytes(range(256)) * 100)[:-12])
    with pytest.raises(FileChangedError, match=rf"{name}' has changed since.*Allowed: the {listed} bytes"):
        list(read_lines(str(tmp_path), name, 0, size=listed))


@pytest.mark.parametrize(("more", "got"), [(b"more\n", "38 bytes"), (None, "no file")])
def test_file_that_is_appended_to_or_deleted_while_it_is_read_is_refused(tmp_path, more, got):
    set_limits(chunk_bytes=10, batch_bytes=10)
    add(tmp_path, "f.jsonl", content=b"0123456789\n" * 3)
    batches = read_lines(str(tmp_path), "f.jsonl", 0, size=33)
    next(batches)
    if more is None:
        (tmp_path / "f.jsonl").unlink()
    else:
        add(tmp_path, "f.jsonl", content=b"0123456789\n" * 3 + more)
    with pytest.raises(FileChangedError, match=rf"Got: {got}\. Allowed: the 33"):
        list(batches)


def offsets_of(planner, last=None):
    """The offsets of the batches behind one, until nothing is left."""
    while (after := planner.after(last)) != last:
        yield after
        last = after


def test_batches_have_so_many_files_and_cover_all(folder):
    offsets = list(offsets_of(FilePlanner(SIZED, 2, MANY)))
    assert [offset["files"] for offset in offsets] == [SIZED[:2], SIZED[2:4], SIZED[4:]]


@pytest.mark.parametrize(("max_bytes", "count"), [(1, 1), (10, 1), (20, 1), (21, 2), (33, 3), (60, 5)])
def test_batch_takes_files_up_to_its_bytes_and_at_least_one(max_bytes, count):
    assert FilePlanner(SIZED, 9, max_bytes).after(None)["files"] == SIZED[:count]


@pytest.mark.parametrize("last", [{}, {"files": [("04.jsonl", 7)]}])
def test_first_batch_of_a_run_begins_with_its_first_file_whatever_an_earlier_run_read(last):
    assert FilePlanner(SIZED, 2, MANY).after(last)["files"] == SIZED[:2]


def test_batch_takes_what_a_later_look_adds():
    planner = FilePlanner(SIZED[:2], 9, MANY)
    first = planner.after(None)
    assert planner.after(first) == first
    planner.note(Discovery(tuple(SIZED[2:]), streams=True))
    assert planner.after(first)["files"] == SIZED[2:]


@pytest.mark.parametrize(
    ("last", "stays"), [(None, {"files": []}), ({}, {}), ({"files": [("a", 1)]}, {"files": [("a", 1)]})]
)
def test_offset_stays_where_nothing_is_left(last, stays):
    assert FilePlanner([], 2, MANY).after(last) == stays


def test_offset_names_the_files_of_its_batch_only():
    files = [(f"p=0/{at:09d}.jsonl.gz", 10**9) for at in range(17_000)]
    last = {"files": files[8_000:8_100]}
    middle = FilePlanner(files, 100, 10**12).after(last)
    assert middle["files"] == files[8_100:8_200]


def test_read_files_reads_what_a_task_was_given(folder):
    sizes = [len(name) for name in NAMES]
    named = [(NAMES[0], sizes[0], 0), (NAMES[1], sizes[1], 1), (NAMES[2], None, 2)]
    assert rows(read_files(str(folder))(named)) == [(n, at, 0, n.encode()) for at, n in enumerate(NAMES[:3])]


def test_read_files_cuts_lines_and_refuses_files_that_changed_as_read_lines_does(folder):
    add(folder, "long", content=b"a" * 100)
    assert rows(read_files(str(folder), 10)([("long", 100, 0)])) == [("long", 0, 0, b"a" * 11)]
    with pytest.raises(FileChangedError, match=r"Got: 100 bytes\. Allowed: the 99"):
        list(read_files(str(folder))([("long", 99, 0)]))


def test_damaged_file_of_another_size_than_listed_has_changed(tmp_path):
    damaged = gzip.compress(bytes(range(256)) * 100)[:-12]
    add(tmp_path, "cut.gz", content=damaged)
    with pytest.raises(FileChangedError, match=rf"Got: {len(damaged)} bytes\. Allowed: the 99"):
        list(read_lines(str(tmp_path), "cut.gz", 0, size=99))
    with pytest.raises(SourceReadError, match=r"cut\.gz' cannot be read"):
        list(read_lines(str(tmp_path), "cut.gz", 0, size=len(damaged)))


def test_file_that_has_become_a_link_is_not_read(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_text("{}\n")
    (tmp_path / "in" / "a.json").symlink_to(tmp_path / "secret")
    with pytest.raises(SourceReadError, match=r"symbolic links; they were not read. Got: a\.json"):
        list(read_lines(str(tmp_path / "in"), "a.json", 0))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (gzip.compress(b"{}\n"), "gzip"),
        (bz2.compress(b"{}\n"), "bzip2"),
        (lzma.compress(b"{}\n"), "xz"),
        (pa.compress(b"{}\n", "zstd", asbytes=True), "zstd"),
        (b"PK\x03\x04rest", "zip"),
        (b"PAR1rest", "Parquet"),
        (b"Obj\x01rest", "Avro"),
    ],
    ids=["gzip", "bzip2", "xz", "zstd", "zip", "Parquet", "Avro"],
)
@pytest.mark.parametrize("name", ["f.jsonl", "f.jsonl.gz"])
def test_file_that_is_no_text_by_its_first_bytes_is_refused_by_name(tmp_path, content, kind, name):
    is_gzip = name.endswith(".gz")
    add(tmp_path, name, content=gzip.compress(content) if is_gzip else content)
    with pytest.raises(SourceReadError, match=rf"{name}' cannot be read: it begins with .*, like {kind}") as raised:
        list(read_lines(str(tmp_path), name, 0))
    assert "Allowed: UTF-8 text. Give a gzip file a name that ends in .gz" in str(raised.value)


def by_tasks(folder, names, n_tasks):
    """What each of some tasks reads of some files."""
    files = [(name, (folder / name).stat().st_size) for name in names]
    tasks = []

    def work(records):
        tasks.append(rows(records))
        return ""

    batch = FileSource(str(folder)).batch(InProcess(threads=n_tasks), {"files": files}, 40)
    batch.records.run(work)
    return tasks


@pytest.mark.parametrize("seed", range(40))
def test_large_file_is_read_by_several_tasks_each_line_once_with_its_number(tmp_path, seed):
    set_limits(file_source_bytes_in_driver=0, batch_bytes=30, chunk_bytes=random.Random(seed).choice([1, 7, 1000]))
    chance = random.Random(seed)
    ends = chance.choice([[b"\n"], [b"\r\n"], [b"\n", b"\r\n", b"\r", b"\n\n"], [b"\r", b"\n"]])
    lines = [b'{"a":%d}' % n * chance.choice([1, 1, 1, 2, 9]) for n in range(chance.randrange(1, 60))]
    head = chance.choice([b"", b"\xef\xbb\xbf"])
    content = head + b"".join(line + chance.choice(ends) for line in lines) + chance.choice([b"", b"\xef\xbb\xbflast"])
    add(tmp_path, "large", content=content)
    add(tmp_path, "small", content=b"1\n2")
    names = chance.choice([["large"], ["large", "small"], ["small", "large"]])
    want = [row for number, name in enumerate(names) for row in rows(read_lines(str(tmp_path), name, number, 40))]
    found = by_tasks(tmp_path, names, chance.choice([2, 3, 8]))
    assert sorted(row for task in found for row in task) == sorted(want)


def test_tasks_read_about_equal_parts_of_a_large_file_and_a_compressed_one_stays_whole(tmp_path):
    set_limits(file_source_bytes_in_driver=0, batch_bytes=1000)
    content = b"".join(b"%09d\n" % n for n in range(4000))
    add(tmp_path, "large", content=content)
    assert sorted(len(task) for task in by_tasks(tmp_path, ["large"], 4)) == [1000] * 4
    noise = random.Random(1).randbytes(4000)
    (tmp_path / "large.gz").write_bytes(gzip.compress(noise.hex().encode()))
    assert len(by_tasks(tmp_path, ["large.gz"], 4)) == 1


def test_large_file_that_is_no_text_or_has_changed_is_refused_as_a_small_one(tmp_path):
    set_limits(file_source_bytes_in_driver=0, batch_bytes=10)
    add(tmp_path, "large", content=b"\xff\xfe" + b"a\0\n\0" * 100)
    with pytest.raises(SourceReadError, match="byte order mark of UTF-16"):
        by_tasks(tmp_path, ["large"], 4)
    source = FileSource(str(tmp_path))
    with pytest.raises(FileChangedError, match=r"Got: 402 bytes\. Allowed: the 300"):
        source.batch(InProcess(threads=4), {"files": [("large", 300)]}, 40).records.run(
            lambda records: str(len(rows(records)))
        )
    with pytest.raises(SourceReadError, match="cannot be read"):
        source.batch(InProcess(threads=4), {"files": [("gone", 300)]}, 40).records.run(
            lambda records: str(len(rows(records)))
        )
