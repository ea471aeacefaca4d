import gzip
import itertools

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from ebbtide.errors import LateFileError, SourceReadError
from ebbtide.sources import files
from ebbtide.sources.files import FileDataSource, FileStreamReader, read_files, read_lines

NAMES = [f"{at:02}.jsonl" for at in range(5)]


@pytest.fixture
def folder(tmp_path):
    add(tmp_path, *NAMES)
    return tmp_path


def add(folder, *names):
    for name in names:
        (folder / name).write_bytes(name.encode())


def reader(folder, max_files=2, tasks=2):
    return FileStreamReader(str(folder), max_files, tasks)


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


def test_read_lines_of_a_large_file_numbers_on_across_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BATCH_BYTES", 10)
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
    with pytest.raises(SourceReadError, match=f"{name}' cannot be read"):
        list(read_lines(str(tmp_path), name, 0))


def test_reader_steps_through_the_folder_by_its_limit(folder):
    stream = reader(folder)
    offsets = [stream.initialOffset()]
    while (after := stream.latestOffset(offsets[-1], stream.getDefaultReadLimit())) != offsets[-1]:
        offsets.append(after)
    assert [o["files"] for o in offsets] == [[], NAMES[:2], NAMES[2:4], NAMES[4:]]
    dealt = [sorted(f for p in stream.partitions(a, b) for f in stream.read(p)) for a, b in itertools.pairwise(offsets)]
    assert dealt == [[(name, at) for at, name in enumerate(o["files"])] for o in offsets[1:]]


@pytest.mark.parametrize(("limit", "count"), [(ReadMaxFiles(1), 1), (ReadMaxFiles(9), 5), (ReadAllAvailable(), 5)])
def test_reader_takes_the_limit_that_it_is_given(folder, limit, count):
    stream = reader(folder)
    assert stream.latestOffset(stream.initialOffset(), limit) == {"last": NAMES[count - 1], "files": NAMES[:count]}


def test_reader_of_a_bounded_run_leaves_later_files_alone(folder):
    stream = reader(folder, max_files=9)
    stream.prepareForTriggerAvailableNow()
    add(folder, "99.jsonl")
    end = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    assert end["files"] == NAMES
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end


def test_reader_of_a_bounded_run_over_no_files_reads_none(tmp_path):
    stream = reader(tmp_path)
    stream.prepareForTriggerAvailableNow()
    add(tmp_path, *NAMES)
    assert stream.latestOffset(stream.initialOffset()) == stream.initialOffset()


@pytest.mark.parametrize("late", ["00a.jsonl", "01.jsonk"])
def test_reader_refuses_a_file_below_those_read_and_names_it(folder, late):
    stream = reader(folder)
    start = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    add(folder, late)
    with pytest.raises(LateFileError, match=rf"below '01.jsonl'.*Got: {late}\. "):
        stream.latestOffset(start, stream.getDefaultReadLimit())


def test_partitions_go_by_the_offset_whatever_the_folder_holds_now(folder):
    stream = reader(folder)
    start, end = stream.initialOffset(), {"last": "b", "files": ["a", "b", "c"]}
    want = [[("a", 0), ("c", 2)], [("b", 1)]]
    assert [p.files for p in stream.partitions(start, end)] == want
    for name in NAMES:
        (folder / name).unlink()
    add(folder, "aa")
    assert [p.files for p in reader(folder).partitions(start, end)] == want
    assert stream.partitions(end, end) == []


def test_hidden_files_and_folders_are_left_out(folder):
    add(folder, ".hidden", "_SUCCESS")
    (folder / "03x").mkdir()
    stream = reader(folder)
    assert stream.latestOffset(stream.initialOffset(), ReadAllAvailable())["files"] == NAMES


def test_reader_of_an_absent_folder_says_so(tmp_path):
    with pytest.raises(SourceReadError, match=r"no' does not exist\. Create it, or correct source.path"):
        reader(tmp_path / "no").prepareForTriggerAvailableNow()


def test_data_source_hands_its_options_to_the_reader(folder):
    source = FileDataSource({"path": str(folder), "maxFiles": "3", "tasks": "4"})
    stream = source.streamReader(None)
    assert (source.name(), stream.path, stream.max_files, stream.tasks) == ("ebbtide_files", str(folder), 3, 4)


def test_read_files_reads_what_the_stream_names(folder):
    import pyarrow as pa

    names = [pa.record_batch({"file": NAMES[:2], "part": [0, 1]}), pa.record_batch({"file": NAMES[2:3], "part": [2]})]
    assert rows(read_files(str(folder))(names)) == [(n, at, 0, n.encode()) for at, n in enumerate(NAMES[:3])]
